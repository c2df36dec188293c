//go:build cgo

package main

import (
	"fmt"
	"strings"

	"github.com/perigeedb/perigee/internal/luajit/torture"
)

// Limits of the sweep: from a VM that just opens to one that holds a lot, in
// steps that fall on no boundary of the allocator.
const (
	limits    = 200
	least     = 150 << 10
	increment = 61_003
)

// sweep runs the scripts that allocate under many memory limits, compiled.
func sweep() int {
	var allocating []torture.Script
	for _, s := range torture.Scripts() {
		if strings.Contains(strings.Join(s.Ends, ","), "memory") {
			allocating = append(allocating, s)
		}
	}
	crashes := 0
	for i := range limits {
		script := allocating[i%len(allocating)]
		limit := least + i*increment
		if out, err := spawn(script.Name, "compiled", limit); err != nil {
			crashes++
			fmt.Printf("FAIL %s with a limit of %d bytes: %v: %s\n", script.Name, limit, err, out)
		}
	}
	fmt.Printf("figure oom_sweep_limits %d\nfigure oom_sweep_crashes %d\n", limits, crashes)
	return min(crashes, 1)
}
