package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/pipeline"
)

// killVariable makes the engine kill itself, for "perigee verify". Its value is a list of
// POINT:N, separated by commas. Each kills the process when its pipelines reach a point for
// the Nth time in total.
const killVariable = "PERIGEE_KILL_AT"

// killAt returns a function that kills this process as text says, or nil if text is
// empty.
func killAt(text string) (func(pipeline.Point), error) {
	if text == "" {
		return nil, nil
	}
	left := make(map[pipeline.Point]*atomic.Int64)
	for _, part := range strings.Split(text, ",") {
		name, number, _ := strings.Cut(part, ":")
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || n < 1 || !slices.Contains(killPoints, pipeline.Point(name)) {
			return nil, event.WithHint(fmt.Errorf("invalid %q in %s: use POINT:N", part, killVariable),
				fmt.Sprintf("points are %v; N counts from 1", killPoints))
		}
		left[pipeline.Point(name)] = new(atomic.Int64)
		left[pipeline.Point(name)].Store(n)
	}
	return func(at pipeline.Point) {
		if n := left[at]; n != nil && n.Add(-1) == 0 {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // wait for the signal
		}
	}, nil
}

// killPoints are the points of all pipelines.
var killPoints = append(pipeline.Points(), pipeline.AfterNote)
