package wal

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/durable"
	"github.com/perigeedb/perigee/internal/powercut"
)

// Environment variables that turn the test's process into a program.
const (
	powercutFolder = "WAL_POWERCUT" // it is recorded
	sequential     = "WAL_SEQUENTIAL"
	short          = "WAL_SHORT" // number of groups of entries that it appends between removals
	appendForever  = "WAL_APPEND_FOREVER"
	removeAtOnce   = "WAL_REMOVE_AT_ONCE"
)

// tiny returns options for files of a few entries, which cross sectors.
func tiny(folder string) Options {
	return Options{Store: "store", FileSize: 3000, First: readFirst(folder)}
}

func logFolder(folder string) string { return filepath.Join(folder, "made", "log") }

// readFirst reads the file "first", which acts as the manifest of a store.
func readFirst(folder string) uint64 {
	text, err := os.ReadFile(filepath.Join(folder, "first"))
	if err != nil {
		return 1
	}
	first, _ := strconv.ParseUint(string(text), 10, 64)
	return first
}

// appendAndRemove appends entries, alone and in groups, removes files, and reopens the log,
// sometimes without closing it. It prints each entry after Append has returned, and each
// removed entry before its removal. It retries failures.
func appendAndRemove(folder string) error {
	runtime.LockOSThread() // strace counts calls by thread
	files := map[int]uint64{}
	l, err := openAgain(folder, files)
	if err != nil {
		return err
	}
	next := 0
	for i := range files {
		next = max(next, i+1)
	}
	rounds, groups := 4, 7
	if n, err := strconv.Atoi(os.Getenv(short)); err == nil {
		rounds, groups = 2, n
	}
	for round := range rounds {
		for range groups {
			n := 1 + round%2*2
			if err := appendAtOnce(l, files, next, n); err != nil {
				return err
			}
			next += n
		}
		if err := removeOldest(folder, l, files); err != nil {
			return err
		}
		if round == 1 {
			_ = l.Close()
		} else {
			settle(l)
		}
		if round < rounds-1 {
			if l, err = openAgain(folder, files); err != nil {
				return err
			}
		}
	}
	return l.Close()
}

// settle waits for the log's background work. Leftovers of a killed process must not change
// files of the log that is opened next.
func settle(l *Log) {
	l.finishing.Wait()
	if l.preparing != nil {
		l.preparing <- <-l.preparing
	}
}

// openAgain opens the log and prints its entries, which are durable from now on.
func openAgain(folder string, files map[int]uint64) (l *Log, err error) {
	for range 2 {
		clear(files)
		l, err = Open(logFolder(folder), tiny(folder), func(p Position, e *Entry) error {
			i, err := checkNumbered(e)
			if files[i] != 0 {
				err = fmt.Errorf("entry %d is there twice", i)
			}
			files[i] = p.File
			return err
		})
		if err == nil {
			break
		}
		fmt.Println("failed", err)
	}
	for i := range files {
		fmt.Println("stored", i)
	}
	return l, err
}

func appendAtOnce(l *Log, files map[int]uint64, first, n int) error {
	positions, ends, errs := make([]Position, n), make([]Position, n), make([]error, n)
	var appends sync.WaitGroup
	for k := range n {
		appendOne := func() {
			positions[k], errs[k] = appendNumbered(l, first+k)
			ends[k] = l.End()
		}
		if n == 1 || os.Getenv(sequential) != "" {
			appendOne()
		} else {
			appends.Go(appendOne)
		}
	}
	appends.Wait()
	for k := range n {
		for try := 0; errs[k] != nil; try++ {
			fmt.Println("failed", errs[k])
			if try > 3 {
				return errs[k]
			}
			uncertain := strings.Contains(errs[k].Error(), "sync the event log") && ends[k].Offset > headerSize
			positions[k], errs[k] = appendNumbered(l, first+k)
			if errs[k] == nil && uncertain && positions[k].File == ends[k].File {
				return fmt.Errorf("after a sync that failed, the log went on in file %d", ends[k].File)
			}
			ends[k] = l.End()
		}
		files[first+k] = positions[k].File
		fmt.Println("stored", first+k)
	}
	return nil
}

