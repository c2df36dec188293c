//go:build cgo && lmdb

package coretest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/internal/testsize"
)

// TestSanitizers runs the C core, without Go, under the sanitizers of the C compiler: for memory
// and undefined behaviour in long tests alone, as make nodes-asan finds the same, and for races
// between threads.
func TestSanitizers(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the core twice")
	}
	sources, err := filepath.Glob("../../*.c")
	if err != nil {
		t.Fatal(err)
	}
	sanitizers := []string{"thread"}
	if testsize.Long() {
		sanitizers = append(sanitizers, "address,undefined")
	}
	for _, sanitizer := range sanitizers {
		t.Run(sanitizer, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			program := filepath.Join(folder, "core")
			args := []string{"-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-fsanitize=" + sanitizer, "-fno-sanitize-recover=all",
				"-I../../../.build/lmdb/include", "-o", program, "testdata/core.c"}
			args = append(args, sources...)
			args = append(args, "-L../../../.build/lmdb/lib", "-llmdb", "-lpthread", "-lm")
			if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
				t.Fatalf("compile: %v\n%s", err, out)
			}
			command := exec.Command(program, filepath.Join(folder, "store"))
			command.Env = append(os.Environ(), "TSAN_OPTIONS=halt_on_error=1")
			if out, err := command.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, strings.TrimSpace(string(out)))
			}
		})
	}
}
