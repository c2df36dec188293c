package main

import (
	"path/filepath"
	"testing"
)

// TestPrograms runs every job of bench.lua on few nodes, with both Luas.
func TestPrograms(t *testing.T) {
	folder := t.TempDir()
	program, err := writeProgram(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range []interpreter{luaJIT, lua54} {
		t.Run(i.binary, func(t *testing.T) {
			found := modules{lua: "../../nodedb/lua", native: "../../.build/nodedb-lua"}
			lua, err := newLuaSide(i, program, found, filepath.Join(folder, i.binary))
			if err != nil {
				t.Skip(err)
			}
			b := bench{siblings: 20_000, operations: 20_000}
			jobs := b.jobs()
			for _, name := range []string{"leakNumbers", "leakNames", "identity", "growLoad", "growGet", "growSet", "growWalk"} {
				jobs = append(jobs, job{title: name, lua: name, count: 20_000, nodes: 20_000, batch: 20_000})
			}
			for _, j := range jobs {
				m, err := lua.run(t.Context(), j.lua, j.count, j.nodes, j.batch)
				if err != nil {
					t.Fatalf("%s: %v", j.title, err)
				}
				if m.operations != j.count || m.took <= 0 || m.found == "" || m.found == "nil" {
					t.Errorf("%s: %d operations in %v, found %q", j.title, m.operations, m.took, m.found)
				}
			}
		})
	}
}