func appendNumbered(l *Log, i int) (Position, error) {
	return l.Append(context.Background(), AppendEntry(nil, numbered(i, 1+i%17)))
}

// removeOldest removes the older half of the closed files.
func removeOldest(folder string, l *Log, files map[int]uint64) error {
	ends := l.Ends()
	first := ends[len(ends)/2].Number
	for i, number := range files {
		if number < first {
			fmt.Println("removed", i)
		}
	}
	var err error
	for range 2 {
		if err = durable.WriteFile(filepath.Join(folder, "first"), strconv.AppendUint(nil, first, 10), 0o600); err == nil {
			err = l.RemoveBefore(first)
		}
		if err == nil {
			break
		}
		fmt.Println("failed", err)
	}
	return err
}

func appendRun(folder, fault string) powercut.Run {
	env := []string{powercutFolder + "=" + folder}
	if fault != "" {
		env = append(env, sequential+"=yes")
	}
	return powercut.SelfRun(fault, env...)
}

// TestPowerCut cuts the power while entries are appended and files removed.
func TestPowerCut(t *testing.T) {
	folder := t.TempDir()
	powercut.Record(t, folder, appendRun(folder, "")).EachCut(t, 200, checkLog)
}

// TestPowerCutLosesOne cuts the power at every moment and loses a single write or name. It
// also does so after a failed sync, and after the process was killed at a sync and another
// has continued.
func TestPowerCutLosesOne(t *testing.T) {
	for name, test := range map[string]struct {
		groups int // 3 fill more than one file; long tests use 7
		faults []string
	}{
		"sound":  {3, []string{""}},
		"failed": {2, []string{"fdatasync:error=EIO:when=5"}},
		"killed": {2, []string{"fdatasync:signal=KILL:when=5", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			if os.Getenv("PERIGEE_POWERCUTS") != "" {
				test.groups = 7
			}
			var runs []powercut.Run
			for _, fault := range test.faults {
				run := appendRun(folder, fault)
				run.Command.Env = append(run.Command.Env, sequential+"=yes", fmt.Sprint(short, "=", test.groups))
				runs = append(runs, run)
			}
			powercut.Record(t, folder, runs...).EachLoss(t, checkLog)
		})
	}
}

// TestFailingDisk makes one system call fail and cuts the power later.
func TestFailingDisk(t *testing.T) {
	for fault, calls := range map[string]int{
		"fdatasync:error=EIO": 20, "fsync:error=EIO": 20, "pwritev:error=ENOSPC": 20,
		"rename,renameat,renameat2:error=EIO": 8, "fallocate:error=ENOSPC": 4,
	} {
		for n := range powercut.SomeOf(calls) {
			t.Run(fmt.Sprint(fault, n), func(t *testing.T) {
				folder := t.TempDir()
				recording := powercut.Record(t, folder, appendRun(folder, fmt.Sprintf("%s:when=%d", fault, n)))
				recording.EachCut(t, 10, checkLog)
			})
		}
	}
}

// TestKillAndPowerCut kills the process at a sync, and cuts the power while another process
// continues.
func TestKillAndPowerCut(t *testing.T) {
	for n := range powercut.SomeOf(40) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			folder := t.TempDir()
			killed := appendRun(folder, fmt.Sprintf("fdatasync:signal=KILL:when=%d", n))
			powercut.Record(t, folder, killed, appendRun(folder, "")).EachCut(t, 15, checkLog)
		})
	}
}

// TestFailedSyncAndKill makes a sync fail and kills the process before it can truncate the
// data. The next process must not trust the page cache.
func TestFailedSyncAndKill(t *testing.T) {
	for n := 2; n <= 7; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			folder := t.TempDir()
			killed := appendRun(folder, fmt.Sprintf("fdatasync:error=EIO:when=%d ftruncate:signal=KILL", n))
			powercut.Record(t, folder, killed, appendRun(folder, "")).EachCut(t, 15, checkLog)
		})
	}
}

