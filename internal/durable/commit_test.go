package durable

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

// A hung disk commits when it is told to, and records the groups.
type hungDisk struct {
	began  chan int // sizes of groups
	finish chan error
	groups [][]int
}

func newHungDisk() (*hungDisk, *GroupCommit[int]) {
	d := &hungDisk{began: make(chan int), finish: make(chan error)}
	return d, NewGroupCommit(d.commit)
}

func (d *hungDisk) commit(changes []int) error {
	d.began <- len(changes)
	err := <-d.finish
	if err == nil {
		d.groups = append(d.groups, changes)
	}
	return err
}

func TestArrivalsShareACommit(t *testing.T) { synctest.Test(t, arrivalsShareACommit) }

func arrivalsShareACommit(t *testing.T) {
	d, g := newHungDisk()
	var group sync.WaitGroup
	commit := func(change int) {
		group.Go(func() {
			if err := g.Commit(t.Context(), change); err != nil {
				t.Errorf("change %d: %v", change, err)
			}
		})
	}
	commit(0)
	<-d.began
	for i := range 20 {
		commit(i + 1)
		synctest.Wait()
	}
	d.finish <- nil
	if n := <-d.began; n != 20 {
		t.Errorf("the second commit has %d changes, want 20", n)
	}
	d.finish <- nil
	group.Wait()
	if len(d.groups) != 2 || !slices.IsSorted(d.groups[1]) {
		t.Errorf("committed %v, want two groups in the order of arrival", d.groups)
	}
}

func TestErrorReachesItsGroupOnly(t *testing.T) { synctest.Test(t, errorReachesItsGroupOnly) }

func errorReachesItsGroupOnly(t *testing.T) {
	d, g := newHungDisk()
	full := errors.New("disk full")
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- g.Commit(t.Context(), 1) }()
	<-d.began
	go func() { second <- g.Commit(t.Context(), 2) }()
	synctest.Wait()
	d.finish <- full
	if err := <-first; err != full {
		t.Errorf("the change of the failed commit: %v", err)
	}
	<-d.began
	d.finish <- nil
	if err := <-second; err != nil {
		t.Errorf("the change after it: %v", err)
	}
}

// TestCancelled withdraws a change that waits, and not one that is being committed.
func TestCancelled(t *testing.T) { synctest.Test(t, cancelled) }

func cancelled(t *testing.T) {
	d, g := newHungDisk()
	ctx, cancel := context.WithCancel(t.Context())
	taken, waiting := make(chan error, 1), make(chan error, 1)
	go func() { taken <- g.Commit(ctx, 1) }()
	<-d.began
	go func() { waiting <- g.Commit(ctx, 2) }()
	synctest.Wait()
	cancel()
	if err := <-waiting; !errors.Is(err, context.Canceled) {
		t.Errorf("the change that waited: %v", err)
	}
	d.finish <- nil
	if err := <-taken; err != nil {
		t.Errorf("the change that was being committed: %v", err)
	}
	if err := g.Flush(); err != nil || len(d.groups) != 1 {
		t.Errorf("committed %v, %v; want the first change alone", d.groups, err)
	}
}

func TestDeferred(t *testing.T) { synctest.Test(t, deferred) }

func deferred(t *testing.T) {
	d, g := newHungDisk()
	full := errors.New("disk full")
	flushed := make(chan error, 1)
	g.Defer(1)
	for _, want := range []error{full, nil} {
		go func() { flushed <- g.Flush() }()
		if n := <-d.began; n != 1 {
			t.Errorf("%d changes, want the deferred one", n)
		}
		d.finish <- want
		if err := <-flushed; err != want {
			t.Errorf("Flush returned %v, want %v", err, want)
		}
	}
	g.Defer(2)
	done := make(chan error, 1)
	go func() { done <- g.Commit(t.Context(), 3) }()
	<-d.began
	d.finish <- nil
	if err := <-done; err != nil || !slices.EqualFunc(d.groups, [][]int{{1}, {2, 3}}, slices.Equal) {
		t.Errorf("committed %v, %v", d.groups, err)
	}
}

// TestPanic has a commit panic: nobody is told that it was durable, and the next
// commit works.
func TestPanic(t *testing.T) {
	first := true
	g := NewGroupCommit(func([]int) error {
		if first {
			first = false
			panic("broken")
		}
		return nil
	})
	g.Defer(1)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_ = g.Commit(t.Context(), 2)
	}()
	if err := g.Commit(t.Context(), 3); err != nil || len(g.queue) > 0 {
		t.Errorf("after the panic: %v, %d wait", err, len(g.queue))
	}
}
