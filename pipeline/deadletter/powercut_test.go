package deadletter

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/boltfile"
	"github.com/perigeedb/perigee/internal/datafolder"
	"github.com/perigeedb/perigee/internal/powercut"
	"github.com/perigeedb/perigee/internal/testsize"
)

// powercutFolder makes the test's process a program that is recorded.
const powercutFolder = "DEADLETTER_POWERCUT"

// short makes it end early: it tests each single loss.
const short = "DEADLETTER_SHORT"

// replaceAndRetry replaces the letters of one range again and again, marks those of others
// as committed and requests their retry. It prints what is durable, and repeats what fails.
func replaceAndRetry(folder string) error {
	runtime.LockOSThread() // strace counts calls by thread
	folder = filepath.Join(folder, "made", "data")
	var s *Store
	if err := retryOnFault(func() error {
		lock, err := datafolder.Lock(folder)
		if err == nil {
			lock.Close()
			s, err = Open(folder)
		}
		return err
	}); err != nil {
		return err
	}
	rounds := 12
	if os.Getenv(short) != "" {
		rounds = 3
	}
	for round := 1; round <= rounds; round++ {
		if err := retryOnFault(func() error { return s.Replace("p", "a", event.Range{Count: perRound}, roundOf(round, "a", 0)) }); err != nil {
			return err
		}
		fmt.Println("round", round)
		r := event.Range{First: firstOfB(round), Count: perRound}
		if err := retryOnFault(func() error { return s.Replace("p", "b", r, roundOf(round, "b", r.First)) }); err != nil {
			return err
		}
		fmt.Println("stored", round)
		if err := retryOnFault(func() error { return s.MarkCommitted("p", "b", r) }); err != nil {
			return err
		}
		fmt.Println("committed", round)
		if round%2 == 0 {
			if err := retryOnFault(func() error { _, err := s.Retry(Filter{Partition: "b"}); return err }); err != nil {
				return err
			}
			fmt.Println("queued", round)
		}
	}
	return s.Close()
}

func retryOnFault(f func() error) (err error) {
	for range 3 {
		if err = f(); err == nil {
			return nil
		}
		fmt.Println("failed", err)
	}
	return err
}

// firstOfB returns the first position of a round in partition b. Each second round has the positions
// of partition a, and those of rounds before that were retried.
func firstOfB(round int) uint64 { return uint64(round%2) * perRound }

func roundOf(round int, partition string, first uint64) (letters []event.DeadLetter) {
	for i := range uint64(perRound) {
		letters = append(letters, event.DeadLetter{Position: first + i, Stage: "script", Script: partition, Error: strconv.Itoa(round), Original: make([]byte, round%4*700)})
	}
	return letters
}

func replaceRun(folder, fault string, environ ...string) powercut.Run {
	return powercut.SelfRun(fault, append(environ, powercutFolder+"="+folder)...)
}

// TestPowerCut cuts the power while letters are replaced and queued.
func TestPowerCut(t *testing.T) {
	folder := t.TempDir()
	powercut.Record(t, folder, replaceRun(folder, "")).EachCut(t, 200, checkLetters)
}

// TestPowerCutLosesOne loses each single change that is not synced at some moment.
func TestPowerCutLosesOne(t *testing.T) {
	folder := t.TempDir()
	var environ []string
	if !testsize.Long() { // the twelve rounds have thousands of losses
		environ = append(environ, short+"=yes")
	}
	powercut.Record(t, folder, replaceRun(folder, "", environ...)).EachLoss(t, checkLetters)
}

// TestFailedSync lets one sync fail, and later ones not make up for it.
func TestFailedSync(t *testing.T) {
	for n := range powercut.SomeOf(80) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			folder := t.TempDir()
			powercut.Record(t, folder, replaceRun(folder, fmt.Sprintf("fdatasync:error=EIO:when=%d", n))).EachCut(t, 20, checkLetters)
		})
	}
}

// TestFailedSyncLosesOne loses each single change behind a sync that failed, too.
func TestFailedSyncLosesOne(t *testing.T) {
	for n := range powercut.SomeOf(20) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			folder := t.TempDir()
			run := replaceRun(folder, fmt.Sprintf("fdatasync:error=EIO:when=%d", n), short+"=yes")
			powercut.Record(t, folder, run).EachLoss(t, checkLetters)
		})
	}
}

// TestFailedWrite lets one write fail: the error says which file, and what failed is done again.
func TestFailedWrite(t *testing.T) {
	for _, fault := range []string{"ENOSPC", "EIO"} {
		for n := range powercut.SomeOf(40) {
			t.Run(fmt.Sprint(fault, n), func(t *testing.T) {
				folder := t.TempDir()
				run := replaceRun(folder, fmt.Sprintf("pwrite64:error=%s:when=%d", fault, n), short+"=yes")
				recording := powercut.Record(t, folder, run)
				failed := 0
				for _, line := range recording.Said() {
					if !strings.HasPrefix(line, "failed") {
						continue
					}
					failed++
					if !strings.Contains(line, filepath.Join(folder, "made", "data", FileName)) {
						t.Errorf("%s: it does not say which file", line)
					}
				}
				if failed != 1 {
					t.Errorf("%d errors, and one write failed", failed)
				}
				recording.EachCut(t, 10, checkLetters)
			})
		}
	}
}