// TestLyingSync makes syncs succeed without effect, and cuts the power. Stored entries may be
// lost. The log must open, or report the damaged file and open read-only. It may contain only
// appended entries, once and complete, and must continue.
func TestLyingSync(t *testing.T) {
	for _, from := range []int{1, 15} {
		t.Run(fmt.Sprint(from), func(t *testing.T) {
			folder := t.TempDir()
			opened, damaged := 0, 0
			run := appendRun(folder, fmt.Sprintf("fsync,fdatasync:retval=0:when=%d+", from))
			powercut.Record(t, folder, run).EachCut(t, 150, func(t *testing.T, folder string, _ []string) {
				o := tiny(folder)
				visited := map[int]bool{}
				l, err := Open(logFolder(folder), o, visitOnce(visited))
				if err == nil {
					opened++
					const another = 100_000
					put(t, l, another, 1)
					_, again := reopen(t, l, logFolder(folder), o)
					if len(again) != len(visited)+1 {
						t.Errorf("%d entries, and one more was appended than the %d before", len(again), len(visited))
					}
					return
				}
				damaged++
				var damage *DamageError
				if !errors.As(err, &damage) || damage.ErrorHint() == "" {
					t.Fatalf("%v: it does not say which file is damaged", err)
				}
				for _, d := range damage.Damage {
					if filepath.Dir(d.Path) != logFolder(folder) || d.What == "" {
						t.Errorf("damage %+v", d)
					}
				}
				o.ReadOnly = true
				clear(visited)
				if l, err = Open(logFolder(folder), o, visitOnce(visited)); err != nil {
					t.Fatal(err)
				}
				_ = l.Close()
			})
			if opened < 20 || damaged < 10 {
				t.Errorf("%d logs could be opened, %d were damaged", opened, damaged)
			}
		})
	}
}

// visitOnce returns a visit function that fails for an entry that was never appended or is
// duplicated.
func visitOnce(visited map[int]bool) func(Position, *Entry) error {
	return func(_ Position, e *Entry) error {
		i, err := checkNumbered(e)
		if visited[i] {
			err = fmt.Errorf("entry %d is there twice", i)
		}
		visited[i] = true
		return err
	}
}

// checkLog opens the log after a power cut. Each stored entry that was not removed must exist
// once, and no other entry may exist.
func checkLog(t *testing.T, folder string, said []string) {
	l, visited := reopen(t, nil, logFolder(folder), tiny(folder))
	stored, removed := map[int]bool{}, map[int]bool{}
	for _, line := range said {
		var i int
		if n, _ := fmt.Sscanf(line, "stored %d", &i); n == 1 {
			stored[i] = true
		}
		if n, _ := fmt.Sscanf(line, "removed %d", &i); n == 1 {
			removed[i] = true
		}
	}
	there := map[int]bool{}
	for _, i := range visited {
		if there[i] {
			t.Errorf("entry %d is there twice", i)
		}
		there[i] = true
	}
	for i := range stored {
		if !there[i] && !removed[i] {
			t.Errorf("entry %d was stored, and is not there", i)
		}
	}
	if got := entries(t, l); !slices.Equal(got, visited) {
		t.Errorf("%v are durable, %v were visited", got, visited)
	}
	const another = 100_000
	put(t, l, another, 1)
	if _, again := reopen(t, l, logFolder(folder), tiny(folder)); !slices.Equal(again, append(visited, another)) {
		t.Errorf("visited %v, and after one more entry %v", visited, again)
	}
}

// rotateAndRemove removes the first file while it is being finished, and appends to the
// third, which may reuse it, until that has more than the first had.
func rotateAndRemove(folder string) error {
	l, err := Open(folder, small, nil)
	if err != nil {
		return err
	}
	for i := range 6 {
		_, err = appendNumbered(l, i)
		if i < 2 && err == nil {
			err = l.Rotate(context.Background())
		}
		if i == 0 && err == nil {
			err = l.RemoveBefore(2)
		}
		if err != nil {
			return err
		}
	}
	return l.Close()
}

