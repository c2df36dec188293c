package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/perigeedb/perigee/engine"
)

// A signalHandler obeys the signals of an engine's process.
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
		for draining := false; ; {
			select {
			case <-over.Done():
				return
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
					log.Info("draining: finishing what was read; the same signal again stops at once", "signal", s.String())
					e.Drain()
				}
			}
		}
	})
	return h
}

// stop ends the handling of signals. It returns the exit code: 0 unless a second signal
// came.
func (h *signalHandler) stop() exitError {
	signal.Stop(h.signals)
	h.over()
	h.done.Wait()
	return exitError(h.code.Load())
}
