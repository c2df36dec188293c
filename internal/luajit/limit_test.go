//go:build cgo && luajit

package luajit

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

func kindOf(err error) Kind {
	var f *Error
	if errors.As(err, &f) {
		return f.Kind
	}
	return OK
}

const castRun = `local run = require("ffi").cast("struct { volatile uint32_t event, stop, running, number, stop_event; } *", ...)`

func TestALimitBreaksTheVM(t *testing.T) {
	vm := load(t, "\nfunction main() while true do end end")
	err := vm.Call("main")
	if kind := kindOf(err); kind != EventTime || vm.Broken() != EventTime {
		t.Errorf("ended with %v, broken by %v", kind, vm.Broken())
	}
	const traceback = "  email.lua:2: in function at line 2"
	var f *Error
	if errors.As(err, &f) && (f.Line != 2 || f.Traceback != traceback) {
		t.Errorf("stopped in line %d with traceback %q, want line 2 and %q", f.Line, f.Traceback, traceback)
	}
}

func TestBatchTimeHoldsWhileEventsChange(t *testing.T) {
	opts := defaults()
	opts.EventTime, opts.BatchTime = 50*time.Millisecond, 100*time.Millisecond
	vm := open(t, opts)
	if err := vm.Load("email.lua", []byte("local x")); err != nil {
		t.Fatal(err)
	}
	// Advance the event's index, as a driver does, far more often than the limit for one event.
	err := vm.runTrusted(`
` + castRun + `
		while true do run.event = (run.event + 1) % 1000 end`)
	if kind := kindOf(err); kind != BatchTime {
		t.Errorf("ended with %v (%v)", kind, err)
	}
}

func TestALimitForOneEventSparesTheNext(t *testing.T) {
	opts := defaults()
	opts.BatchTime, opts.NoJIT = 20*time.Second, true
	vm := open(t, opts)
	// A stop meant for event 7 must be cancelled if the driver is already at event 8.
	err := vm.runTrusted(`
` + castRun + `
		run.event, run.stop_event, run.stop = 8, 7, 4
		while run.stop ~= 0 do end`)
	if err != nil || vm.Broken() != OK {
		t.Errorf("ended with %v, broken by %v", err, vm.Broken())
	}
}

func TestLoadHasTheTimeOfABatch(t *testing.T) {
	opts := defaults()
	opts.EventTime, opts.BatchTime = 10*time.Millisecond, 300*time.Millisecond
	vm := open(t, opts)
	start := time.Now()
	kind := kindOf(vm.Load("email.lua", []byte("while true do end")))
	if took := time.Since(start); kind != BatchTime || took < opts.BatchTime {
		t.Errorf("ended with %v after %v", kind, took)
	}
}

// TestGarbageIsNotMemory allocates much more than the limit, with few live bytes.
func TestGarbageIsNotMemory(t *testing.T) {
	opts := defaults()
	opts.Memory, opts.EventTime = 4<<20, 10*time.Second
	opts.BatchTime = opts.EventTime
	vm := open(t, opts)
	err := vm.Load("email.lua", []byte(`
		local kept = {}
		for i = 1, 20000 do kept[i] = {i} end
		function main() for i = 1, 2000000 do kept[i % 20000 + 1] = {i} end end`))
	if err != nil {
		t.Fatal(err)
	}
	if err := vm.Call("main"); err != nil {
		t.Error(err)
	}
}

func TestTooLittleMemoryForAVM(t *testing.T) {
	w := NewWatchdog()
	defer w.Close()
	for limit := 0; limit < 200<<10; limit += 1021 {
		vm, err := Open(w, Options{Memory: limit})
		if (vm == nil) != (err != nil) {
			t.Fatalf("limit %d: %v", limit, err)
		}
		if vm != nil {
			vm.Close()
		}
	}
}

// TestRunsAndLimitsAtOnce runs VMs that end at once and VMs that are stopped: a late stop must
// never hit the next run.
func TestRunsAndLimitsAtOnce(t *testing.T) {
	w := NewWatchdog()
	defer w.Close()
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			for range 8 {
				if err := innocentAndGuilty(w, i%2 == 0); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
}

func innocentAndGuilty(w *Watchdog, guilty bool) error {
	vm, err := Open(w, Options{EventTime: 200 * time.Millisecond, BatchTime: 10 * time.Second, Memory: 8 << 20})
	if err != nil {
		return err
	}
	defer vm.Close()
	if err := vm.Load("email.lua", []byte("function main() end function spin() while true do end end")); err != nil {
		return err
	}
	for range 2000 {
		if err := vm.Call("main"); err != nil {
			return fmt.Errorf("an innocent run: %w", err)
		}
	}
	if guilty && kindOf(vm.Call("spin")) != EventTime {
		return errors.New("a guilty run was not stopped")
	}
	return nil
}

func TestWatchdogSleepsAndWakes(t *testing.T) {
	w := NewWatchdog()
	defer w.Close()
	vm, err := Open(w, defaults())
	if err != nil {
		t.Fatal(err)
	}
	defer vm.Close()
	if err := vm.Load("email.lua", []byte("function main() while true do end end")); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); !w.asleep.Load(); time.Sleep(watchInterval) {
		if time.Now().After(deadline) {
			t.Fatal("the watchdog does not sleep")
		}
	}
	if kind := kindOf(vm.Call("main")); kind != EventTime {
		t.Errorf("ended with %v", kind)
	}
}
