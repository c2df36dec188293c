//go:build linux && cgo

package eventstore

import (
	"bufio"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/perigeedb/perigee/internal/testseed"
)

// Environment variables that turn the test's process into a workload.
const (
	crashFolder    = "EVENTSTORE_CRASH"    // it is killed
	powercutFolder = "EVENTSTORE_POWERCUT" // it is recorded
)

func TestMain(m *testing.M) {
	RunWorker()
	for variable, run := range map[string]func(folder string) error{
		crashFolder:       func(folder string) error { return (&workload{folder: folder, lanes: 2}).run(math.MaxInt32) },
		powercutFolder:    func(folder string) error { return (&workload{folder: workFolder(folder), lanes: 2}).run(60) },
		restoreFolder:     restoreArchive,
		crashImportFolder: importAndBackUp,
		uniqueFolder:      appendRepetitions,
		crashLakeFolder:   publishUntilKilled,
		leaveFolder:       leaveAndReturn,
	} {
		if folder := os.Getenv(variable); folder != "" {
			if err := run(folder); err != nil {
				fmt.Println("error", err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	code := m.Run()
	figures.print()
	os.Exit(code)
}

// figures counts the work and the failures of the crash tests.
var figures crashFigures

type crashFigures struct {
	kills, powercuts, fullDisks int
	changes                     map[string]int // of a table, by kind
	verdict
}

// countChanges counts the table changes that workloads have reported.
func (f *crashFigures) countChanges(said []string) {
	for _, line := range said {
		if change, ok := strings.CutPrefix(line, "did "); ok {
			if f.changes == nil {
				f.changes = map[string]int{}
			}
			f.changes[change]++
		}
	}
}

func (f *crashFigures) print() {
	if f.kills+f.powercuts+f.fullDisks == 0 {
		return
	}
	fmt.Printf("figure crash_store_kills %d\nfigure crash_store_powercuts %d\nfigure crash_store_full_disks %d\n", f.kills, f.powercuts, f.fullDisks)
	for _, change := range slices.Sorted(maps.Keys(f.changes)) {
		fmt.Printf("figure crash_store_changes_%s %d\n", strings.ReplaceAll(change, "-", "_"), f.changes[change])
	}
	fmt.Printf("figure crash_store_lost %d\nfigure crash_store_duplicated %d\n", f.lost, f.duplicated)
}

// storeKills is the number of kills of one store before the test starts a new one. Each check
// reads all files of the store, which grow to thousands.
const storeKills = 20

// TestCrash repeatedly kills a working process: nothing that was reported durable may be
// missing, and nothing may be duplicated.
func TestCrash(t *testing.T) {
	r := testseed.New(t)
	for left := countFrom(t, "PERIGEE_STORE_KILLS", 6); left > 0 && !t.Failed(); left -= storeKills {
		crashStore(t, r, min(left, storeKills))
	}
}

// crashStore runs and kills a number of processes on one store.
func crashStore(t *testing.T, r *rand.Rand, kills int) {
	t.Helper()
	folder := t.TempDir()
	var said []string
	var reopened time.Duration
	for kill := range kills {
		lines := workAndKill(t, crashFolder, folder, 1+r.IntN(60), time.Duration(r.IntN(100_000))*time.Microsecond)
		figures.countChanges(lines)
		said = append(said, lines...)
		begun := time.Now()
		s := openWork(t, folder)
		reopened = max(reopened, time.Since(begun))
		figures.add(checkWork(t, s, said))
		figures.kills++
		if sealedFiles(s) == 0 && kill > 4 {
			t.Error("no file of the log was sealed: the test proves little")
		}
		if kill == kills-1 {
			checkMarks(t, s)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Fatalf("after kill %d", kill+1)
		}
	}
	t.Logf("opened again in at most %v, %d lines were said", reopened, len(said))
}

// checkMarks completes the recompute that the killed processes began, and checks that all
// rows have values of its function.
func checkMarks(t *testing.T, s *Store) {
	t.Helper()
	version, _ := lastMarking(s)
	if version == "0" {
		t.Error("no recompute has begun: the test proves little")
	}
	s.SetComputed([]ComputedColumn{marking(version)})
	recomputed(t, s, "mark")
	if got := ask(t, s, fmt.Sprintf(`SELECT count(*) FILTER (mark <> id * %d + %s) FROM events`, marksPerID, version)); got != "0" {
		t.Errorf("%s rows do not have the values of the last function, %s", got, version)
	}
	t.Logf("recompute %s has ended", version)
}

func openWork(t testing.TB, folder string) *Store {
	t.Helper()
	s, err := Open(folder, workOptions())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// workAndKill runs the process selected by an environment variable until it has printed n
// lines, waits, and kills it. It returns the lines.
func workAndKill(t *testing.T, variable, folder string, n int, more time.Duration) (said []string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), variable+"="+folder)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	hung := time.AfterFunc(patience, func() {
		t.Error("the process says nothing more")
		_ = cmd.Process.Signal(syscall.SIGQUIT) // prints its stacks
	})
	defer hung.Stop()
	var timer *time.Timer
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "error") || strings.HasPrefix(lines.Text(), "failed") {
			t.Errorf("the process says %q", lines.Text())
			break
		}
		said = append(said, lines.Text())
		hung.Reset(patience)
		if len(said) == n {
			timer = time.AfterFunc(more, func() { _ = cmd.Process.Kill() })
		}
	}
	if timer != nil {
		timer.Stop()
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // the error only reports the kill
	return said
}
