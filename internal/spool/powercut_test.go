package spool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/perigeedb/perigee/internal/frame"
	"github.com/perigeedb/perigee/internal/powercut"
)

// powercutFolder makes the test's process a program that is recorded, sequential one whose
// system calls come in the same order each time.
const (
	powercutFolder = "SPOOL_POWERCUT"
	sequential     = "SPOOL_SEQUENTIAL"
	repetition     = "SPOOL_REPETITION" // it repeats what is stored, and ends
	short          = "SPOOL_SHORT"      // it ends early: each single loss, or call, is tested
)

// tiny has segments of a few entries, which lie across sectors.
var tiny = func() Options {
	o := small
	o.SegmentBytes = 1500
	return o
}()

// appendAndTrim appends entries, several at a time, trims, and opens the spool again, both
// closed and not. It prints the ID of the spool, what is stored once Append has returned,
// and before a trim up to where it trims. It repeats calls that fail: Append under the same key,
// on a spool that was opened again.
func appendAndTrim(folder string) error {
	runtime.LockOSThread() // strace counts calls by thread
	folder = filepath.Join(folder, "made", "here")
	s, err := reopen(folder)
	if err != nil {
		return err
	}
	fmt.Println("id", s.ID())
	if os.Getenv(repetition) != "" {
		return repeat(s)
	}
	rounds, groups, closed := 6, 8, 2
	if os.Getenv(short) != "" {
		rounds, groups, closed = 2, 3, 0
		tiny.SegmentBytes = 1000 // one trim removes several
	}
	key := 0
	for round := range rounds {
		for range groups {
			if s, err = appendAtOnce(s, key, 1+round%2*2); err != nil {
				return err
			}
			key += 3
		}
		if round == 1 {
			err = twice(s.MarkVerified)
		}
		_, end := s.Bounds()
		fmt.Println("trim", end-6)
		if err := errors.Join(err, twice(func() error { return s.Trim(end - 6) })); err != nil {
			return err
		}
		if round == closed {
			closeOrSay(s)
		}
		if round == closed || round == closed+1 {
			if s, err = reopen(folder); err != nil {
				return err
			}
		}
	}
	closeOrSay(s)
	return nil
}

// closeOrSay closes the spool. That fails if the low watermark cannot be saved, which may be
// lost.
func closeOrSay(s *Spool) {
	if err := s.Close(); err != nil {
		fmt.Println("failed", err)
	}
}

// repeat appends again all entries whose keys the spool knows.
func repeat(s *Spool) error {
	for key := range 200 {
		if _, known := s.keys.byKey[fmt.Sprint("key", key)]; !known {
			continue
		}
		receipt, err := s.Append(context.Background(), numbered(key))
		if err != nil {
			return err
		}
		fmt.Println("stored", receipt.First, key)
	}
	return nil
}

func twice(f func() error) error {
	err := f()
	if err != nil {
		fmt.Println("failed", err)
		err = f()
	}
	return err
}

func reopen(folder string) (s *Spool, err error) {
	err = twice(func() (err error) {
		s, err = Open(folder, tiny)
		return err
	})
	return s, err
}

func appendAtOnce(s *Spool, key, n int) (*Spool, error) {
	entries := make([]Entry, n)
	receipts, errs := make([]Receipt, n), make([]error, n)
	var appends sync.WaitGroup
	for i := range n {
		entries[i] = numbered(key + i)
		if n == 1 || os.Getenv(sequential) != "" {
			receipts[i], errs[i] = s.Append(context.Background(), entries[i])
		} else {
			appends.Go(func() { receipts[i], errs[i] = s.Append(context.Background(), entries[i]) })
		}
	}
	appends.Wait()
	for i := range n {
		if errs[i] != nil {
			fmt.Println("failed", errs[i])
			again, err := s.Append(context.Background(), entries[i])
			switch {
			case err == nil && strings.Contains(errs[i].Error(), "sync the spool"):
				return nil, errors.New("the spool went on after a sync that failed")
			case err == nil && again.Repeated:
				return nil, errors.New("an entry that failed counts as stored")
			case err == nil:
				receipts[i] = again
			default:
				_ = s.Close()
				if s, err = reopen(s.folder); err != nil {
					return nil, err
				}
				if receipts[i], err = s.Append(context.Background(), entries[i]); err != nil {
					return nil, err
				}
			}
		}
		fmt.Println("stored", receipts[i].First, key+i)
	}
	return s, nil
}

// numbered is an entry of two documents that nothing else has.
func numbered(key int) Entry {
	return entry(fmt.Sprint("key", key), document(key, 0), document(key, 1))
}

func document(key, i int) string {
	return fmt.Sprintf(`{"n":"%d.%d","x":%q}`, key, i, strings.Repeat(string(rune('a'+key%26)), key*13%170))
}

func appendRun(folder, fault string) powercut.Run {
	env := []string{powercutFolder + "=" + folder}
	if fault != "" {
		env = append(env, sequential+"=yes")
	}
	return powercut.SelfRun(fault, env...)
}

