//go:build cgo && luajit

package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/perigeedb/perigee/internal/luajit/torture"
)

// Memory limits of the sweep: from one that barely suffices to open a VM, upward, in steps that are
// not aligned with the allocator's sizes.
const (
	limitCount = 200
	firstLimit = 150 << 10
	limitStep  = 61_003

	nodesOfSweep = 1000
)

// sweepMemoryLimits runs the scripts that allocate under many memory limits, compiled.
func sweepMemoryLimits() int {
	var allocating []torture.Script
	for _, s := range torture.Scripts() {
		if strings.Contains(strings.Join(s.AllowedEnds, ","), "memory") {
			allocating = append(allocating, s)
		}
	}
	folder, err := fillStore(nodesOfSweep)
	if err != nil {
		fmt.Println("FAIL", err)
		return 1
	}
	defer os.RemoveAll(folder)
	crashes := 0
	for i := range limitCount {
		script := allocating[i%len(allocating)]
		limit := firstLimit + i*limitStep
		if out, err := runChild(script.Name, "compiled", limit, folder); err != nil {
			crashes++
			fmt.Printf("FAIL %s with a limit of %d bytes: %v: %s\n", script.Name, limit, err, out)
		}
	}
	fmt.Printf("figure oom_sweep_limits %d\nfigure oom_sweep_crashes %d\n", limitCount, crashes)
	return min(crashes, 1)
}
