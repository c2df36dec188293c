//go:build cgo && lmdb

package coretest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// coreObjects is the folder of the compiled core, which TestMain removes; "" until it is first
// used.
var coreObjects string

// compileCore compiles the core without Go, once for all programs.
var compileCore = sync.OnceValues(func() (objects []string, err error) {
	sources, err := filepath.Glob("../../*.c")
	if err != nil {
		return nil, err
	}
	if coreObjects, err = os.MkdirTemp("", "perigee-core-"); err != nil {
		return nil, err
	}
	here, err := filepath.Abs(".")
	if err != nil {
		return nil, err
	}
	args := []string{"-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-I" + filepath.Join(here, "../../../.build/lmdb/include"), "-c"}
	for _, source := range sources {
		args = append(args, filepath.Join(here, source))
	}
	compiler := exec.Command("gcc", args...)
	compiler.Dir = coreObjects // gcc writes the objects where it runs
	if out, err := compiler.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compile the core: %v\n%s", err, out)
	}
	return filepath.Glob(filepath.Join(coreObjects, "*.o"))
})

// buildProgram compiles a C program, links the core to it and returns its path.
func buildProgram(t *testing.T, source string, flags ...string) string {
	t.Helper()
	objects, err := compileCore()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "program")
	args := append([]string{"-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-I../..", "-I../../../.build/lmdb/include", "-o", program, source}, objects...)
	args = append(append(args, flags...), "-L../../../.build/lmdb/lib", "-llmdb", "-lpthread", "-lm")
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("compile %s: %v\n%s", source, err, out)
	}
	return program
}

// TestFailingMemory makes each allocation of each operation fail: the operation must do all of its
// work, or none.
func TestFailingMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the core, without Go")
	}
	program := buildProgram(t, "testdata/memory.c", "-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc")
	out, err := exec.Command(program, filepath.Join(t.TempDir(), "store")).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}
