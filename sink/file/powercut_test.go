package file

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/powercut"
	"github.com/perigeedb/perigee/sink"
)

// powercutFolder makes the test's process a program that is recorded, in the mode that
// powercutMode names.
const (
	powercutFolder = "FILE_POWERCUT"
	powercutMode   = "FILE_POWERCUT_MODE"
)

// modes are the settings that change how files are written. In "short" there is one run.
var modes = map[string]Config{
	"short":  {Bytes: 900},
	"none":   {Bytes: 900},
	"gzip":   {Bytes: 700, Pack: "gzip"},
	"zstd":   {Bytes: 700, Pack: "zstd"},
	"any":    {Bytes: 900, Order: "any"},
	"large":  {Bytes: 1 << 20},
	"by age": {Age: time.Nanosecond},
}

func newMode(folder, mode string) (*Sink, error) {
	c := modes[mode]
	c.Folder = filepath.Join(folder, "rows")
	return New(sink.Env{Pipeline: "p", Log: slog.New(slog.DiscardHandler)}, c)
}

// writeAndEnd writes batches of two partitions in several runs. One run ends without Close. It
// prints each range once Write has returned, and repeats writes that fail.
func writeAndEnd(folder, mode string) error {
	runtime.LockOSThread() // strace counts calls by thread
	next := map[string]uint64{}
	runs := 4
	if mode == "short" {
		runs = 1
	}
	for run := range runs {
		s, err := newMode(folder, mode)
		if err != nil {
			return err
		}
		for _, partition := range []string{"a", "b"} {
			if err := writeSome(s, partition, next); err != nil {
				return err
			}
		}
		if run != 1 {
			if err := s.Close(); err != nil {
				fmt.Println("failed", err)
			}
		}
	}
	return nil
}

func writeSome(s *Sink, partition string, next map[string]uint64) error {
	w, done, err := s.Open(context.Background(), partition)
	if err != nil {
		fmt.Println("failed", err)
		if w, done, err = s.Open(context.Background(), partition); err != nil {
			return err
		}
	}
	if done.Next(0) < next[partition] {
		return fmt.Errorf("partition %s has %v, want it up to %d", partition, done, next[partition])
	}
	next[partition] = done.Next(0) // of a process that was killed
	for i := range 6 {
		count := uint64(1 + 3*i%5)
		out := rows(partition, next[partition], count)
		if err := w.Write(context.Background(), out); err != nil {
			fmt.Println("failed", err)
			if err := w.Write(context.Background(), out); err != nil {
				return err
			}
		}
		fmt.Println("written", partition, next[partition], count)
		next[partition] += count
	}
	return w.Close()
}

func row(partition string, n uint64) string {
	return fmt.Sprintf(`{"p":%q,"n":%d,"x":"%x"}`, partition, n, n*0x9e3779b97f4a7c15)
}

func rows(partition string, first, count uint64) *event.Output {
	out := &event.Output{Partition: partition, Range: event.Range{First: first, Count: count}}
	for i := range count {
		out.Data = append(out.Data, row(partition, first+i)...)
		out.Ends = append(out.Ends, uint32(len(out.Data)))
		out.From = append(out.From, uint32(i))
	}
	return out
}

func writeRun(folder, mode, fault string) powercut.Run {
	return powercut.SelfRun(fault, powercutFolder+"="+folder, powercutMode+"="+mode)
}

// TestPowerCut cuts the power while files are written and sealed.
func TestPowerCut(t *testing.T) {
	for mode := range modes {
		t.Run(mode, func(t *testing.T) {
			folder := t.TempDir()
			powercut.Record(t, folder, writeRun(folder, mode, "")).EachCut(t, 100, checkFiles(mode))
		})
	}
}

// TestPowerCutLosesOne loses each single change that is not synced at some moment.
func TestPowerCutLosesOne(t *testing.T) {
	folder := t.TempDir()
	powercut.Record(t, folder, writeRun(folder, "short", "")).EachLoss(t, checkFiles("short"))
}

// TestFailedSync lets one sync fail, and later ones not make up for it.
func TestFailedSync(t *testing.T) {
	for n := range powercut.SomeOf(40) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			folder := t.TempDir()
			powercut.Record(t, folder, writeRun(folder, "none", fmt.Sprintf("fsync:error=EIO:when=%d", n))).EachCut(t, 20, checkFiles("none"))
		})
	}
}

