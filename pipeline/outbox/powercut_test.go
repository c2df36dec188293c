package outbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/internal/boltfile"
	"github.com/perigeedb/perigee/internal/datafolder"
	"github.com/perigeedb/perigee/internal/powercut"
)

// powercutFolder makes the test's process a program that is recorded.
const powercutFolder = "OUTBOX_POWERCUT"

// short makes it end early: it tests each single loss.
const short = "OUTBOX_SHORT=yes"

// putAndRemove stores and removes entries in the data folder that it makes. It prints what
// is stored once Put has returned, and what is removed once Remove has. It repeats
// calls that fail on the open store, and then on one that is opened again.
func putAndRemove(folder string) error {
	runtime.LockOSThread() // strace counts calls by thread
	entries := uint64(25)
	if slices.Contains(os.Environ(), short) {
		entries = kept + 2
	}
	folder = filepath.Join(folder, "made", "data")
	lock, err := datafolder.Lock(folder)
	if err != nil {
		fmt.Println("failed", err)
		if lock, err = datafolder.Lock(folder); err != nil {
			return err
		}
	}
	defer lock.Close()
	s, err := Open(folder)
	if err != nil {
		fmt.Println("failed", err)
		if s, err = Open(folder); err != nil {
			return err
		}
	}
	for first := range entries {
		for try := 0; ; try++ {
			if err = s.Put(large(first)); err == nil {
				break
			}
			fmt.Println("failed", err)
			if try == 2 {
				return err
			}
			if try == 1 {
				_ = s.Close()
				if s, err = Open(folder); err != nil {
					return err
				}
			}
		}
		fmt.Println("stored", first)
		if first >= kept {
			s.Remove("p", "a", first-kept)
			fmt.Println("removed", first-kept)
		}
	}
	return s.Close()
}

// large is an entry of several pages now and then.
func large(first uint64) *Entry {
	e := entryOf("p", "a", first)
	e.Result.Outputs[2].Data = []byte(strings.Repeat(fmt.Sprint(first), int(first%5)*1000+1))
	return e
}

// differences is cmp.Diff, which takes milliseconds for equal entries of thousands of bytes.
func differences(want, got *Entry) string {
	if reflect.DeepEqual(want, got) {
		return ""
	}
	return cmp.Diff(want, got)
}

func putRun(folder, fault string, environ ...string) powercut.Run {
	return powercut.SelfRun(fault, append(environ, powercutFolder+"="+folder)...)
}

// TestPowerCut cuts the power while entries are stored and removed.
func TestPowerCut(t *testing.T) {
	folder := t.TempDir()
	powercut.Record(t, folder, putRun(folder, "")).EachCut(t, 200, checkOutbox)
}

// TestPowerCutLosesOne loses each single change that is not synced at some moment.
func TestPowerCutLosesOne(t *testing.T) {
	folder := t.TempDir()
	powercut.Record(t, folder, putRun(folder, "", short)).EachLoss(t, checkOutbox)
}

// TestFailedSync lets one sync fail, and later ones not make up for it.
func TestFailedSync(t *testing.T) {
	for _, call := range []string{"fsync", "fdatasync"} {
		for n := range powercut.SomeOf(map[string]int{"fsync": 5, "fdatasync": 40}[call]) {
			t.Run(fmt.Sprint(call, n), func(t *testing.T) {
				folder := t.TempDir()
				powercut.Record(t, folder, putRun(folder, fmt.Sprintf("%s:error=EIO:when=%d", call, n))).EachCut(t, 20, checkOutbox)
			})
		}
	}
}

// TestFailedSyncLosesOne loses each single change behind a sync that failed, too.
func TestFailedSyncLosesOne(t *testing.T) {
	for call, calls := range map[string]int{"fsync": 5, "fdatasync": 12} {
		for n := range powercut.SomeOf(calls) {
			t.Run(fmt.Sprint(call, n), func(t *testing.T) {
				folder := t.TempDir()
				run := putRun(folder, fmt.Sprintf("%s:error=EIO:when=%d", call, n), short)
				powercut.Record(t, folder, run).EachLoss(t, checkOutbox)
			})
		}
	}
}

// TestFailedWrite lets one write fail.
func TestFailedWrite(t *testing.T) {
	for n := range powercut.SomeOf(60) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			folder := t.TempDir()
			powercut.Record(t, folder, putRun(folder, fmt.Sprintf("pwrite64:error=ENOSPC:when=%d", n))).EachCut(t, 10, checkOutbox)
		})
	}
}

