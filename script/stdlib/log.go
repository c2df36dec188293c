package stdlib

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/perigeedb/perigee/script"
)

// The lines that a script may log: linesBurst at once, and linesSecond a second for longer.
const (
	linesBurst  = 200
	linesSecond = 20
	lineMax     = 4 << 10 // bytes
)

// A Log writes the log lines of scripts, at a bounded rate.
type Log struct {
	to      *slog.Logger
	now     func() time.Time
	limited bool

	mu     sync.Mutex
	spent  float64 // lines, going down with time
	last   time.Time
	silent int // lines left out since the last one that passed
}

// NewLog returns a log that writes to a logger, or nowhere if that is nil.
func NewLog(to *slog.Logger) *Log {
	if to == nil {
		to = slog.New(slog.DiscardHandler)
	}
	return &Log{to: to, now: time.Now, limited: true}
}

// ScriptLog returns the log of a script that is loaded with opts. In a trial it may have no bound.
func ScriptLog(opts *script.Options) *Log {
	l := NewLog(opts.Log)
	l.limited = opts.Trial == nil || opts.Trial.LimitLog
	return l
}

// Line writes a line of a script. place is where the script logs it, such as
// "email.lua:12".
func (l *Log) Line(level slog.Level, text, script, place string) {
	ctx := context.Background()
	if !l.to.Enabled(ctx, level) {
		return
	}
	passes, silent := l.admit()
	if silent > 0 {
		l.to.Warn("the script logs too much", "left_out", silent, "script", script)
	}
	if !passes {
		return
	}
	if len(text) > lineMax {
		text = text[:lineMax] + "…"
	}
	l.to.Log(ctx, level, text, "script", script, "at", place)
}

// admit reports whether to write one more line, and how many were skipped before it.
func (l *Log) admit() (passes bool, silent int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.limited {
		return true, 0
	}
	now := l.now()
	l.spent = max(0, l.spent-now.Sub(l.last).Seconds()*linesSecond)
	l.last = now
	if l.spent+1 > linesBurst {
		l.silent++
		return false, 0
	}
	l.spent++
	silent, l.silent = l.silent, 0
	return true, silent
}
