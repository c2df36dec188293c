//go:build cgo && lmdb

package coretest

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/internal/powercut"
	"github.com/perigeedb/perigee/internal/testseed"
)

// worthless are the files of a store that a reboot makes worthless. Processes map them for writing.
var worthless = []string{"lock.mdb", "shared"}

func init() {
	// rounds FOLDER N SEED: makes N rounds of writer 0 in a store, equal for equal seeds, and backs
	// it up. It prints "before COUNT AUTO" at each round, and "durable COUNT AUTO" and "backup
	// COUNT AUTO" once these are durable.
	childWork["rounds"] = func(arguments []string) (err error) {
		defer catchFault(&err)
		runtime.LockOSThread() // strace counts calls by thread
		rounds, _ := strconv.Atoi(arguments[1])
		seed, _ := strconv.ParseUint(arguments[2], 10, 64)
		store, err := openCoreStore(filepath.Join(arguments[0], "store"), coreOptions{flushMs: 10})
		if isCode(err, "NDB_E_DISK") {
			fmt.Println("failed", err)
			store, err = openCoreStore(filepath.Join(arguments[0], "store"), coreOptions{flushMs: 10})
		}
		if err != nil {
			return err
		}
		session, err := store.session()
		if err != nil {
			return err
		}
		s := crashSession{session}
		count := func() string {
			return fmt.Sprint(s.count(crashKey("^count(0)")), " ", s.count(crashKey("^auto(0)")))
		}
		r := rand.New(rand.NewPCG(seed, 0))
		for round := range rounds {
			fmt.Println("before", count())
			if err := s.writeRound(store, r, 0, round, r.IntN(3) > 0); err != nil {
				return err
			}
		}
		err = store.sync()
		if isCode(err, "NDB_E_DISK") {
			fmt.Println("disk", err)
			err = store.sync()
		}
		if err != nil {
			return err
		}
		fmt.Println("durable", count())
		copied := filepath.Join(arguments[0], "backup")
		if _, err := os.Stat(filepath.Join(copied, "data.mdb")); err != nil {
			if err := store.backup(copied); err != nil {
				return err
			}
			fmt.Println("backup", count())
		}
		s.close()
		return store.close()
	}
}

func roundsRun(folder, fault string, rounds int, seed uint64) powercut.Run {
	run := powercut.SelfRun(fault, childVariable+"="+fmt.Sprintf("rounds %s %d %d", folder, rounds, seed),
		"ASAN_OPTIONS=detect_leaks=0") // a traced process cannot detect leaks
	run.LeaveOut = worthless
	return run
}

// TestPowerCut cuts the power while a writer creates a store, writes and backs up.
func TestPowerCut(t *testing.T) {
	folder, seed := t.TempDir(), testseed.New(t).Uint64()
	powercut.Record(t, folder, roundsRun(folder, "", 40, seed)).EachCut(t, 80, checkCutStore)
}

// TestPowerCutLosesOne loses each single change that is not synced at some moment: of a writer that
// creates a store, and of one that continues after another was killed during the creation.
func TestPowerCutLosesOne(t *testing.T) {
	for name, fault := range map[string]string{"sound": "", "killed": "fsync:signal=KILL:when=1"} {
		t.Run(name, func(t *testing.T) {
			folder, seed := t.TempDir(), testseed.New(t).Uint64()
			var runs []powercut.Run
			if fault != "" {
				runs = append(runs, roundsRun(folder, fault, 5, seed))
			}
			powercut.Record(t, folder, append(runs, roundsRun(folder, "", 5, seed))...).EachLoss(t, checkCutStore)
		})
	}
}

// TestKillAndPowerCut kills a writer at a system call, and cuts the power while another one
// continues with what it left.
func TestKillAndPowerCut(t *testing.T) {
	for call, calls := range map[string]int{"fdatasync": 20, "pwrite64": 20, "writev": 20, "fsync": 3} {
		for n := range powercut.SomeOf(calls) {
			t.Run(fmt.Sprint(call, n), func(t *testing.T) {
				folder, r := t.TempDir(), testseed.New(t)
				killed := roundsRun(folder, fmt.Sprintf("%s:signal=KILL:when=%d", call, n), 60, r.Uint64())
				powercut.Record(t, folder, killed, roundsRun(folder, "", 6, r.Uint64())).EachCut(t, 8, checkCutStore)
			})
		}
	}
}

