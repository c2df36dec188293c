//go:build linux && cgo

package logscan

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestScanStaysInVectors runs the scan without DuckDB under the sanitizers of the C compiler.
// DuckDB's own memory has slack after a vector, which would hide an overrun.
func TestScanStaysInVectors(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the scan")
	}
	program := filepath.Join(t.TempDir(), "scan")
	args := []string{"-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-fsanitize=address,undefined", "-fno-sanitize-recover=all",
		"-no-pie", "-Wl,--unresolved-symbols=ignore-all", // the test does not register the scan
		"-o", program, "testdata/scan.c", "-lpthread"}
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("compile: %v\n%s", err, out)
	}
	command := exec.Command(program)
	command.Env = append(command.Environ(), "ASAN_OPTIONS=detect_leaks=0") // its frames are allocated until it ends
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, strings.TrimSpace(string(out)))
	}
}
