package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/perigeedb/perigee/engine"
	"github.com/perigeedb/perigee/pipeline"
)

// A signalHandler handles the signals of an engine's process.
type signalHandler struct {
	signals chan os.Signal
	over    context.CancelFunc
	done    sync.WaitGroup
	code    atomic.Int32
}

// handleSignals drains the engine at the first SIGINT or SIGTERM and calls stop at the
// second. SIGHUP calls reload, which may be nil; a drain ends a reload that waits.
func handleSignals(e *engine.Engine, log *slog.Logger, stop context.CancelFunc, reload func()) *signalHandler {
	h := &signalHandler{signals: make(chan os.Signal, 2)}
	signal.Notify(h.signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	over, cancel := context.WithCancel(context.Background())
	h.over = cancel
	h.done.Go(func() {
		var reports <-chan time.Time // nil until the engine drains
		for draining := false; ; {
			select {
			case <-over.Done():
				return
			case <-reports:
				reportDrain(e, log)
			case s := <-h.signals:
				switch {
				case s == syscall.SIGHUP:
					if reload != nil && !draining {
						h.done.Go(reload)
					}
				case draining:
					h.code.Store(128 + int32(s.(syscall.Signal)))
					stop()
					signal.Stop(h.signals) // a third signal ends the process
					return
				default:
					draining = true
					log.Info("draining: delivering the events already read; a second signal stops at once", "signal", s.String())
					e.Drain()
					ticker := time.NewTicker(drainReport)
					defer ticker.Stop()
					reports = ticker.C
				}
			}
		}
	})
	return h
}

// drainReport is the interval of reports during a drain. A drain has no time limit: it
// retries a failing sink until the next signal.
const drainReport = 5 * time.Second

// reportDrain logs the pipelines that have not finished, with their errors.
func reportDrain(e *engine.Engine, log *slog.Logger) {
	for _, s := range e.Status() {
		if s.State == pipeline.Stopped {
			continue
		}
		args := []any{"pipeline", s.Pipeline}
		if s.Reason != "" {
			args = append(args, "error", s.Reason)
		}
		log.Warn("still draining; a second signal stops at once, and the next start reads unfinished events again", args...)
	}
}

// stop ends the handling of signals. It returns the exit code, which is 0 unless a second
// signal arrived.
func (h *signalHandler) stop() exitError {
	signal.Stop(h.signals)
	h.over()
	h.done.Wait()
	return exitError(h.code.Load())
}