// TestFailedSyncLosesOne loses each single change behind a sync that failed, too.
func TestFailedSyncLosesOne(t *testing.T) {
	for n := range powercut.SomeOf(20) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			folder := t.TempDir()
			powercut.Record(t, folder, writeRun(folder, "short", fmt.Sprintf("fsync:error=EIO:when=%d", n))).EachLoss(t, checkFiles("short"))
		})
	}
}

// TestFailingDisk lets one call of a short run fail, and cuts the power later: what failed
// says which file it was, and is done again.
func TestFailingDisk(t *testing.T) {
	for fault, calls := range map[string]int{
		"pwrite64:error=ENOSPC": 20, "write:error=ENOSPC": 14, "ftruncate:error=EIO": 8,
		"rename,renameat,renameat2:error=EIO":                           4,
		"pwrite64:error=EIO:when=7 rename,renameat,renameat2:error=EIO": 3,
	} {
		for n := range powercut.SomeOf(calls) {
			t.Run(fmt.Sprint(fault, n), func(t *testing.T) {
				folder := t.TempDir()
				recording := powercut.Record(t, folder, writeRun(folder, "short", fmt.Sprintf("%s:when=%d", fault, n)))
				for _, line := range recording.Said() {
					if strings.HasPrefix(line, "failed") && !strings.Contains(line, filepath.Join(folder, "rows")) {
						t.Errorf("%s: it does not say which file", line)
					}
				}
				recording.EachCut(t, 10, checkFiles("short"))
			})
		}
	}
}

// TestLyingSync has syncs do nothing and say that all is well, and cuts the power. Written
// rows may be gone, and a file may have holes, which are no rows. The sink goes on, or says
// which file is damaged. Each row that is in a file was written, and is there once.
func TestLyingSync(t *testing.T) {
	for _, from := range []int{1, 20} {
		t.Run(fmt.Sprint(from), func(t *testing.T) {
			folder := t.TempDir()
			run := writeRun(folder, "none", fmt.Sprintf("fsync,fdatasync:retval=0:when=%d+", from))
			wentOn := 0
			powercut.Record(t, folder, run).EachCut(t, 150, func(t *testing.T, folder string, _ []string) {
				err := writeMore(t, folder)
				var damage *event.PermanentError
				switch {
				case err == nil:
					wentOn++
				case !errors.As(err, &damage) || damage.Hint == "" || !strings.Contains(err.Error(), folder+"/"):
					t.Errorf("%v: it does not say which file is damaged, and what to do", err)
				}
				checkLinesAfterLies(t, filepath.Join(folder, "rows"))
			})
			if wentOn < 30 {
				t.Errorf("%d sinks went on", wentOn)
			}
		})
	}
}

// writeMore writes rows behind those that the journal has.
func writeMore(t *testing.T, folder string) (err error) {
	s, err := newMode(folder, "none")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	for _, partition := range []string{"a", "b"} {
		w, ranges, err := s.Open(t.Context(), partition)
		if err != nil {
			return err
		}
		if err := w.Write(t.Context(), rows(partition, ranges.Next(0), 2)); err != nil {
			return err
		}
	}
	return nil
}

func checkLinesAfterLies(t *testing.T, folder string) {
	seen := map[string]bool{}
	for _, line := range lines(t, folder) {
		var is struct {
			P string
			N uint64
		}
		if err := json.Unmarshal([]byte(line), &is); err != nil && strings.Contains(line, "\x00") {
			continue // a hole
		} else if err != nil || line != row(is.P, is.N) {
			t.Errorf("%q is in a file, and was never written", line)
		}
		if seen[line] {
			t.Errorf("%q is there twice", line)
		}
		seen[line] = true
	}
}

// TestKillAndPowerCut kills the process at a sync, and cuts the power while another process
// goes on.
func TestKillAndPowerCut(t *testing.T) {
	for n := range powercut.SomeOf(40) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			folder := t.TempDir()
			powercut.Record(t, folder, writeRun(folder, "none", fmt.Sprintf("fsync:signal=KILL:when=%d", n)), writeRun(folder, "none", "")).EachCut(t, 20, checkFiles("none"))
		})
	}
}

