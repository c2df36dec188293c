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

// A worker is one engine with a data folder of its own, behind proxies of its own.
type worker struct {
	number    int
	binary    string
	folder    string
	config    string
	redis     *proxy
	databases map[string]*proxy // by kind
	engine    *e2e.Engine       // nil before it was started
	armed     *Fault            // that it will kill itself for
	frozen    bool
}

// newWorker makes the folder and the proxies. servers are addresses by kind; that
// of Redis is by "redis".
func newWorker(number int, binary, folder string, p *Pipeline, servers map[string]string) (w *worker, err error) {
	w = &worker{number: number, binary: binary, folder: folder, config: filepath.Join(folder, "pipeline.yaml"), databases: make(map[string]*proxy)}
	if err := os.MkdirAll(w.data(), 0o700); err != nil {
		return nil, err
	}
	at := addresses{data: w.data(), databases: make(map[string]string)}
	for kind, address := range servers {
		one, err := newProxy(address)
		if err != nil {
			return nil, err
		}
		if kind == "redis" {
			w.redis, at.redis = one, one.address()
		} else {
			w.databases[kind], at.databases[kind] = one, one.address()
		}
	}
	return w, p.write(w.config, at)
}

func (w *worker) data() string { return filepath.Join(w.folder, "data") }
func (w *worker) log() string  { return filepath.Join(w.folder, "worker.log") }

// name is under which others know the worker.
func (w *worker) name() (string, error) { return pipeline.WorkerName(w.data()) }

func (w *worker) proxies() []*proxy {
	all := []*proxy{w.redis}
	for _, p := range w.databases {
		all = append(all, p)
	}
	return all
}

// start starts the engine; armed is what it is to kill itself for, or nil.
func (w *worker) start(armed *Fault, passing int) (err error) {
	var env []string
	if armed != nil {
		env = append(env, fmt.Sprintf("PERIGEE_KILL_AT=%s:%d", armed.Point, passing))
	}
	w.armed = armed
	w.engine, err = e2e.Start(w.binary, w.config, w.log(), env...)
	return err
}

// running tells whether the process is there, frozen or not.
func (w *worker) running() bool {
	if w.engine == nil {
		return false
	}
	select {
	case <-w.engine.Ended():
		return false
	default:
		return true
	}
}

// freeze stops the process where it is; thaw lets it go on.
func (w *worker) freeze() error {
	w.frozen = true
	return w.engine.Freeze()
}

func (w *worker) thaw() error {
	w.frozen = false
	return w.engine.Thaw()
}

// honest ends all that the proxies do.
func (w *worker) honest() {
	for _, p := range w.proxies() {
		p.play(honest)
		p.slow(0)
		p.resume()
	}
}

// drain ends the worker in order. One that has only just begun ends at once.
func (w *worker) drain(ctx context.Context) error {
	if err := w.engine.Drain(ctx); err != nil && err.Error() != "signal: terminated" {
		return fmt.Errorf("worker %d did not drain: %w\n%s", w.number, err, w.lastWords())
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

// logged is what the log has from an offset on.
func (w *worker) logged(from int64) string {
	text, err := os.ReadFile(w.log())
	if err != nil || int64(len(text)) < from {
		return ""
	}
	return string(text[from:])
}

func (w *worker) logSize() int64 {
	info, err := os.Stat(w.log())
	if err != nil {
		return 0
	}
	return info.Size()
}

// lastWords are the last lines of the log.
func (w *worker) lastWords() string {
	lines := strings.Split(strings.TrimSpace(w.logged(0)), "\n")
	return strings.Join(lines[max(0, len(lines)-6):], "\n")
}
