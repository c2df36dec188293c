package sinktest

import (
	"errors"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
)

// A Class says what the pipeline does after an error of a sink.
type Class string

const (
	Success   Class = "success"
	Transient Class = "transient" // retry with growing waits
	Conflict  Class = "conflict"  // retry soon
	Permanent Class = "permanent" // stop
	Rejected  Class = "rejected"  // the named rows become dead letters
	Fenced    Class = "fenced"    // another worker has the partition
)

// ClassOf returns the class of an error.
func ClassOf(err error) Class {
	_, rejected := errors.AsType[*sink.RowErrors](err)
	switch {
	case err == nil:
		return Success
	case rejected:
		return Rejected
	case errors.Is(err, sink.ErrFenced):
		return Fenced
	case event.IsPermanent(err):
		return Permanent
	case errors.Is(err, sink.ErrConflict):
		return Conflict
	}
	return Transient
}

// ExpectClass fails the test unless err is of the class.
func ExpectClass(t *testing.T, err error, want Class) {
	t.Helper()
	if got := ClassOf(err); got != want {
		t.Fatalf("%s error, want %s: %v", got, want, err)
	}
}