// TestFailedWriteAndPowerCut makes one write fail, of pages or a meta page, or one sync, of the file,
// or of a folder during open, such that later syncs do not make up for it. The writer must report it
// and retry.
func TestFailedWriteAndPowerCut(t *testing.T) {
	for call, calls := range map[string]int{"fdatasync": 15, "fsync": 2, "pwrite64": 15} {
		for n := range powercut.SomeOf(calls) {
			t.Run(fmt.Sprint(call, n), func(t *testing.T) {
				folder, seed := t.TempDir(), testseed.New(t).Uint64()
				failed := roundsRun(folder, fmt.Sprintf("%s:error=EIO:when=%d", call, n), 50, seed)
				recording := powercut.Record(t, folder, failed)
				if !slices.ContainsFunc(recording.Said(), func(line string) bool {
					return strings.HasPrefix(line, "failed ") || strings.HasPrefix(line, "disk ")
				}) {
					t.Error("no call returned the error")
				}
				recording.EachCut(t, 15, checkCutStore)
			})
		}
	}
}

// checkCutStore opens the store after a power cut, with garbage in the worthless files. All durable
// changes must be present, none may be torn, the changes must be present in the order in which they
// were made, and the store must accept more. The same holds for a backup.
func checkCutStore(t *testing.T, folder string, said []string) {
	backup := filepath.Join(folder, "backup")
	durable, auto, done := lastCounts(t, said, "backup")
	if _, err := os.Stat(filepath.Join(backup, "data.mdb")); err == nil || done {
		checkCounts(t, backup, durable, auto, said)
	}
	durable, auto, _ = lastCounts(t, said, "durable")
	checkCounts(t, filepath.Join(folder, "store"), durable, auto, said)
}

// lastCounts returns the numbers in the last line that begins with a word.
func lastCounts(t *testing.T, said []string, word string) (count, auto int, found bool) {
	t.Helper()
	for _, line := range said {
		rest, is := strings.CutPrefix(line, word+" ")
		if !is {
			continue
		}
		var autos int
		if _, err := fmt.Sscan(rest, &count, &autos); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		auto, found = max(auto, autos), true // a round without increments prints 0
	}
	return count, auto, found
}

func checkCounts(t *testing.T, folder string, durable, auto int, said []string) {
	t.Helper()
	for i, name := range worthless {
		if _, err := os.Stat(folder); err != nil {
			break // there is no store yet
		}
		garbage := bytes.Repeat([]byte{byte(0xA5 + i)}, 3000*(1+len(said)%4))
		if err := os.WriteFile(filepath.Join(folder, name), garbage, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := &crashRun{folder: folder}
	c.durable[0], c.auto[0] = durable, auto
	if err := c.inspect(); err != nil {
		c.problem("after the power cut: %v", err)
	}
	if len(c.problems) == 0 {
		if err := c.writeOn(said); err != nil {
			c.problem("more is written: %v", err)
		}
		if err := c.inspect(); err != nil {
			c.problem("after more was written: %v", err)
		}
	}
	c.report(t)
}

// writeOn checks the order of the changes, and writes another round.
func (c *crashRun) writeOn(said []string) (err error) {
	defer catchFault(&err)
	store, err := openCoreStore(c.folder, coreOptions{})
	if err != nil {
		return err
	}
	session, err := store.session()
	if err != nil {
		return err
	}
	s := crashSession{session}
	count, auto := s.count(crashKey("^count(0)")), s.count(crashKey("^auto(0)"))
	before := map[int]int{} // increments before transaction n+1
	for _, line := range said {
		var n, a int
		if m, _ := fmt.Sscanf(line, "before %d %d", &n, &a); m == 2 {
			maps.DeleteFunc(before, func(lost, _ int) bool { return lost > n }) // lost by a kill
			before[n] = a
		}
	}
	for n, a := range before {
		if count > n && auto < a || count <= n && auto > a {
			c.problem("transaction %d came after %d increments, and the store has %d and %d", n+1, a, count, auto)
		}
	}
	n, number := s.writeTransaction(0)
	if err := s.wait(number); err != nil {
		return err
	}
	c.durable[0] = n
	s.close()
	return store.close()
}
