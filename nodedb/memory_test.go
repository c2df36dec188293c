//go:build cgo && lmdb

package nodedb

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// TestFailingMemory lets each allocation of each operation fail: the operation does all of its work,
// or nothing of it.
func TestFailingMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the core, without Go")
	}
	sources, err := filepath.Glob("*.c")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	program := filepath.Join(folder, "memory")
	args := append([]string{"-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-I../.build/lmdb/include", "-o", program, "testdata/memory.c"}, sources...)
	args = append(args, "-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc", "-L../.build/lmdb/lib", "-llmdb", "-lpthread", "-lm")
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("compile: %v\n%s", err, out)
	}
	out, err := exec.Command(program, filepath.Join(folder, "store")).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}
