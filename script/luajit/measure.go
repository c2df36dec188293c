//go:build cgo && luajit

package luajit

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/luajit"
	"github.com/perigeedb/perigee/script"
)

// A Measurement is how a script spends its time on a batch.
type Measurement struct {
	Took        time.Duration // of the quickest pass of compiled code
	Interpreted time.Duration // of the processor, in a pass that was measured by line
	Lines       []TimedLine   // that ran in such a pass, by file and line
}

// A TimedLine is a line that ran.
type TimedLine struct {
	File string // "" for the script itself
	Line int
	Runs int           // a line counts again when a function of the script returns to it
	Time time.Duration // of the processor until the next line, with the functions in C and Go that it calls
}

// timedPasses is over how many passes the times of lines are averaged.
const timedPasses = 5

// Measure measures a script on a batch, with VMs of its own: as it runs compiled, for as long, and
// by line. It is not for scripts with a state. Events that fail do not matter.
func Measure(ctx context.Context, code script.Code, opts script.Options, batch *event.Batch, long time.Duration) (*Measurement, error) {
	m := new(Measurement)
	err := runAlone(ctx, code, opts, false, func(e *luajit.Engine) error {
		for began, first := time.Now(), true; first || time.Since(began) < long && ctx.Err() == nil; first = false {
			pass := time.Now()
			if limit := e.Run(ctx, batch, 0).Limit; limit != luajit.OK {
				return fmt.Errorf("measure the script: it reached a limit: %v", limit)
			}
			if took := time.Since(pass); m.Took == 0 || took < m.Took {
				m.Took = took
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = runAlone(ctx, code, opts, true, func(e *luajit.Engine) error {
		e.Run(ctx, batch, 0) // caches fill
		e.VM.ReadLines(func(luajit.Line) {})
		for range timedPasses {
			e.Run(ctx, batch, 0)
		}
		e.VM.ReadLines(func(l luajit.Line) {
			l.Runs, l.Time = l.Runs/timedPasses, l.Time/timedPasses
			m.Interpreted += l.Time
			m.Lines = append(m.Lines, TimedLine(l))
		})
		return nil
	})
	slices.SortFunc(m.Lines, func(a, b TimedLine) int { return cmp.Or(cmp.Compare(a.File, b.File), a.Line-b.Line) })
	return m, err
}

// runAlone calls run with an engine that has loaded the script, which measures lines if it is timed.
func runAlone(ctx context.Context, code script.Code, opts script.Options, timed bool, run func(*luajit.Engine) error) error {
	s := new(Script)
	if err := s.prepare(code, opts, timed); err != nil {
		return err
	}
	w := luajit.NewWatchdog()
	defer w.Close()
	e, err := luajit.NewEngine(w, s.limits(), luajit.Setup{
		Output: s.opts.Limits.Output, Sinks: sinks(s.opts.Sinks), Main: code.Func, Host: s.host,
	})
	if err != nil {
		return err
	}
	defer e.Close()
	if timed {
		e.VM.CoverTimes()
	}
	if err := s.loadInto(ctx, e); err != nil {
		return err
	}
	return run(e)
}
