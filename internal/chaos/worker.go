package chaos

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/perigeedb/perigee/internal/e2e"
	"github.com/perigeedb/perigee/pipeline"
)

// A worker is a perigee process with its own data folder and its own proxies.
type worker struct {
	number    int
	binary    string
	folder    string
	config    string
	source    *proxy            // of the source's Redis
	databases map[string]*proxy // by kind
	engine    *e2e.Process      // nil before it was started
	armedFor  *Fault            // the fault at whose point it kills itself, or nil
	suspended bool
}

// newWorker creates the folder and the proxies of the servers.
func newWorker(number int, binary, folder string, p *Pipeline, servers addresses) (w *worker, err error) {
	w = &worker{number: number, binary: binary, folder: folder, config: filepath.Join(folder, "pipeline.yaml"), databases: make(map[string]*proxy)}
	if err := os.MkdirAll(w.dataFolder(), 0o700); err != nil {
		return nil, err
	}
	at := addresses{data: w.dataFolder(), files: servers.files, databases: make(map[string]string)}
	if w.source, err = newProxy(servers.source); err != nil {
		return nil, err
	}
	at.source = w.source.address()
	for kind, address := range servers.databases {
		if w.databases[kind], err = newProxy(address); err != nil {
			return nil, err
		}
		at.databases[kind] = w.databases[kind].address()
	}
	return w, p.writeConfig(w.config, at)
}

func (w *worker) dataFolder() string { return filepath.Join(w.folder, "data") }
func (w *worker) socketPath() string { return filepath.Join(w.dataFolder(), "perigee.sock") }
func (w *worker) logPath() string    { return filepath.Join(w.folder, "worker.log") }

// leaseName returns the worker's name in leases.
func (w *worker) leaseName() (string, error) { return pipeline.WorkerName(w.dataFolder()) }

func (w *worker) proxies() []*proxy {
	all := []*proxy{w.source}
	for _, p := range w.databases {
		all = append(all, p)
	}
	return all
}

// start starts the process. If armed is not nil, the process kills itself when it passes
// that fault's point for the passing-th time.
func (w *worker) start(armed *Fault, passing int) (err error) {
	var env []string
	if armed != nil {
		env = append(env, fmt.Sprintf("PERIGEE_KILL_AT=%s:%d", armed.Point, passing))
	}
	w.armedFor = armed
	w.engine, err = e2e.StartProcess(w.binary, w.config, w.logPath(), env...)
	return err
}

// running reports whether the process exists, suspended or not.
func (w *worker) running() bool {
	if w.engine == nil {
		return false
	}
	select {
	case <-w.engine.Done():
		return false
	default:
		return true
	}
}

// suspend stops the process; resume continues it.
func (w *worker) suspend() error {
	w.suspended = true
	return w.engine.Suspend()
}

func (w *worker) resume() error {
	w.suspended = false
	return w.engine.Resume()
}

// resetProxies ends all faults of the proxies.
func (w *worker) resetProxies() {
	for _, p := range w.proxies() {
		p.injectOnce(noFault)
		p.setDelay(0)
		p.resume()
	}
}

// drain shuts the worker down. A worker that has just started may die of the signal.
func (w *worker) drain(ctx context.Context) error {
	if err := w.engine.Shutdown(ctx); err != nil && err.Error() != "signal: terminated" {
		return fmt.Errorf("worker %d did not drain: %w\n%s", w.number, err, w.logTail())
	}
	return nil
}

func (w *worker) close() {
	if w.running() {
		w.engine.Kill()
	}
	for _, p := range w.proxies() {
		if p != nil {
			p.close()
		}
	}
}

// logSince returns the log from an offset on.
func (w *worker) logSince(from int64) string {
	text, err := os.ReadFile(w.logPath())
	if err != nil || int64(len(text)) < from {
		return ""
	}
	return string(text[from:])
}

func (w *worker) logSize() int64 {
	info, err := os.Stat(w.logPath())
	if err != nil {
		return 0
	}
	return info.Size()
}

// logTail returns the last lines of the log.
func (w *worker) logTail() string {
	lines := strings.Split(strings.TrimSpace(w.logSince(0)), "\n")
	return strings.Join(lines[max(0, len(lines)-6):], "\n")
}
