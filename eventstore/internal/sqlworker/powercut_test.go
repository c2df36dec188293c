//go:build linux && cgo

package sqlworker

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/internal/powercut"
)

// powercutFolder makes the test's process a program that is recorded.
const powercutFolder = "SQLWORKER_POWERCUT"

// A program stands in for a test where a test's helpers are used outside of one.
type program struct {
	testing.TB
	folder string
}

func (program) Helper()                  {}
func (program) Cleanup(func())           {}
func (program) Context() context.Context { return context.Background() }
func (p program) TempDir() string        { return p.folder }

func (p program) Errorf(format string, args ...any) { p.Fatal(fmt.Sprintf(format, args...)) }

func (program) Fatal(args ...any) {
	fmt.Fprintln(os.Stderr, args...)
	os.Exit(1)
}

// sealAndMerge seals two files of a log, of two days each, and merges what came of them. It
// says what the manifest has.
func sealAndMerge(folder string) {
	f := newFolder(program{folder: folder}, Options{Threads: 1})
	defer f.client.Close()
	f.logSize = 64 << 10
	table := f.addTable("events", column(5, "key", event.String))
	table.Bloom = []string{"key"}
	const day = 86400
	for number := range uint64(2) {
		f.appendFrame(number+1, frameOf(table, 20, testRow(day-10)))
		f.seal(number + 1)
		fmt.Println("sealed")
	}
	f.mergeAll(table)
	fmt.Println("merged")
}

// TestPowerCutLosesOne cuts the power at every moment of sealing and merging, and loses one
// write, name or file that is not synced: each file that the manifest has is whole.
func TestPowerCutLosesOne(t *testing.T) {
	folder := t.TempDir()
	recording := powercut.Record(t, folder, powercut.SelfRun("", powercutFolder+"="+folder))
	if said := strings.Join(recording.Said(), " "); said != "sealed sealed merged" {
		t.Fatalf("the program says %q", said)
	}
	recording.EachLoss(t, func(t *testing.T, after string, said []string) {
		m, err := manifest.Load(after)
		if os.IsNotExist(err) && len(said) == 0 {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		files := 0
		for path := range m.Files(after) {
			files++
			name, err := filepath.Rel(after, path)
			if err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(filepath.Join(folder, name))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
				t.Errorf("the manifest has %s with %d bytes, and the disk %d of them, %v", name, len(want), len(got), err)
			}
		}
		if least := 4 * min(len(said), 1); files < least || len(said) == 2 && files < 8 && files != 4 {
			t.Errorf("the manifest names %d files after %q", files, said)
		}
	})
}
