//go:build cgo && lmdb

package coretest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perigeedb/perigee/internal/testseed"
)

// childVariable makes the test binary act as a child process. Its value is a name in childWork and
// the arguments.
const childVariable = "NODEDB_TEST_CHILD"

var childWork = map[string]func(arguments []string) error{}

func TestMain(m *testing.M) {
	if work := strings.Fields(os.Getenv(childVariable)); len(work) > 0 {
		if err := childWork[work[0]](work[1:]); err != nil {
			fmt.Println("child:", err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	code := m.Run()
	os.RemoveAll(coreObjects)
	os.Exit(code)
}

// A testChild is a process of the test binary that runs a function of childWork.
type testChild struct {
	*exec.Cmd
	input  io.WriteCloser
	output *bufio.Reader
}

func startChild(t testing.TB, work ...any) *testChild {
	t.Helper()
	child := &testChild{Cmd: exec.Command(os.Args[0])}
	child.Env = append(os.Environ(), childVariable+"="+strings.TrimSpace(fmt.Sprintln(work...)))
	child.Stderr = os.Stderr
	output, err := child.StdoutPipe()
	if err == nil {
		child.input, err = child.StdinPipe()
	}
	if err == nil {
		err = child.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	child.output = bufio.NewReader(output)
	t.Cleanup(func() { child.kill() })
	return child
}

// kill kills the child and waits for its end.
func (c *testChild) kill() {
	c.Process.Kill()
	c.Wait()
}

// read returns the next line that the child prints.
func (c *testChild) read(t testing.TB) string {
	t.Helper()
	line, err := c.output.ReadString('\n')
	if err != nil {
		t.Fatalf("the child prints nothing more: %v", err)
	}
	return strings.TrimSpace(line)
}

func mustKey(t testing.TB, text string) []byte {
	t.Helper()
	key, _, err := coreParseKey(text)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func mustOpenShared(t testing.TB, folder string) coreShared {
	t.Helper()
	shared, err := openCoreShared(folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(shared.close)
	return shared
}

func isCode(err error, code string) bool {
	return err != nil && strings.HasPrefix(err.Error(), code+":")
}

func TestLockConflicts(t *testing.T) {
	long := `"` + repeat("a", 300) + `"`
	exactly60 := `"` + repeat("b", 60-3-2) + `"` // its key exactly fills one block
	for _, test := range []struct {
		held, wanted string
		conflict     bool
	}{
		{"^x", "^x", true}, {"^x", "^x(1)", true}, {"^x(1,2,3,4,5)", "^x", true}, {"^x(1)", "^x(2)", false}, {"^x(1)", "^xa(1)", false},
		{"^x", "^xa", false}, {"^x(5)", "^x(5.5)", false}, {"^x(5.5)", "^x(5)", false}, {"^x(5)", "^x(5,5)", true}, {"^x(-.5)", "^x(-1)", false},
		{"^x(1,2,3,4,5)", "^x(1,2,3,4,6)", false}, {"^x(1,2,3,4,5)", "^x(1,2,3,4)", true}, {"^x(1,2,3,4)", "^x(1,2,3,4,5)", true},
		{`^x("a")`, `^x("ab")`, false}, {`^x("")`, "^x", true}, {`^x("")`, `^x(1)`, false}, {"x", "^x", false}, {"x", "x", true},
		{"^x(" + long + ")", "^x(" + long + ",1)", true}, {"^x(" + long + ",1)", "^x(" + long + ",2)", false}, {"^x(" + long + ",1)", "^x(" + long + ",1)", true},
		{"^x(" + exactly60 + ")", "^x(" + exactly60 + ",1)", true}, {"^x(" + exactly60 + ",1)", "^x(" + exactly60 + ")", true},
		{"^x(" + exactly60 + ",1)", "^x(" + exactly60 + ",2)", false},
	} {
		t.Run(fmt.Sprintf("%.20s, %.20s", test.held, test.wanted), func(t *testing.T) {
			shared := mustOpenShared(t, t.TempDir())
			held, wanted := mustKey(t, test.held), mustKey(t, test.wanted)
			if err := shared.take(1, 0, held); err != nil {
				t.Fatal(err)
			}
			if err := shared.take(1, 0, wanted); err != nil {
				t.Errorf("a session is in its own way: %v", err)
			}
			shared.release(1, wanted)
			if bytes.Equal(held, wanted) != shared.release(1, wanted) {
				t.Error("the lock was not counted")
			}
			shared.releaseAll(1)
			if err := shared.take(1, 0, held); err != nil {
				t.Fatal(err)
			}
			if err := shared.take(2, 0, wanted); (err != nil) != test.conflict || (err != nil && !isCode(err, "NDB_E_TIMEOUT")) {
				t.Errorf("taken beside it: %v", err)
			}
			shared.releaseAll(1)
			if err := shared.take(2, 0, wanted); err != nil {
				t.Errorf("after the release: %v", err)
			}
			shared.releaseAll(2)
			if n, leaked := shared.locks(), shared.leakedBlocks(); n != 0 || leaked != 0 {
				t.Errorf("%d locks and %d blocks are left", n, leaked)
			}
		})
	}
}

func TestLocksAreCounted(t *testing.T) {
	shared := mustOpenShared(t, t.TempDir())
	x := mustKey(t, "^x(1)")
	for range 3 {
		if err := shared.take(1, 0, x, x); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 6 {
		if err := shared.take(2, 0, x); !isCode(err, "NDB_E_TIMEOUT") {
			t.Fatalf("after %d of 6 releases: %v", n, err)
		}
		if !shared.release(1, x) {
			t.Fatalf("release %d: not held", n)
		}
	}
	if shared.release(1, x) {
		t.Error("a seventh release found the lock")
	}
	if err := shared.take(2, 0, x); err != nil {
		t.Error(err)
	}
}

func TestLocksAllOrNone(t *testing.T) {
	shared := mustOpenShared(t, t.TempDir())
	a, b, c := mustKey(t, "^a"), mustKey(t, "^b"), mustKey(t, "^c(1)")
	if err := shared.take(1, 0, c); err != nil {
		t.Fatal(err)
	}
	if err := shared.take(2, 10, a, b, mustKey(t, "^c")); !isCode(err, "NDB_E_TIMEOUT") {
		t.Fatal(err)
	}
	if n := shared.locks(); n != 1 {
		t.Errorf("%d locks are held, want 1", n)
	}
	if err := shared.take(2, 0, a, b); err != nil {
		t.Error(err)
	}
	if err := shared.take(3, 0, []byte("no key")); !isCode(err, "NDB_E_ARGUMENT") {
		t.Error(err)
	}
}

func TestLockTableFull(t *testing.T) {
	shared := mustOpenShared(t, t.TempDir())
	key := func(i int) []byte { return mustKey(t, fmt.Sprintf("^x(%d)", i)) }
	for i := range 8190 {
		if err := shared.take(1, 0, key(i)); err != nil {
			t.Fatalf("lock %d: %v", i, err)
		}
	}
	if err := shared.take(1, 0, key(9000), key(9001), key(9002)); !isCode(err, "NDB_E_LOCKS") {
		t.Fatalf("three for two places: %v", err)
	}
	if err := shared.take(1, 0, key(1), key(9000), key(9001)); err != nil {
		t.Fatalf("two for two places: %v", err)
	}
	shared.releaseAll(1)
	long := repeat("a", 1800)
	taken := 0
	for ; taken < 1000; taken++ {
		if err := shared.take(1, 0, mustKey(t, fmt.Sprintf(`^x(%d,"%s")`, taken, long))); err != nil {
			if !isCode(err, "NDB_E_LOCKS") {
				t.Fatal(err)
			}
			break
		}
	}
	if taken < 500 || taken == 1000 {
		t.Errorf("%d long locks were taken", taken)
	}
	shared.releaseAll(1)
	if n, leaked := shared.locks(), shared.leakedBlocks(); n != 0 || leaked != 0 {
		t.Errorf("%d locks and %d blocks are left", n, leaked)
	}
}

func TestLockTimeouts(t *testing.T) {
	shared := mustOpenShared(t, t.TempDir())
	x := mustKey(t, "^x")
	if err := shared.take(1, 0, x); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := shared.take(2, 120, x); !isCode(err, "NDB_E_TIMEOUT") || !strings.Contains(err.Error(), strconv.Itoa(os.Getpid())) {
		t.Errorf("got %v; want a timeout that names the holder", err)
	}
	if took := time.Since(start); took < 120*time.Millisecond || took > 10*time.Second {
		t.Errorf("a timeout of 120 ms took %v", took)
	}
	done := make(chan error)
	go func() { done <- shared.take(2, -1, x) }()
	time.Sleep(30 * time.Millisecond)
	shared.release(1, x)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func init() {
	// hold FOLDER KEY: takes the lock and holds it.
	childWork["hold"] = func(arguments []string) error {
		shared, err := openCoreShared(arguments[0])
		if err != nil {
			return err
		}
		key, _, err := coreParseKey(arguments[1])
		if err == nil {
			err = shared.take(1, 0, key)
		}
		if err != nil {
			return err
		}
		fmt.Println("held")
		time.Sleep(time.Hour)
		return nil
	}
}

func TestLocksOfDeadProcess(t *testing.T) {
	folder := t.TempDir()
	shared := mustOpenShared(t, folder)
	child := startChild(t, "hold", folder, "^x(1)")
	if line := child.read(t); line != "held" {
		t.Fatal(line)
	}
	x := mustKey(t, "^x")
	if err := shared.take(1, 50, x); !isCode(err, "NDB_E_TIMEOUT") || !strings.Contains(err.Error(), strconv.Itoa(child.Process.Pid)) {
		t.Fatalf("beside the living child: %v", err)
	}
	if n := shared.processes(); n != 2 {
		t.Errorf("%d processes, want 2", n)
	}
	done := make(chan error)
	go func() { done <- shared.take(1, 10_000, x) }()
	time.Sleep(20 * time.Millisecond)
	child.kill()
	if err := <-done; err != nil {
		t.Error(err)
	}
	shared.releaseAll(1)
	if n, processes := shared.locks(), shared.processes(); n != 0 || processes != 1 {
		t.Errorf("%d locks and %d processes after the death", n, processes)
	}
}

// State left by a power cut: arbitrary bytes, and no process that holds the file.
func TestSharedFileOfAnotherBoot(t *testing.T) {
	folder := t.TempDir()
	shared := mustOpenShared(t, folder)
	shared.take(1, 0, mustKey(t, "^x"))
	path := filepath.Join(folder, "shared")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	other := t.TempDir()
	r := testseed.New(t)
	for range 20 {
		for range 1 + r.IntN(200) {
			data[r.IntN(4096)] = byte(r.Uint32())
		}
		size := len(data)
		if r.IntN(2) == 0 {
			size = r.IntN(size)
		}
		if err := os.WriteFile(filepath.Join(other, "shared"), data[:size], 0o666); err != nil {
			t.Fatal(err)
		}
		again, err := openCoreShared(other)
		if err != nil {
			t.Fatal(err)
		}
		if n := again.locks(); n != 0 {
			t.Errorf("%d locks of another boot", n)
		}
		if err := again.take(1, 0, mustKey(t, "^x")); err != nil {
			t.Error(err)
		}
		again.close()
	}
}

// The child of a fork shares the parent's descriptors, which hold the locks of a process.
func TestLocksAcrossFork(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the core")
	}
	program := buildProgram(t, "testdata/fork.c")
	if out, err := exec.Command(program, filepath.Join(t.TempDir(), "store")).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func init() {
	// churn FOLDER CELLS SEED: takes random locks until killed. CELLS contains, for each leaf that
	// the locks cover, the process that holds it.
	childWork["churn"] = func(arguments []string) error {
		shared, err := openCoreShared(arguments[0])
		if err != nil {
			return err
		}
		cells, err := os.OpenFile(arguments[1], os.O_RDWR, 0)
		if err != nil {
			return err
		}
		seed, _ := strconv.ParseUint(arguments[2], 10, 64)
		r := rand.New(rand.NewPCG(seed, 1))
		fmt.Println("started")
		for {
			if err := churnOnce(shared, cells, r); err != nil {
				return err
			}
		}
	}
}

const churnLeaves = 8 // ^t(i,j) for i and j below 8

// churnOnce takes one or two random locks of the tree and checks that no other process has them.
func churnOnce(shared coreShared, cells *os.File, r *rand.Rand) error {
	paddings := []string{"", `,"` + repeat("p", 200) + `"`}
	var keys [][]byte
	var covered []int64
	for range 1 + r.IntN(2) {
		i, j := r.IntN(churnLeaves), r.IntN(churnLeaves)
		text := fmt.Sprintf("^t(%d,%d%s)", i, j, paddings[r.IntN(2)])
		covered = append(covered, int64(i*churnLeaves+j))
		if r.IntN(4) == 0 { // the parent
			text = fmt.Sprintf("^t(%d)", i)
			for j := range churnLeaves {
				covered = append(covered, int64(i*churnLeaves+j))
			}
		}
		key, _, err := coreParseKey(text)
		if err != nil {
			return err
		}
		keys = append(keys, key)
	}
	if r.IntN(2) == 0 {
		return shared.churn(200, keys...)
	}
	if err := shared.take(1, 20_000, keys...); err != nil {
		return err
	}
	me := uint32(os.Getpid())
	for _, cell := range covered {
		if holder := readCell(cells, cell); holder != 0 && holder != me && isRunning(holder) {
			return fmt.Errorf("process %d holds leaf %d as well", holder, cell)
		}
		writeCell(cells, cell, me)
	}
	for _, cell := range covered {
		if holder := readCell(cells, cell); holder != me {
			return fmt.Errorf("process %d took leaf %d away", holder, cell)
		}
	}
	for _, cell := range covered {
		writeCell(cells, cell, 0)
	}
	for _, key := range keys {
		if !shared.release(1, key) {
			return errors.New("a lock is lost")
		}
	}
	return nil
}

func readCell(cells *os.File, i int64) uint32 {
	var cell [4]byte
	cells.ReadAt(cell[:], 4*i)
	return binary.LittleEndian.Uint32(cell[:])
}

func writeCell(cells *os.File, i int64, pid uint32) {
	cells.WriteAt(binary.LittleEndian.AppendUint32(nil, pid), 4*i)
}

// isRunning returns false for a killed process: a zombie, or one that is exiting and has already
// closed its files.
func isRunning(pid uint32) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(status), ") ")
	fields := strings.Fields(rest) // state, five numbers, flags
	if len(fields) < 7 {
		return false
	}
	flags, _ := strconv.ParseUint(fields[6], 10, 64)
	const exiting = 0x4 // PF_EXITING
	return fields[0] != "Z" && fields[0] != "X" && flags&exiting == 0
}

// Processes that take and release locks are killed at any instruction. No two processes may hold
// the same lock, none may remain or get lost, and the table must stay consistent.
func TestLocksSurviveKills(t *testing.T) {
	kills := 150
	if testing.Short() {
		kills = 20
	}
	r := testseed.New(t)
	folder := t.TempDir()
	shared := mustOpenShared(t, folder)
	cells := filepath.Join(folder, "cells")
	if err := os.WriteFile(cells, make([]byte, 4*churnLeaves*churnLeaves), 0o666); err != nil {
		t.Fatal(err)
	}
	var failed sync.Map
	start := func() *testChild {
		child := startChild(t, "churn", folder, cells, r.Uint64())
		if line := child.read(t); line != "started" {
			t.Fatal(line)
		}
		go func() {
			if line, _ := child.output.ReadString('\n'); line != "" {
				failed.Store(child.Process.Pid, line)
			}
		}()
		return child
	}
	children := []*testChild{start(), start(), start()}
	for range kills {
		i := r.IntN(len(children))
		time.Sleep(time.Duration(r.IntN(4000)) * time.Microsecond)
		children[i].kill()
		children[i] = start()
	}
	for _, child := range children {
		child.kill()
	}
	failed.Range(func(pid, line any) bool {
		t.Errorf("process %d: %s", pid, line)
		return true
	})
	if n, processes := shared.locks(), shared.processes(); n != 0 || processes != 1 {
		t.Errorf("%d locks and %d processes are left", n, processes)
	}
	if leaked := shared.leakedBlocks(); leaked != 0 {
		t.Errorf("%d blocks are left", leaked)
	}
	if err := shared.take(1, 0, mustKey(t, "^t")); err != nil {
		t.Error(err)
	}
	t.Logf("%d kills, %d of them in the middle of a change", kills, shared.rebuilds())
}

func BenchmarkLock(b *testing.B) {
	shared := mustOpenShared(b, b.TempDir())
	if err := shared.churn(b.N, mustKey(b, "^x(1,2)")); err != nil {
		b.Fatal(err)
	}
}
