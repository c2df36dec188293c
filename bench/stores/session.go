package stores

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/perigeedb/perigee/bench/dataset"
	"github.com/perigeedb/perigee/eventstore"
)

// Settings say which store a session opens, on which data.
type Settings struct {
	Store   string
	Folder  string // of the store
	Data    string // folder of the rendered rows
	Rows    int    // distinct ones
	Clock   dataset.Clock
	Written uint64 // rows that are in the store already
	Memory  int64
	Bloom   []string // columns with a bloom filter in Perigee's table
	Jars    string
}

// A Session is a process of its own with an open store, so that its memory can be measured
// and it can be killed.
type Session struct {
	process *exec.Cmd
	in      io.WriteCloser
	replies *json.Decoder
}

// A request has one of these.
type request struct {
	Load   *Load
	SQL    string
	CopyTo string // a folder for Parquet files
	Await  bool   // all rows that were written
}

type reply struct {
	Report Report
	Result Result
	Took   time.Duration
	Error  string
}

// sessionArgument is the first argument of a session's process.
const sessionArgument = "session"

// Start starts a session.
func Start(s Settings) (*Session, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	settings, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	c := &Session{process: exec.Command(path, sessionArgument, string(settings))}
	c.process.Stderr = os.Stderr
	if c.in, err = c.process.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.replies = json.NewDecoder(out)
	if err := c.process.Start(); err != nil {
		return nil, err
	}
	if _, err := c.receive(); err != nil { // it is open
		return nil, errors.Join(fmt.Errorf("open %s: %w", s.Store, err), c.Stop())
	}
	return c, nil
}

// PID returns the process's id.
func (c *Session) PID() int { return c.process.Process.Pid }

// Write writes a load.
func (c *Session) Write(l Load) (Report, error) {
	r, err := c.call(request{Load: &l})
	return r.Report, err
}

// Query runs a query and returns how long it took.
func (c *Session) Query(sql string) (Result, time.Duration, error) {
	r, err := c.call(request{SQL: sql})
	return r.Result, r.Took, err
}

// Await waits until a query finds all rows that were written, and returns how long that took.
func (c *Session) Await() (time.Duration, error) {
	r, err := c.call(request{Await: true})
	return r.Took, err
}

// CopyToParquet writes the rows of a DuckDB store as Parquet files.
func (c *Session) CopyToParquet(folder string) error {
	_, err := c.call(request{CopyTo: folder})
	return err
}

func (c *Session) call(q request) (reply, error) {
	if err := json.NewEncoder(c.in).Encode(q); err != nil {
		return reply{}, err
	}
	return c.receive()
}

func (c *Session) receive() (r reply, err error) {
	if err = c.replies.Decode(&r); err == nil && r.Error != "" {
		err = errors.New(r.Error)
	}
	return r, err
}

// Stop closes the store and waits until the process has ended.
func (c *Session) Stop() error {
	return errors.Join(c.in.Close(), c.process.Wait())
}

// Kill kills the process.
func (c *Session) Kill() {
	_ = c.process.Process.Kill()
	_ = c.process.Wait()
}

// Init must come first in main: if this process is a session, it does not return.
func Init() {
	eventstore.RunWorker()
	if len(os.Args) != 3 || os.Args[1] != sessionArgument {
		return
	}
	if err := serve(context.Background(), os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "session: error:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// A server is a session's process.
type server struct {
	store   Store
	events  *dataset.Events
	written uint64
}

func serve(ctx context.Context, text string) (err error) {
	var settings Settings
	if err := json.Unmarshal([]byte(text), &settings); err != nil {
		return err
	}
	s := server{written: settings.Written}
	if s.events, err = dataset.Open(settings.Data, settings.Rows, settings.Clock); err != nil {
		return err
	}
	if err := os.MkdirAll(settings.Folder, 0o700); err != nil {
		return err
	}
	if s.store, err = Open(ctx, settings.Store, settings.Folder, Options{Events: s.events, Memory: settings.Memory, Bloom: settings.Bloom, QuestDBJars: settings.Jars}); err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(reply{}); err != nil {
		return errors.Join(err, s.store.Close())
	}
	for in := json.NewDecoder(os.Stdin); ; {
		var q request
		if err := in.Decode(&q); err != nil {
			return s.store.Close()
		}
		r, err := s.answer(ctx, q)
		if err != nil {
			r.Error = err.Error()
		}
		if err := out.Encode(r); err != nil {
			return errors.Join(err, s.store.Close())
		}
	}
}

func (s *server) answer(ctx context.Context, q request) (r reply, err error) {
	began := time.Now()
	switch {
	case q.Load != nil:
		l := loader{Load: *q.Load, store: s.store, events: s.events, first: s.written}
		r.Report, err = l.run(ctx)
		s.written += r.Report.Rows
	case q.Await:
		err = s.await(ctx)
	case q.CopyTo != "":
		err = CopyToParquet(s.store, q.CopyTo)
	default:
		r.Result, err = s.store.Query(ctx, q.SQL)
	}
	r.Took = time.Since(began)
	return r, err
}

// awaitTime bounds the wait for rows that were acknowledged.
const awaitTime = 10 * time.Minute

func (s *server) await(ctx context.Context) error {
	for deadline := time.Now().Add(awaitTime); ; time.Sleep(20 * time.Millisecond) {
		r, err := s.store.Query(ctx, "SELECT count(*) FROM "+dataset.Table)
		if err != nil {
			return err
		}
		if r.First == strconv.FormatUint(s.written, 10) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("a query finds %s rows of %d", r.First, s.written)
		}
	}
}
