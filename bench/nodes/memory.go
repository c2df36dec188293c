package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
)

// keptNodes is how many nodes the test of identity keeps.
const keptNodes = 1000

// A memory tells what nodes cost that come and go.
type memory struct {
	leak     map[string]float64 // kilobytes by which the heap grew at most, by Lua and job
	identity map[string]int     // kept nodes that were the same object when reached again, by Lua
}

// measureMemory makes millions of children under a parent that is held, and reaches kept
// nodes again after the collector ran.
func (b *bench) measureMemory(ctx context.Context, folder string) (*memory, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	m := &memory{leak: map[string]float64{}, identity: map[string]int{}}
	for _, i := range []interpreter{luaJIT, lua54} {
		showProgress("memory: %s", i.binary)
		lua, err := b.luaSide(i, folder)
		if err != nil {
			return nil, err
		}
		for _, job := range []string{"leakNumbers", "leakNames"} {
			found, err := lua.run(ctx, job, b.children)
			if err != nil {
				return nil, err
			}
			if m.leak[i.binary+" "+job], err = strconv.ParseFloat(found.found, 64); err != nil {
				return nil, err
			}
		}
		found, err := lua.run(ctx, "identity", keptNodes)
		if err != nil {
			return nil, err
		}
		if m.identity[i.binary], err = strconv.Atoi(found.found); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *memory) print(w io.Writer) {
	worst, least := 0.0, math.MaxInt
	for _, name := range slices.Sorted(maps.Keys(m.leak)) {
		fmt.Fprintf(w, "%s: the heap grew by %.0f KB at most\n", name, m.leak[name])
		worst = max(worst, m.leak[name])
	}
	for _, same := range m.identity {
		least = min(least, same)
	}
	fmt.Fprintf(w, "figure leak_kb %.0f\nfigure identity_kept %d\n", worst, least)
}
