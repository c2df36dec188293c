package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

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
var killPoints = slices.Compact(slices.Sorted(slices.Values(append(pipeline.Points(), pipeline.StatePoints()...))))

// flushAgeVariable makes changes of states wait for the disk as long as it says, so that tests
// kill the engine while it writes them.
const flushAgeVariable = "PERIGEE_STATE_FLUSH_AGE"

// flushAge parses the value of flushAgeVariable; 0 if it is empty.
func flushAge(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	age, err := time.ParseDuration(text)
	if err != nil || age <= 0 {
		return 0, event.WithHint(fmt.Errorf("invalid %q in %s", text, flushAgeVariable), "use a duration such as 50ms")
	}
	return age, nil
}