// TestRemoveUnfinishedFile makes the disk slow to truncate a closed file to its entries. The
// file is removed before that, and the entries of later files must survive.
func TestRemoveUnfinishedFile(t *testing.T) {
	folder := t.TempDir()
	powercut.Record(t, folder, powercut.SelfRun("ftruncate:delay_enter=500000", removeAtOnce+"="+folder))
	o := small
	o.First = 2
	if l, visited := reopen(t, nil, folder, o); !slices.Equal(visited, upTo(6)[1:]) || l.End().File != 3 {
		t.Errorf("visited %v, want %v; the log ends at %v", visited, upTo(6)[1:], l.End())
	}
}

// TestFullDisk appends to a full disk. The error has a hint and leaves nothing behind, and
// the log continues when there is space.
func TestFullDisk(t *testing.T) {
	disk := powercut.SmallDisk(t, 1<<20)
	if disk == "" {
		return
	}
	folder, ballast := filepath.Join(disk, "log"), filepath.Join(disk, "ballast")
	o := Options{FileSize: 32 << 10}
	l := open(t, folder, o)
	stored := 0
	for room := int64(0); room < 72<<10; room += 8 << 10 {
		waitPrepared(l) // the next file takes space
		powercut.Fill(t, ballast, room)
		var err error
		for ; err == nil; stored++ {
			_, err = l.Append(t.Context(), AppendEntry(nil, numbered(stored, 20)))
		}
		stored--
		if !errors.Is(err, syscall.ENOSPC) || event.HintOf(err) != fullDiskHint {
			t.Fatalf("entry %d: %v, with hint %q", stored, err, event.HintOf(err))
		}
		if _, err := l.Append(t.Context(), AppendEntry(nil, numbered(stored, 20))); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("entry %d again: %v", stored, err)
		}
		if got := entries(t, l); !slices.Equal(got, upTo(stored)) {
			t.Fatalf("%v are durable, and %d were stored", got, stored)
		}
		var visited []int
		if l, visited = reopen(t, l, folder, o); !slices.Equal(visited, upTo(stored)) {
			t.Fatalf("opened on the full disk, visited %v, and %d were stored", visited, stored)
		}
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		put(t, l, stored, 20)
		stored++
	}
	if _, visited := reopen(t, l, folder, o); !slices.Equal(visited, upTo(stored)) {
		t.Errorf("visited %v, and %d were stored", visited, stored)
	}
}

// appendUntilKilled prints the number of each entry after Append has returned.
func appendUntilKilled(folder string) error {
	var number int
	o := Options{FileSize: 64 << 10}
	l, err := Open(folder, o, func(_ Position, e *Entry) error {
		number++
		return nil
	})
	for ; err == nil; number++ {
		if _, err = appendNumbered(l, number); err == nil {
			fmt.Println(number)
		}
	}
	return err
}

// TestKill kills the writer at random moments. Each acknowledged entry must exist once.
func TestKill(t *testing.T) {
	folder := t.TempDir()
	acknowledged := 0
	for i := range 8 {
		acknowledged = max(acknowledged, runAndKill(t, folder, time.Duration(20+13*i)*time.Millisecond))
		l, visited := reopen(t, nil, folder, Options{FileSize: 64 << 10})
		if len(visited) < acknowledged || !slices.Equal(visited, upTo(len(visited))) {
			t.Fatalf("%d entries were acknowledged; visited %v", acknowledged, visited)
		}
		_ = l.Close()
	}
}

// runAndKill returns the number of acknowledged entries.
func runAndKill(t *testing.T, folder string, after time.Duration) (acknowledged int) {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), appendForever+"="+folder)
	var failure strings.Builder
	child.Stderr = &failure
	out, err := child.StdoutPipe()
	if err == nil {
		err = child.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	hung := time.AfterFunc(time.Minute, func() { _ = child.Process.Kill() })
	defer hung.Stop()
	lines := bufio.NewScanner(out)
	for first := true; lines.Scan(); first = false {
		n, err := strconv.Atoi(lines.Text())
		if err != nil {
			break // truncated by the kill
		}
		if first {
			time.AfterFunc(after, func() { _ = child.Process.Kill() })
		}
		acknowledged = n + 1
	}
	_ = child.Wait()
	if failure.Len() > 0 {
		t.Fatal(failure.String())
	}
	return acknowledged
}
