package stores

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/perigeedb/perigee/bench/dataset"
)

// A questDB is a server of its own. Batches and queries go over HTTP: each batch is a request
// in InfluxDB's line protocol, which the server answers when it has committed.
type questDB struct {
	events  *dataset.Events
	command *exec.Cmd
	log     *os.File
	url     string
	client  *http.Client
}

const questDBTable = `CREATE TABLE IF NOT EXISTS ` + dataset.Table + ` (id LONG, time TIMESTAMP, event SYMBOL, user_id LONG,
	hash VARCHAR, country SYMBOL, url VARCHAR, value DOUBLE, status LONG, meta VARCHAR) TIMESTAMP(time) PARTITION BY DAY WAL`

const (
	startTime      = 60 * time.Second // that the server may take to start
	connectionsMax = 8                // to the server, kept open
)

func startQuestDB(ctx context.Context, folder, commitMode string, o Options) (_ *questDB, err error) {
	jars, _ := filepath.Glob(filepath.Join(o.QuestDBJars, "*.jar"))
	if len(jars) == 0 {
		return nil, fmt.Errorf("no jars in %q: run tools/setup.sh questdb", o.QuestDBJars)
	}
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	q := &questDB{events: o.Events, url: "http://" + address, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: connectionsMax}}}
	if q.log, err = os.Create(folder + ".log"); err != nil {
		return nil, err
	}
	q.command = exec.Command("java", "-XX:+UseParallelGC", "-p", strings.Join(jars, ":"), "-m", "io.questdb/io.questdb.ServerMain", "-d", folder)
	q.command.Env = append(os.Environ(), "QDB_CAIRO_COMMIT_MODE="+commitMode, "QDB_HTTP_BIND_TO="+address,
		"QDB_TELEMETRY_ENABLED=false", "QDB_HTTP_MIN_ENABLED=false", "QDB_LINE_TCP_ENABLED=false", "QDB_PG_ENABLED=false")
	q.command.Stdout, q.command.Stderr = q.log, q.log
	q.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := q.command.Start(); err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(startTime); ; time.Sleep(50 * time.Millisecond) {
		_, err := q.Query(ctx, questDBTable)
		if err == nil {
			return q, nil
		}
		if time.Now().After(deadline) {
			return nil, errors.Join(fmt.Errorf("start QuestDB, whose log is %s: %w", q.log.Name(), err), q.Close())
		}
	}
}

func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}

func (q *questDB) TimeLiteral(us int64) string {
	return "'" + time.UnixMicro(us).UTC().Format("2006-01-02T15:04:05.000000Z") + "'"
}

func (q *questDB) Close() error {
	_ = q.command.Process.Signal(syscall.SIGTERM)
	_ = q.command.Wait() // it ends with the status of a signal
	return q.log.Close()
}

// Query reads the result as CSV and counts its rows.
func (q *questDB) Query(ctx context.Context, sql string) (r Result, err error) {
	path := "/exp"
	if strings.HasPrefix(sql, "CREATE") {
		path = "/exec"
	}
	body, err := q.send(ctx, http.MethodGet, path+"?query="+url.QueryEscape(sql), nil)
	if err != nil {
		return r, err
	}
	defer body.Close()
	lines := bufio.NewScanner(body)
	lines.Scan() // the header
	for ; lines.Scan(); r.Rows++ {
		if r.Rows == 0 {
			r.First, _, _ = strings.Cut(lines.Text(), ",")
		}
	}
	return r, lines.Err()
}

func (q *questDB) send(ctx context.Context, method, path string, content io.Reader) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, method, q.url+path, content)
	if err != nil {
		return nil, err
	}
	response, err := q.client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode >= http.StatusBadRequest {
		text, _ := io.ReadAll(response.Body)
		response.Body.Close()
		return nil, fmt.Errorf("QuestDB answers %s: %s", response.Status, text)
	}
	return response.Body, nil
}

func (q *questDB) NewWriter() (Writer, error) { return &questWriter{store: q}, nil }

type questWriter struct {
	store *questDB
	lines []byte
}

func (w *questWriter) Prepare(first uint64, n int) {
	w.lines = w.store.events.Lines(w.lines[:0], first, n)
}

func (w *questWriter) Commit(ctx context.Context) error {
	body, err := w.store.send(ctx, http.MethodPost, "/write?precision=u", bytes.NewReader(w.lines))
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, body)
	return errors.Join(err, body.Close())
}

func (w *questWriter) Close() error { return nil }
