package trial

import (
	"context"
	"log/slog"
	"sync"
)

// A Line is what code has logged.
type Line struct {
	Level slog.Level
	Text  string
	At    string // the place in the code, such as "email.lua:12"
}

// linesMax bounds the lines that are kept between two calls of TakeLog.
const linesMax = 10_000

// TakeLog returns the lines that code has logged since the last call, up to a bound, and how
// many more there were.
func (p *Pipeline) TakeLog() (lines []Line, more int) { return p.log.take() }

// A recorder keeps the log lines of code. Others, which the engine logs, have no place in the
// code and are left out.
type recorder struct {
	mu    sync.Mutex
	lines []Line
	more  int
}

func (r *recorder) take() (lines []Line, more int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	lines, more = r.lines, r.more
	r.lines, r.more = nil, 0
	return lines, more
}

// Enabled implements slog.Handler.
func (r *recorder) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (r *recorder) Handle(_ context.Context, record slog.Record) error {
	line := Line{Level: record.Level, Text: record.Message}
	record.Attrs(func(a slog.Attr) bool {
		if a.Key == "at" {
			line.At = a.Value.String()
		}
		return true
	})
	if line.At == "" {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.lines) == linesMax {
		r.more++
		return nil
	}
	r.lines = append(r.lines, line)
	return nil
}

// WithAttrs implements slog.Handler.
func (r *recorder) WithAttrs([]slog.Attr) slog.Handler { return r }

// WithGroup implements slog.Handler.
func (r *recorder) WithGroup(string) slog.Handler { return r }