// TestPowerCut cuts the power while entries are appended and trimmed.
func TestPowerCut(t *testing.T) {
	folder := t.TempDir()
	powercut.Record(t, folder, appendRun(folder, "")).EachCut(t, 200, checkSpool)
}

func shortRun(folder, fault string) powercut.Run {
	run := appendRun(folder, fault)
	run.Command.Env = append(run.Command.Env, sequential+"=yes", short+"=yes")
	return run
}

// TestPowerCutLosesOne cuts the power at every moment and loses one write or name alone; also
// when a sync has failed, or the process was killed at one and another has gone on.
func TestPowerCutLosesOne(t *testing.T) {
	for name, faults := range map[string][]string{
		"sound":  {""},
		"failed": {"fsync:error=EIO:when=12"},
		"killed": {"fsync:signal=KILL:when=12", ""},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			var runs []powercut.Run
			for _, fault := range faults {
				runs = append(runs, shortRun(folder, fault))
			}
			powercut.Record(t, folder, runs...).EachLoss(t, checkSpool)
		})
	}
}

// TestFailingDisk lets one call of a short run fail, and cuts the power later: what failed
// says which file it was, and is done again.
func TestFailingDisk(t *testing.T) {
	for fault, calls := range map[string]int{
		"pwrite64:error=ENOSPC": 12, "write:error=ENOSPC": 20, "rename,renameat,renameat2:error=EIO": 6,
		"unlink,unlinkat:error=EIO": 1, "ftruncate:error=EIO": 1,
		"pwrite64:error=EIO:when=4 ftruncate:error=EIO": 1, // nobody can cut off what was written
	} {
		for n := range powercut.SomeOf(calls) {
			t.Run(fmt.Sprint(fault, n), func(t *testing.T) {
				folder := t.TempDir()
				recording := powercut.Record(t, folder, shortRun(folder, fmt.Sprintf("%s:when=%d", fault, n)))
				for _, line := range recording.Said() {
					if strings.HasPrefix(line, "failed") && !strings.Contains(line, filepath.Join(folder, "made")) {
						t.Errorf("%s: it does not say which file", line)
					}
				}
				recording.EachCut(t, 10, checkSpool)
			})
		}
	}
}

// TestLyingSync has syncs do nothing and say that all is well, and cuts the power. Stored
// entries may be gone. The spool opens, or says which file is damaged; it has only what was
// written, once and whole, and goes on.
func TestLyingSync(t *testing.T) {
	for _, from := range []int{1, 20} {
		t.Run(fmt.Sprint(from), func(t *testing.T) {
			folder := t.TempDir()
			opened := 0
			powercut.Record(t, folder, appendRun(folder, fmt.Sprintf("fsync,fdatasync:retval=0:when=%d+", from))).EachCut(t, 150, func(t *testing.T, folder string, _ []string) {
				folder = filepath.Join(folder, "made", "here")
				s, err := Open(folder, tiny)
				if err != nil {
					checkDamageError(t, folder, err)
					return
				}
				opened++
				first, _ := s.Bounds()
				there := checkDocuments(t, s)
				checkGoesOn(t, s, first, len(there))
			})
			if opened < 30 {
				t.Errorf("%d spools could be opened", opened)
			}
		})
	}
}

// checkDamageError checks that an error says which file in a folder is damaged, and how.
func checkDamageError(t *testing.T, folder string, err error) {
	t.Helper()
	for _, known := range []string{"the segment before it ends", "is damaged", errNotSegment.Error(), frame.ErrDamaged.Error()} {
		if text := err.Error(); strings.Contains(text, known) && (strings.Contains(text, folder+"/") || strings.Contains(text, identityFile)) {
			return
		}
	}
	t.Errorf("%v: it does not say what is damaged", err)
}

// TestFailedSync lets one sync fail, and later ones not make up for it.
func TestFailedSync(t *testing.T) {
	for n := range powercut.SomeOf(40) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			folder := t.TempDir()
			fault := fmt.Sprintf("fsync:error=EIO:when=%d", n)
			powercut.Record(t, folder, appendRun(folder, fault)).EachCut(t, 15, checkSpool)
		})
	}
}

// TestKillAndPowerCut kills the process at a sync, and cuts the power when senders have
// repeated their entries, or while another process goes on.
func TestKillAndPowerCut(t *testing.T) {
	for n := range powercut.SomeOf(40) {
		for _, next := range []string{repetition, sequential} {
			t.Run(fmt.Sprint(n, next), func(t *testing.T) {
				folder := t.TempDir()
				second := appendRun(folder, "")
				second.Command.Env = append(second.Command.Env, next+"=yes")
				powercut.Record(t, folder, appendRun(folder, fmt.Sprintf("fsync:signal=KILL:when=%d", n)), second).EachCut(t, 15, checkSpool)
			})
		}
	}
}

