package script

import "context"

// A Func is a function of Go that scripts call. A value is nil, a bool, a
// float64, a string, a json.Number for a number that no float64 holds, an []any
// or a map[string]any; results may also be any of Go's integers. Tables and
// documents are copied. An error, or a panic, is raised in the script as an error
// that pcall can catch.
//
// A Func is called by several goroutines at the same time. ctx ends when nobody
// waits for the batch any more.
type Func func(ctx context.Context, args []any) ([]any, error)

// A Module is what a script gets from require "name".
type Module struct {
	Name string
	// Functions may wait: for a network, a disk, a lock. The time they take is
	// not counted as the script's, and no thread is held while they wait.
	Functions map[string]Func
	// Pure functions only compute. Their time counts as the script's.
	Pure map[string]Func
}
