//go:build cgo && lmdb

package coretest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSanitizers runs the C core, without Go, under the sanitizers of the C compiler: for memory
// and undefined behaviour, then for races between threads.
func TestSanitizers(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the core twice")
	}
	sources, err := filepath.Glob("../../*.c")
	if err != nil {
		t.Fatal(err)
	}
	for _, sanitizer := range []string{"address,undefined", "thread"} {
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
