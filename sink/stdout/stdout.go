// Package stdout is a sink that prints documents to standard output, one per line. It
// delivers at least once: after a crash it prints some of them again.
//
// Each batch is one write, so lines of different batches do not mix. A line is never
// cut, not even by a write that failed half way and was retried. A Sink and its
// writers are safe for concurrent use.
package stdout

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/terminal"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/internal/ndjson"
)

// Config has no settings.
type Config struct{}

// Kind offers the sink to configurations.
func Kind() sink.Kind {
	return sink.Kind{
		Name:      "stdout",
		Doc:       "Prints every document on a line of its own to standard output.",
		Guarantee: sink.AtLeastOnce,
		Place:     &sink.Place{},
		Config:    &Config{},
		New: func(_ sink.Env, decode func(any) error) (sink.Sink, error) {
			if err := decode(&Config{}); err != nil {
				return nil, err
			}
			return &Sink{open: standardOutput}, nil
		},
	}
}

// A Sink prints to one output.
type Sink struct {
	open func() (io.Writer, error)

	mu   sync.Mutex
	out  io.Writer // nil until the first Open
	buf  []byte
	rest []byte // of the line that the last write cut
}

// New makes a sink that prints to out.
func New(out io.Writer) *Sink { return &Sink{out: out} }

// standardOutput returns a copy of the descriptor. A write to descriptor 1 itself
// would kill the process when the reader has gone, instead of failing.
func standardOutput() (io.Writer, error) {
	fd, err := syscall.Dup(int(os.Stdout.Fd()))
	if err != nil {
		return nil, fmt.Errorf("open standard output: %w", err)
	}
	syscall.CloseOnExec(fd)
	return terminal.Guard(os.NewFile(uintptr(fd), "standard output")), nil
}

// Traits implements sink.Sink. There is nothing to check: every process has an output.
func (s *Sink) Traits() sink.Traits {
	return sink.Traits{Check: func(ctx context.Context) error { return ctx.Err() }}
}

// Open implements sink.Sink. It returns no ranges.
func (s *Sink) Open(context.Context, string) (sink.Writer, event.Ranges, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.out == nil {
		out, err := s.open()
		if err != nil {
			return nil, nil, err
		}
		s.out = out
	}
	return &writer{sink: s}, nil, nil
}

// Close implements sink.Sink. It does not close the output of New.
func (s *Sink) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	file, ours := s.out.(*os.File)
	if s.open == nil || !ours {
		return nil
	}
	s.out = nil
	return file.Close()
}

type writer struct {
	sink   *Sink
	closed atomic.Bool
}

// Verify implements sink.Writer. It does nothing: printed rows cannot be read back.
func (w *writer) Verify(context.Context) error { return nil }

func (w *writer) Close() error {
	w.closed.Store(true)
	return nil
}

// Write implements sink.Writer.
func (w *writer) Write(ctx context.Context, out *event.Output) error {
	if w.closed.Load() {
		return errors.New("print a batch: the writer is closed")
	}
	w.sink.mu.Lock()
	defer w.sink.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	return w.sink.print(out)
}

// print writes the documents as lines, after the rest of a line that was cut.
func (s *Sink) print(out *event.Output) error {
	s.buf = append(s.buf[:0], s.rest...)
	for i := range out.Len() {
		s.buf = ndjson.AppendLine(s.buf, out.Doc(i))
	}
	if len(s.buf) == 0 {
		return nil
	}
	n, err := s.out.Write(s.buf)
	if err == nil {
		s.rest = s.rest[:0]
		return nil
	}
	if n > 0 {
		s.rest = append(s.rest[:0], cutLine(s.buf, n)...)
	}
	err = fmt.Errorf("print %d lines: %w", out.Len(), err)
	if errors.Is(err, syscall.EPIPE) {
		return &event.PermanentError{Err: err, Hint: "the program that reads the output has ended; start both again"}
	}
	return err
}

// cutLine returns the rest of the line that a write of the first n bytes cut.
func cutLine(buf []byte, n int) []byte {
	if buf[n-1] == '\n' {
		return nil
	}
	return buf[n : n+bytes.IndexByte(buf[n:], '\n')+1]
}
