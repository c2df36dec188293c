package script

import (
	"context"
	"errors"
)

// A Func is a Go function that scripts call. A value is nil, a bool, a float64, a string,
// a json.Number for a number that a float64 cannot hold, a []any or a map[string]any;
// results may also be Go integers. Tables and documents are copied. An error or a panic
// is raised in the script as an error that pcall can catch.
//
// Several goroutines call a Func at the same time. ctx ends when the batch is cancelled.
type Func func(ctx context.Context, args []any) ([]any, error)

// A Module is what require "name" returns in a script.
type Module struct {
	Name string
	// Functions may wait: for a network, a disk, a lock. Their time does not count
	// against the script's limits, and they hold no thread while they wait.
	Functions map[string]Func
	// Pure functions only compute. Their time counts against the script's limits, and so do
	// their results against its memory. ctx is valid during the call only; its Err ends with the
	// script's time, though its Done need not. A function that can take long asks Err again
	// and again; one that can return much asks MemoryLeft.
	Pure map[string]Func
}

// ErrMemory is returned by a Func whose results would exceed the memory of the script.
var ErrMemory = errors.New("the results exceed the memory limit of the script")

const defaultMemory = 64 << 20

// A memoryContext is the context of a Pure function.
type memoryContext interface{ MemoryLeft() int }

// MemoryLeft returns how many bytes the script that calls a Pure function may still have, and
// a default where ctx belongs to no script.
func MemoryLeft(ctx context.Context) int {
	if c, ok := ctx.(memoryContext); ok {
		return c.MemoryLeft()
	}
	return defaultMemory
}
