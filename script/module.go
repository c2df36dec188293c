package script

import "context"

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
	// Pure functions only compute. Their time counts against the script's limits.
	Pure map[string]Func
}