// TestLyingSync has syncs do nothing and say that all is well, and cuts the power. Stored
// entries may be gone. The outbox opens, or says that it is damaged; it has only entries that
// were stored, once and whole, and goes on.
func TestLyingSync(t *testing.T) {
	for _, from := range []int{1, 12} {
		t.Run(fmt.Sprint(from), func(t *testing.T) {
			folder := t.TempDir()
			fault, wentOn := fmt.Sprintf("fsync,fdatasync:retval=0:when=%d+", from), 0
			powercut.Record(t, folder, putRun(folder, fault)).EachCut(t, 100, func(t *testing.T, folder string, _ []string) {
				folder = filepath.Join(folder, "made", "data")
				if err := os.MkdirAll(folder, 0o700); err != nil { // its name may be gone
					t.Fatal(err)
				}
				s, err := Open(folder)
				if err != nil {
					if !errors.Is(err, boltfile.ErrDamaged) || !strings.Contains(err.Error(), filepath.Join(folder, FileName)) {
						t.Errorf("%v: it does not say which file is damaged", err)
					}
					return
				}
				defer s.Close()
				seen := map[uint64]bool{}
				for e, err := range s.Entries("p", "a") {
					if err != nil {
						if !errors.Is(err, boltfile.ErrDamagedValue) {
							t.Errorf("%v: it does not say what is damaged", err)
						}
						return
					}
					first := e.Batch.Range.First
					if diff := differences(large(first), e); diff != "" || seen[first] {
						t.Errorf("entry %d is not whole, or there twice: %s", first, diff)
					}
					seen[first] = true
				}
				if err := s.Put(large(99)); err != nil {
					t.Errorf("store an entry after the power cut: %v", err)
				}
				wentOn++
			})
			if wentOn < 20 {
				t.Errorf("%d outboxes went on", wentOn)
			}
		})
	}
}

// checkOutbox opens the outbox that a power cut has left: it has all entries that were
// stored and not removed, whole, and none that was removed before a Put returned.
func checkOutbox(t *testing.T, folder string, said []string) {
	folder = filepath.Join(folder, "made", "data")
	lock, err := datafolder.Lock(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	s := open(t, folder)
	defer closed(t, s)
	found := map[uint64]bool{}
	for _, e := range all(t, s, "p", "a") {
		found[e.Batch.Range.First] = true
		if diff := differences(large(e.Batch.Range.First), e); diff != "" {
			t.Errorf("entry %d is not whole: %s", e.Batch.Range.First, diff)
		}
	}
	removed := map[uint64]bool{} // or perhaps
	var stored, durable []uint64
	for _, line := range said {
		var first uint64
		if n, _ := fmt.Sscanf(line, "stored %d", &first); n == 1 {
			stored = append(stored, first)
			durable = durable[:0]
			for r := range removed {
				durable = append(durable, r)
			}
		}
		if n, _ := fmt.Sscanf(line, "removed %d", &first); n == 1 {
			removed[first] = true
		}
	}
	if n := len(stored); n > 0 && stored[n-1] >= kept { // Remove may have begun
		removed[stored[n-1]-kept] = true
	}
	for _, first := range stored {
		if !found[first] && !removed[first] {
			t.Errorf("entry %d was stored and is gone", first)
		}
	}
	for _, first := range durable {
		if found[first] {
			t.Errorf("entry %d was removed for good and is there", first)
		}
	}
	if err := s.Put(large(99)); err != nil {
		t.Errorf("store an entry after the power cut: %v", err)
	}
}

// TestFullDisk stores on a full disk: that is an error, and the same entry is stored when
// there is room. Removals are not forgotten.
func TestFullDisk(t *testing.T) {
	disk := powercut.SmallDisk(t, 1<<20)
	if disk == "" {
		return
	}
	folder, ballast := filepath.Join(disk, "data"), filepath.Join(disk, "ballast")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	s := open(t, folder)
	next, oldest := uint64(0), uint64(0)
	for room := int64(0); room < 60<<10; room += 12 << 10 {
		powercut.Fill(t, ballast, room)
		var err error
		for err == nil {
			if err = s.Put(large(next)); err == nil {
				next++
			}
		}
		if next > oldest {
			s.Remove("p", "a", oldest)
			oldest++
		}
		for range 3 { // the removal may have given room
			if err == nil {
				next++
			} else if !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("entry %d: %v", next, err)
			}
			err = s.Put(large(next))
		}
		if err == nil {
			next++
		}
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		if err := s.Put(large(next)); err != nil {
			t.Fatalf("with room: %v", err)
		}
		next++
	}
	closed(t, s)
	s = open(t, folder)
	defer closed(t, s)
	entries := all(t, s, "p", "a")
	if uint64(len(entries)) != next-oldest {
		t.Fatalf("%d entries are there, want those from %d to %d", len(entries), oldest, next)
	}
	for i, e := range entries {
		if diff := differences(large(oldest+uint64(i)), e); diff != "" {
			t.Errorf("entry %d: %s", e.Batch.Range.First, diff)
		}
	}
}
