package changelog

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/perigeedb/perigee/internal/powercut"
	"github.com/perigeedb/perigee/sink"
)

// powercutFolder makes the test's process a program that is recorded.
const powercutFolder = "CHANGELOG_POWERCUT"

// notes is how many it writes.
const notes = 25

// writeAndTrim writes notes of one unit, repeats what fails, and trims those more than 5 behind.
// It prints what is committed once WriteNote has returned.
func writeAndTrim(folder string) error {
	runtime.LockOSThread() // strace counts calls by thread
	ctx := context.Background()
	s, err := Open(folder)
	if err != nil {
		fmt.Println("failed", err)
		if s, err = Open(folder); err != nil {
			return err
		}
	}
	to := s.Sink("p", nil)
	unit, err := to.OpenUnit(ctx, "u")
	if err != nil {
		fmt.Println("failed", err)
		if unit, err = to.OpenUnit(ctx, "u"); err != nil {
			return err
		}
	}
	w, _, err := to.Open(ctx, "a")
	if err != nil {
		fmt.Println("failed", err)
		if w, _, err = to.Open(ctx, "a"); err != nil {
			return err
		}
	}
	for number := uint64(1); number <= notes; number++ {
		for range 3 {
			if err = w.(sink.NoteWriter).WriteNote(ctx, output(number), unit, noteOf(number)); err == nil {
				break
			}
			fmt.Println("failed", err)
		}
		if err != nil {
			return err
		}
		fmt.Println("committed", number)
		if number > 5 {
			fmt.Println("trimming", number-5)
			if err := unit.Trim(ctx, number-5); err != nil {
				fmt.Println("failed", err)
			}
		}
	}
	return s.Close()
}

func run(folder, fault string) powercut.Run {
	return powercut.SelfRun(fault, powercutFolder+"="+folder)
}

// checkChangelog opens the changelog that a power cut has left: ranges and notes go up to the same
// number, at least that of the last note that was committed, and goes on.
func checkChangelog(t *testing.T, folder string, said []string) {
	var last, trimmed uint64
	for _, line := range said {
		_, _ = fmt.Sscanf(line, "committed %d", &last)
		_, _ = fmt.Sscanf(line, "trimming %d", &trimmed)
	}
	if _, err := os.Stat(filepath.Join(folder, FileName)); err != nil && last == 0 {
		return
	}
	s := open(t, folder)
	w, committed, unit := openUnit(t, s)
	status, err := unit.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if status.Last < last || status.First > max(trimmed, 1) || len(committed) > 0 != (status.Last > 0) || !committed.Covers(0, status.Last) || committed.Has(status.Last) {
		t.Fatalf("notes %d to %d and events %v are there; note %d was committed, and those before %d were trimmed", status.First, status.Last, committed, last, trimmed)
	}
	next := status.First
	err = unit.Notes(t.Context(), 0, func(n *sink.Note) error {
		if want := noteOf(next); n.Number != next || n.Sum != want.Sum || !bytes.Equal(n.Data, want.Data) {
			t.Errorf("note %d is not what was written as note %d", n.Number, next)
		}
		next++
		return nil
	})
	if err != nil || next != status.Last+1 {
		t.Errorf("%v after note %d, want notes up to %d", err, next-1, status.Last)
	}
	if err := w.WriteNote(t.Context(), output(next), unit, noteOf(next)); err != nil {
		t.Errorf("the next note: %v", err)
	}
}

func TestPowerCut(t *testing.T) {
	folder := t.TempDir()
	powercut.Record(t, folder, run(folder, "")).EachCut(t, 100, checkChangelog)
}

// TestFailedSync lets one sync fail: the note is committed with its range, or neither is.
func TestFailedSync(t *testing.T) {
	for n := range powercut.SomeOf(2 * notes) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			folder := t.TempDir()
			powercut.Record(t, folder, run(folder, fmt.Sprintf("fdatasync:error=EIO:when=%d", n))).EachCut(t, 20, checkChangelog)
		})
	}
}
