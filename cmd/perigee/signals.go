package main

import (
	"context"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
)

// obey lets the first signal drain the engine and the second one stop it; a
// hangup only makes it look for new versions of scripts. The
// function it returns gives up listening and returns the exit code: 0 unless a
// second signal came.
func (e *engine) obey(stop context.CancelFunc) func() exit {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	over, cancel := context.WithCancel(context.Background())
	var code atomic.Int32
	go func() {
		for draining := false; ; {
			select {
			case <-over.Done():
				return
			case s := <-signals:
				if s == syscall.SIGHUP {
					e.log.Info("looking for new versions of scripts", "signal", s.String())
					e.scripts.Ask()
					continue
				}
				if draining {
					code.Store(128 + int32(s.(syscall.Signal)))
					stop()
					signal.Stop(signals) // a third one ends the process
					return
				}
				e.log.Info("draining: finishing what was read; the same signal again stops at once", "signal", s.String())
				draining = true
				e.drain()
			}
		}
	}()
	return func() exit {
		signal.Stop(signals)
		cancel()
		return exit(code.Load())
	}
}

func (e *engine) drain() {
	for _, p := range e.pipelines {
		p.Drain()
	}
}