// checkSpool opens the spool that a power cut has left. Each stored entry that was not
// trimmed is there, at its position, nothing else is, and its key is known.
func checkSpool(t *testing.T, folder string, said []string) {
	s := open(t, filepath.Join(folder, "made", "here"), tiny)
	first, end := s.Bounds()
	there := checkDocuments(t, s)
	trimmed := uint64(0)
	for _, line := range said {
		var position uint64
		var key int
		if id, found := strings.CutPrefix(line, "id "); found && s.ID() != id {
			t.Errorf("the spool has ID %s, and had %s", s.ID(), id)
		}
		if n, _ := fmt.Sscanf(line, "trim %d", &position); n == 1 {
			trimmed = position
		}
		if n, _ := fmt.Sscanf(line, "stored %d %d", &position, &key); n != 2 {
			continue
		}
		if position >= end || position >= first && (there[position-first] != document(key, 0) || there[position-first+1] != document(key, 1)) {
			t.Errorf("entry %d was stored at position %d; the spool has [%d,%d)", key, position, first, end)
		}
		if got, err := s.Append(t.Context(), numbered(key)); err != nil || !got.Repeated || got.First != position {
			t.Errorf("the key of entry %d gives %+v, %v; it was stored at %d", key, got, err, position)
		}
	}
	if first > trimmed || s.LowWatermark() > trimmed {
		t.Errorf("the spool begins at %d with low watermark %d, and was trimmed to %d", first, s.LowWatermark(), trimmed)
	}
	checkGoesOn(t, s, first, len(there))
}

// checkDocuments returns the documents of a spool: each was written, and is there once.
func checkDocuments(t *testing.T, s *Spool) []string {
	t.Helper()
	first, _ := s.Bounds()
	checkTail(t, s)
	there := rest(t, s, first)
	found := map[string]bool{}
	for i, doc := range there {
		var key, part int
		if _, err := fmt.Sscanf(doc, `{"n":"%d.%d"`, &key, &part); err != nil || doc != document(key, part) {
			t.Errorf("position %d has %q, which was never written", first+uint64(i), doc)
		}
		if found[doc] {
			t.Errorf("%q is there twice", doc)
		}
		found[doc] = true
		if part == 0 && (i+1 == len(there) || there[i+1] != document(key, 1)) || part == 1 && (i == 0 || there[i-1] != document(key, 0)) {
			t.Errorf("position %d has %q, and half of its entry is missing", first+uint64(i), doc)
		}
	}
	return there
}

// checkGoesOn appends to a spool with so many documents, and opens it again.
func checkGoesOn(t *testing.T, s *Spool, first uint64, documents int) {
	t.Helper()
	put(t, s, entry("afterwards", "{}"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, s.folder, tiny)
	if got := rest(t, s, first); len(got) != documents+1 {
		t.Errorf("%d documents, and one more was stored than the %d before", len(got), documents)
	}
}

// checkTail finds nothing behind the last entry.
func checkTail(t *testing.T, s *Spool) {
	t.Helper()
	if info, err := s.file.Stat(); err != nil || info.Size() != s.active.bytes {
		t.Errorf("the active segment has %d bytes of entries, and its file %d, %v", s.active.bytes, info.Size(), err)
	}
}

// TestFullDisk appends to a full disk: that is an error, which leaves nothing behind, and
// the spool goes on when there is room.
func TestFullDisk(t *testing.T) {
	disk := powercut.SmallDisk(t, 1<<20)
	if disk == "" {
		return
	}
	folder, ballast := filepath.Join(disk, "spool"), filepath.Join(disk, "ballast")
	options := tiny
	options.SegmentBytes, options.KeysMax = 20_000, 1_000_000 // several pages
	s := open(t, folder, options)
	stored := 0
	for room := int64(0); room < 80<<10; room += 4 << 10 {
		powercut.Fill(t, ballast, room)
		var err error
		for ; err == nil; stored++ {
			_, err = s.Append(t.Context(), numbered(stored))
		}
		stored--
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("entry %d: %v", stored, err)
		}
		for range 3 {
			if _, err := s.Append(t.Context(), numbered(stored)); !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("entry %d again: %v", stored, err)
			}
		}
		checkTail(t, s)
		if got := len(rest(t, s, 0)); got != 2*stored {
			t.Fatalf("%d documents, and %d were stored", got, 2*stored)
		}
		if again, err := Open(folder, options); err == nil {
			_, end := again.Bounds()
			if end != uint64(2*stored) {
				t.Errorf("opened on the full disk, the spool ends at %d, and %d documents were stored", end, 2*stored)
			}
			again.file.Close()
		} else if !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("opened on the full disk: %v", err)
		}
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		if got := put(t, s, numbered(stored)); got.Repeated || got.First != uint64(2*stored) {
			t.Fatalf("with room, entry %d gives %+v", stored, got)
		}
		stored++
	}
	_ = s.Close()
	s = open(t, folder, options)
	for i, doc := range rest(t, s, 0) {
		if doc != document(i/2, i%2) {
			t.Fatalf("position %d has %q", i, doc)
		}
	}
	if _, end := s.Bounds(); end != uint64(2*stored) {
		t.Errorf("the spool ends at %d, and %d documents were stored", end, 2*stored)
	}
}
