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

	"github.com/perigeedb/perigee/pipeline"
)

const (
	progressEvery = 500 * time.Millisecond
	eraseLine     = "\r\x1b[K"
)

// A screen is standard error with, on a terminal, a progress line below what
// is written to it. Without a terminal it is standard error. It is safe for
// concurrent use.
type screen struct {
	out      io.Writer
	terminal bool

	mu   sync.Mutex
	line string
}

func newScreen(out io.Writer) *screen { return &screen{out: out, terminal: isTerminal(out)} }

// Write implements io.Writer: p goes above the progress line.
func (s *screen) Write(p []byte) (int, error) {
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
func (s *screen) draw(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line = line
	fmt.Fprint(s.out, eraseLine+line)
}

// show keeps a progress line until the returned function is called. line is
// asked for it every so often.
func (s *screen) show(line func(elapsed time.Duration) string) (end func()) {
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
				s.draw(s.fit(line(progressEvery)))
			}
		}
	}()
	return func() { close(stop); <-stopped }
}

// progressOf returns a line that says how every pipeline does.
func progressOf(pipelines []*pipeline.Pipeline) func(time.Duration) string {
	before := make([]uint64, len(pipelines))
	return func(elapsed time.Duration) string {
		var parts []string
		for i, p := range pipelines {
			stats := p.Stats()
			parts = append(parts, fmt.Sprintf("%s: %s events  %s/s  lag %s  dead %s  %s", p.Name(), thousands(stats.Committed),
				thousands(perSecond(stats.Committed-before[i], elapsed)), thousands(stats.Lag), thousands(deadOf(stats)), stats.State))
			before[i] = stats.Committed
		}
		return strings.Join(parts, "  |  ")
	}
}

// barOf returns a bar that fills up as a pipeline comes to so many events.
func barOf(p *pipeline.Pipeline, events uint64) func(time.Duration) string {
	const width = 30
	before := uint64(0)
	return func(elapsed time.Duration) string {
		settled := p.Stats().Committed
		full := int(width * settled / max(events, 1))
		line := fmt.Sprintf("[%s%s] %s of %s events  %s/s", strings.Repeat("#", full), strings.Repeat(".", width-full),
			thousands(settled), thousands(events), thousands(perSecond(settled-before, elapsed)))
		before = settled
		return line
	}
}

// fit cuts a line to the width of the terminal, where it can be erased.
func (s *screen) fit(line string) string {
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
