package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/perigeedb/perigee/engine"
	"github.com/perigeedb/perigee/internal/terminal"
)

const (
	progressEvery = 500 * time.Millisecond
	eraseLine     = "\r\x1b[K"
)

// A display is standard error; on a terminal it shows a progress line below the written
// text. It is safe for concurrent use.
type display struct {
	out      io.Writer
	terminal bool

	mu   sync.Mutex
	line string
}

// newDisplay returns a display on standard error. The caller must escape the text it writes.
func newDisplay(out io.Writer) *display {
	d := &display{out: out, terminal: terminal.Is(out)}
	if escaping, ok := out.(*terminal.Writer); ok {
		d.out = escaping.Unwrap()
	}
	return d
}

// Write implements io.Writer. It writes p above the progress line.
func (s *display) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.line == "" {
		return s.out.Write(p)
	}
	whole := bytes.Join([][]byte{[]byte(eraseLine), p, []byte(s.line)}, nil)
	if _, err := s.out.Write(whole); err != nil {
		return 0, err
	}
	return len(p), nil
}

// draw replaces the progress line; an empty one removes it.
func (s *display) draw(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line = line
	fmt.Fprint(s.out, eraseLine+line)
}

// show keeps a progress line until the returned function is called. It calls line at
// intervals.
func (s *display) show(line func(elapsed time.Duration) string) (hide func()) {
	if !s.terminal {
		return func() {}
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		defer s.draw("")
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				s.draw(s.fit(terminal.EscapeLine(line(progressEvery))))
			}
		}
	}()
	return func() { close(stop); <-stopped }
}

// progressOf returns a function that describes the progress of every pipeline in one line.
func progressOf(e *engine.Engine) func(time.Duration) string {
	before := map[string]uint64{}
	return func(elapsed time.Duration) string {
		var parts []string
		for _, s := range e.Status() {
			parts = append(parts, fmt.Sprintf("%s: %s events  %s/s  lag %s  dead %s  %s", s.Pipeline, thousands(s.Events),
				thousands(perSecond(s.Events-min(s.Events, before[s.Pipeline]), elapsed)), thousands(s.Lag), thousands(s.Dead), s.State))
			before[s.Pipeline] = s.Events
		}
		return strings.Join(parts, "  |  ")
	}
}

// barOf returns a function that draws the progress of the first pipeline to a number of events.
func barOf(e *engine.Engine, events uint64) func(time.Duration) string {
	before := uint64(0)
	return func(elapsed time.Duration) string {
		done := e.Status()[0].Events
		line := fmt.Sprintf("%s %s of %s events  %s/s", bar(done, events), thousands(done), thousands(events), thousands(perSecond(done-before, elapsed)))
		before = done
		return line
	}
}

// bar draws done of total.
func bar(done, total uint64) string {
	const width = 30
	full := int(min(width, width*done/max(total, 1)))
	return "[" + strings.Repeat("#", full) + strings.Repeat(".", width-full) + "]"
}

func perSecond(n uint64, d time.Duration) uint64 { return uint64(float64(n) / max(d.Seconds(), 1e-3)) }

// fit cuts a line to the width of the terminal, where it can be erased.
func (s *display) fit(line string) string {
	file, ok := s.out.(*os.File)
	if !ok {
		return line
	}
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil || len(line) < width {
		return line
	}
	return line[:max(width-1, 0)]
}

// thousands writes n as 1,234,567.
func thousands(n uint64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