// checkSize returns an error if the journal has more than its records.
func (j *journal) checkSize() error {
	info, err := j.file.Stat()
	if err == nil && info.Size() != j.read {
		err = fmt.Errorf("the journal has %d bytes of records and %d in all", j.read, info.Size())
	}
	return err
}

// checkFiles opens the files that a power cut has left. Ranges that were written are there,
// and each row of the ranges that are there is in one file, once.
func checkFiles(mode string) func(t *testing.T, folder string, said []string) {
	return func(t *testing.T, folder string, said []string) {
		s, err := newMode(folder, mode)
		if err != nil {
			t.Fatal(err)
		}
		done := map[string]event.Ranges{}
		for _, partition := range []string{"a", "b"} {
			w, ranges, err := s.Open(t.Context(), partition)
			if err != nil {
				t.Fatal(err)
			}
			if len(said)%2 == 0 { // seals what is there
				done[partition] = ranges
				continue
			}
			next := ranges.Next(0)
			if err := w.Write(t.Context(), rows(partition, next, 2)); err != nil { // goes on
				t.Errorf("a write after the power cut: %v", err)
			}
			ranges.Add(event.Range{First: next, Count: 2})
			done[partition] = ranges
		}
		if err := s.journal.withLock(s.journal.checkSize); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if _, open := sealedAndOpen(t, filepath.Join(folder, "rows")); open > 0 {
			t.Errorf("%d files are open after the end", open)
		}
		for _, line := range said {
			var partition string
			var first, count uint64
			if n, _ := fmt.Sscanf(line, "written %s %d %d", &partition, &first, &count); n == 3 && !done[partition].Covers(first, first+count) {
				t.Errorf("%s, and the journal has %v", line, done[partition])
			}
		}
		want := 0
		for partition, ranges := range done {
			for _, r := range ranges {
				want += int(r.Count)
				if r.First != 0 {
					t.Errorf("partition %s has %v", partition, ranges)
				}
			}
		}
		seen := map[string]bool{}
		for _, line := range lines(t, filepath.Join(folder, "rows")) {
			var is struct {
				P string
				N uint64
			}
			if err := json.Unmarshal([]byte(line), &is); err != nil || line != row(is.P, is.N) || !done[is.P].Has(is.N) {
				t.Errorf("%q is in a file, and does not count", line)
			}
			if seen[line] {
				t.Errorf("%q is there twice", line)
			}
			seen[line] = true
		}
		if len(seen) != want {
			t.Errorf("%d rows are there, the journal counts %d", len(seen), want)
		}
	}
}

// TestFullDisk writes to a full disk: that is an error, and the same rows are written when
// there is room.
func TestFullDisk(t *testing.T) {
	disk := powercut.SmallDisk(t, 1<<20)
	if disk == "" {
		return
	}
	ballast := filepath.Join(disk, "ballast")
	s := newSink(t, "p", Config{Folder: filepath.Join(disk, "rows"), Bytes: 30_000})
	w, _, err := s.Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	next := uint64(0)
	for room := int64(0); room < 60<<10; room += 4 << 10 {
		powercut.Fill(t, ballast, room)
		for err = nil; err == nil; {
			if err = w.Write(t.Context(), rows("a", next, 20)); err == nil {
				next += 20
			}
		}
		for range 3 {
			if !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("position %d: %v", next, err)
			}
			err = w.Write(t.Context(), rows("a", next, 20))
		}
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		if err := w.Write(t.Context(), rows("a", next, 1)); err != nil { // less than the disk took
			t.Fatalf("with room: %v", err)
		}
		next++
		if info, err := s.journal.data.Stat(); err != nil || info.Size() != s.journal.state.Size {
			t.Errorf("the open file has %d bytes, want the %d that count, %v", info.Size(), s.journal.state.Size, err)
		}
	}
	if err := errors.Join(w.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	got := lines(t, s.files.folder)
	for i, line := range got {
		if line != row("a", uint64(i)) {
			t.Fatalf("line %d is %s", i, line)
		}
	}
	if uint64(len(got)) != next {
		t.Errorf("%d lines, and %d were written", len(got), next)
	}
}