// TestLyingSync has syncs do nothing and say that all is well, and cuts the power. Stored
// letters may be gone. The store opens, or says that it is damaged; it has only letters that were
// stored, once and whole, and goes on.
func TestLyingSync(t *testing.T) {
	for _, from := range []int{1, 20} {
		t.Run(fmt.Sprint(from), func(t *testing.T) {
			folder := t.TempDir()
			run, wentOn := replaceRun(folder, fmt.Sprintf("fsync,fdatasync:retval=0:when=%d+", from)), 0
			powercut.Record(t, folder, run).EachCut(t, 120, func(t *testing.T, folder string, _ []string) {
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
				seen, damaged := map[string]bool{}, 0
				for l, err := range s.List(Filter{}) {
					if err != nil {
						t.Fatal(err)
					}
					if l.Damaged {
						damaged++
						continue
					}
					round, _ := strconv.Atoi(l.Error)
					first := uint64(0)
					if l.Partition == "b" {
						first = firstOfB(round)
					}
					wanted := roundOf(round, l.Partition, first)
					if i := l.Position - first; i >= perRound || !cmp.Equal(wanted[i], l.DeadLetter) {
						t.Errorf("letter %+v was never stored", l)
					}
					if seen[l.ID()] {
						t.Errorf("letter %+v is there twice", l)
					}
					seen[l.ID()] = true
				}
				keep(t, s, "c", dead(1, "afterwards"))
				if _, err := s.Retry(Filter{}); (err != nil) != (damaged > 0) || err != nil && !errors.Is(err, boltfile.ErrDamagedValue) {
					t.Errorf("retry after the power cut, %d letters are damaged: %v", damaged, err)
				}
				wentOn++
			})
			if wentOn < 20 {
				t.Errorf("%d stores went on", wentOn)
			}
		})
	}
}

// checkLetters opens the store that a power cut has left: each letter that was stored is
// there or queued, once, and the rounds of one range are not mixed.
func checkLetters(t *testing.T, folder string, said []string) {
	folder = filepath.Join(folder, "made", "data")
	lock, err := datafolder.Lock(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	s := open(t, folder)
	defer s.Close()
	last := map[string]int{}
	for _, line := range said {
		var what string
		var round int
		if n, _ := fmt.Sscanf(line, "%s %d", &what, &round); n == 2 {
			last[what] = round
		}
	}
	rounds, others, uncommitted := map[string]int{}, 0, 0
	for _, l := range list(t, s, Filter{}) {
		if l.Partition == "a" {
			rounds[l.Error]++
			continue
		}
		others++
		if round, _ := strconv.Atoi(l.Error); round <= last["queued"] {
			t.Errorf("the retry of letter %d was queued, and it is there", l.Position)
		} else if l.Uncommitted && round <= last["committed"] {
			uncommitted++
		}
	}
	for round := range rounds {
		if n, _ := strconv.Atoi(round); rounds[round] != perRound || n != last["round"] && n != last["round"]+1 {
			t.Errorf("%v letters by round, the last that was durable is %d", rounds, last["round"])
		}
	}
	if len(rounds) != 1 && last["round"] > 0 {
		t.Errorf("%v letters by round, the last that was durable is %d", rounds, last["round"])
	}
	queued, err := s.Queued()
	if n := others + queued["p"]; err != nil || n != last["stored"]*perRound && n != (last["stored"]+1)*perRound {
		t.Errorf("%d letters are there and %d queued, %d were stored, %v", others, queued["p"], last["stored"]*perRound, err)
	}
	if uncommitted > 0 {
		t.Errorf("%d letters were committed and are not", uncommitted)
	}
	keep(t, s, "c", dead(1, "afterwards"))
}

// TestFullDisk stores letters on a full disk: that is an error, and the same letters are
// stored when there is room.
func TestFullDisk(t *testing.T) {
	disk := powercut.SmallDisk(t, 2<<20)
	if disk == "" {
		return
	}
	folder, ballast := filepath.Join(disk, "data"), filepath.Join(disk, "ballast")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	s := open(t, folder)
	round := 1
	store := func() error {
		first := uint64(round * perRound)
		return s.Replace("p", "a", event.Range{First: first, Count: perRound}, roundOf(round, "a", first))
	}
	for room := int64(0); room < 100<<10; room += 20 << 10 {
		powercut.Fill(t, ballast, room)
		var err error
		for ; err == nil; round++ {
			err = store()
		}
		round--
		for range 3 {
			if !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("round %d: %v", round, err)
			}
			err = store()
		}
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		if err := store(); err != nil {
			t.Fatalf("with room: %v", err)
		}
		round++
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, folder)
	defer s.Close()
	if n := len(list(t, s, Filter{})); n != (round-1)*perRound {
		t.Errorf("%d letters are there, and %d were stored", n, (round-1)*perRound)
	}
}
