//go:build linux && cgo

package sqlworker

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
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

// TestFilteredRows reads the rows of frames with given values, which the scan filters: texts
// of each length, integers, and nulls, at every position of a chunk.
func TestFilteredRows(t *testing.T) {
	f := newFolder(t, Options{})
	table := f.addTable("events", column(5, "key", event.String), column(6, "n", event.Int64))
	first := 0
	for _, rows := range []int{1, 2047, 2048, 2049, 5000} {
		fill := testRow(first)
		f.appendFrame(1, frameOf(table, rows, func(c manifest.Column, v *event.Vector, row int) {
			id := first + row
			switch c.Name {
			case "key":
				addText(v, strings.Repeat("k", id%20))
				v.Null[row] = uint8(id / 100 % 2)
			case "n":
				v.Ints = append(v.Ints, int64(id%7-3))
				v.Null[row] = uint8(id / 1000 % 2)
			default:
				fill(c, v, row)
			}
		}))
		first += rows
	}
	for _, where := range []string{
		`key = ''`, `key = 'k'`, `key = 'kkkkkkkkkkkk'`, `key = 'kkkkkkkkkkkkk'`, `key IN ('kkk', 'kkkkkkkkkkkkkkkkkkk', 'x')`, `key = 'x'`, `n = 0`, `n = -3`, `n IN (1, 2, 99)`, `n = 99`,
		`key = 'kk' AND n = 1`, `key IN ('', 'kkkk') AND n IN (-1, 3)`, `id = 0`, `id = ` + fmt.Sprint(first-1), `id IN (0, 1, 2047, 2048, 2049, 4095, 4096, 6145)`,
	} {
		chosen, all := `SELECT count(*), sum(id), count(n), min(key) FROM events WHERE `+where, `SELECT count(*), sum(id), count(n), min(key) FROM events WHERE (`+where+`) OR id = -1`
		if got, want := f.ask(chosen), f.ask(all); got != want {
			t.Errorf("%s: %s, want %s", where, got, want)
		}
	}
}
