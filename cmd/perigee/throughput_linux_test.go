package main

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// policy is that of a thread.
func policy(t *testing.T, thread int) uint32 {
	t.Helper()
	attr, err := unix.SchedGetAttr(thread, 0)
	if err != nil {
		t.Fatal(err)
	}
	return attr.Policy
}

func TestFavourThroughput(t *testing.T) {
	chosen := make(chan int)
	done := make(chan struct{})
	defer close(done)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with its goroutine
		thread := unix.Gettid()
		if err := unix.SchedSetAttr(thread, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0); err != nil {
			thread = 0
		}
		chosen <- thread
		<-done
	}()
	idle := <-chosen
	if idle == 0 {
		t.Skip("no policy can be set here")
	}
	favourThroughput()
	if got := policy(t, idle); got != unix.SCHED_IDLE {
		t.Errorf("a thread with a policy of its own has policy %d now, want %d", got, unix.SCHED_IDLE)
	}
	batch := 0
	for _, thread := range threads() {
		attr, err := unix.SchedGetAttr(thread, 0)
		switch {
		case err != nil: // it has ended
		case attr.Policy == unix.SCHED_BATCH:
			batch++
		case attr.Policy == unix.SCHED_NORMAL:
			t.Errorf("thread %d was left out", thread)
		}
	}
	if batch == 0 {
		t.Error("no thread has the policy")
	}
}
