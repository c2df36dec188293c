//go:build cgo && luajit

package luajit

import (
	"strings"
	"testing"
)

// TestProbe proves that this build stops compiled loops, without which no limit holds.
func TestProbe(t *testing.T) {
	w := NewWatchdog()
	defer w.Close()
	if err := Probe(w); err != nil {
		t.Error(err)
	}
}

func TestProbeSeesALoopThatIsNotStopped(t *testing.T) {
	w := NewWatchdog()
	w.Close() // nobody arms the hook
	if err := probeHook(w); err == nil || !strings.Contains(err.Error(), "build it with") {
		t.Errorf("got %v", err)
	}
}
