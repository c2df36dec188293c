//go:build cgo && lmdb

package coretest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/perigeedb/perigee/internal/testseed"
	"github.com/perigeedb/perigee/nodedb"
)

// The crash tests kill writers and make the disk fail, and then check the guarantees.
//
// Writer w counts its transactions in ^count(w) and ^last(w), and those of all writers in ^total;
// the latest logKept of them have an entry ^log(w,n) with children. In between it counts in
// ^auto(w) outside transactions. It prints "durable COUNT AUTO" once these are durable.

const logKept = 20

// A crashSession wraps a session with the operations of the tests; it panics with a crashFault.
type crashSession struct{ coreSession }

type crashFault struct{ what, result string }

func (s crashSession) call(call coreCall) string {
	result := s.do(call)
	if strings.HasPrefix(result, "NDB_E_") {
		panic(crashFault{callNames[call.what], result})
	}
	return result
}

func crashKey(text string, arguments ...any) []byte {
	return []byte(encodedKey(fmt.Sprintf(text, arguments...)))
}

func (s crashSession) count(key []byte) int {
	result := s.call(coreCall{what: doGet, key: key})
	if result == "NDB_NONE" {
		return 0
	}
	n, err := strconv.Atoi(result)
	if err != nil {
		panic(crashFault{"read a count", result})
	}
	return n
}

func (s crashSession) increment(key []byte) int {
	one := num(1)
	n, err := strconv.Atoi(s.call(coreCall{what: doIncrement, key: key, a: &one}))
	if err != nil {
		panic(crashFault{"increment", err.Error()})
	}
	return n
}

func (s crashSession) set(key []byte, value coreScalar) {
	s.call(coreCall{what: doSet, key: key, a: &value})
}

// crashText is the value of an entry. It differs from all others and is recognizable if truncated.
func crashText(w, n, part int) string {
	size := (w*7919 + n*104729 + part*31) % 3000
	return fmt.Sprintf("%d %d %d %s.", w, n, part, repeat("x", size))
}

// writeTransaction makes one transaction of writer w, and repeats it until it commits. It returns
// its number and the number of the commit.
func (s crashSession) writeTransaction(w int) (n int, number uint64) {
	for {
		s.call(coreCall{what: doBegin})
		n = s.increment(crashKey("^count(%d)", w))
		s.increment(crashKey("^total"))
		s.set(crashKey("^log(%d,%d)", w, n), str(crashText(w, n, 0)))
		for part := 1; part <= n%4; part++ {
			s.set(crashKey("^log(%d,%d,%d)", w, n, part), str(crashText(w, n, part)))
		}
		s.call(coreCall{what: doKill, key: crashKey("^log(%d,%d)", w, n-logKept)})
		s.set(crashKey("^last(%d)", w), num(float64(n)))
		number, err := s.commitNumber()
		if err == nil {
			return n, number
		}
		if !isCode(err, "NDB_E_CONFLICT") {
			panic(crashFault{"commit", err.Error()})
		}
		s.call(coreCall{what: doRollback})
	}
}

// writeRound makes a transaction and a few increments. From time to time it waits until they are
// durable and prints so.
func (s crashSession) writeRound(store coreStore, r *rand.Rand, w, round int, waits bool) (err error) {
	defer catchFault(&err)
	if err := s.lock(20_000, crashKey("^own(%d)", w)); err != nil {
		return err
	}
	if round%8 == 0 {
		if err := s.lock(20_000, crashKey("^both")); err != nil {
			return err
		}
	}
	n, number := s.writeTransaction(w)
	auto := 0
	for range r.IntN(5) {
		auto = s.increment(crashKey("^auto(%d)", w))
	}
	s.unlockAll()
	if !waits {
		return nil
	}
	sync := func() error { return s.wait(number) }
	if auto > 0 || r.IntN(2) == 0 {
		sync = store.sync
	}
	for err := sync(); err != nil; err = sync() {
		if !isCode(err, "NDB_E_DISK") {
			return err
		}
		fmt.Println("disk", err)
		if s.count(crashKey("^count(%d)", w)) != n { // reads continue
			return fmt.Errorf("transaction %d cannot be read while the disk fails", n)
		}
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Println("durable", n, auto)
	return nil
}

func catchFault(err *error) {
	if fault, ok := recover().(crashFault); ok {
		*err = fmt.Errorf("%s: %s", fault.result, fault.what)
	}
}

func init() {
	// write FOLDER W FLUSH SEED: writes until its input ends. With a FLUSH of a second it never waits,
	// so that some changes are always not durable.
	childWork["write"] = func(arguments []string) (err error) {
		defer catchFault(&err)
		w, _ := strconv.Atoi(arguments[1])
		flushMs, _ := strconv.Atoi(arguments[2])
		seed, err := strconv.ParseUint(arguments[3], 10, 64)
		if err != nil {
			return err
		}
		store, err := openCoreStore(arguments[0], coreOptions{flushMs: flushMs})
		if err != nil {
			return err
		}
		session, err := store.session()
		if err != nil {
			return err
		}
		s := crashSession{session}
		fmt.Println("started")
		ended := make(chan struct{})
		go func() {
			io.Copy(io.Discard, os.Stdin)
			close(ended)
		}()
		r := rand.New(rand.NewPCG(seed, 0))
		for round := 0; ; round++ {
			select {
			case <-ended:
				s.close()
				return store.close()
			default:
			}
			waits := flushMs < 1000 && r.IntN(3) == 0
			if !waits {
				time.Sleep(100 * time.Microsecond)
			}
			if err := s.writeRound(store, r, w, round, waits); isCode(err, "NDB_E_SUPERSEDED") {
				fmt.Println("superseded")
				s.unlockAll()
			} else if err != nil {
				return err
			}
		}
	}
	// wait FOLDER: commits, and for each line of input waits until the commit is durable.
	childWork["wait"] = func(arguments []string) (err error) {
		defer catchFault(&err)
		store, err := openCoreStore(arguments[0], coreOptions{flushMs: 60_000})
		if err != nil {
			return err
		}
		session, err := store.session()
		if err != nil {
			return err
		}
		s := crashSession{session}
		s.call(coreCall{what: doBegin})
		s.set(crashKey("^x"), num(1))
		number, err := s.commitNumber()
		if err != nil {
			return err
		}
		fmt.Println("committed")
		fmt.Scanln()
		code, _, _ := strings.Cut(fmt.Sprint(s.wait(number)), ":")
		fmt.Printf("%s, then %s\n", code, s.do(coreCall{what: doGet, key: crashKey("^x")}))
		return nil
	}
	// update FOLDER: commits with Update while the disk fails, then for each line of input waits
	// for the commit.
	childWork["update"] = func(arguments []string) error {
		store, err := nodedb.Open(arguments[0], nodedb.Options{})
		if err != nil {
			return err
		}
		fmt.Println("started")
		fmt.Scanln()
		err = store.Update(context.Background(), func(tx *nodedb.Tx) error { return tx.Set(nodedb.Name("^x"), 1) })
		var failed *nodedb.Error
		if !errors.As(err, &failed) {
			return fmt.Errorf("the update returned %w", err)
		}
		value, getErr := storedValue(store, nodedb.Name("^x"))
		fmt.Printf("%t commit %t, then %v %v\n", errors.Is(err, nodedb.ErrDisk), failed.Commit > 0, value, getErr)
		err = store.Wait(failed.Commit)
		again := failed.Commit
		errors.As(err, &failed)
		fmt.Printf("%t commit %t\n", errors.Is(err, nodedb.ErrDisk), failed.Commit == again)
		fmt.Scanln()
		fmt.Println(store.Wait(again))
		fmt.Println(store.Wait(again))
		return store.Close()
	}
	// read FOLDER: checks snapshots until its input ends.
	childWork["read"] = func(arguments []string) (err error) {
		defer catchFault(&err)
		store, err := openCoreStore(arguments[0], coreOptions{flushMs: 5})
		if err != nil {
			return err
		}
		session, err := store.session()
		if err != nil {
			return err
		}
		s := crashSession{session}
		fmt.Println("started")
		ended := make(chan struct{})
		go func() {
			io.Copy(io.Discard, os.Stdin)
			close(ended)
		}()
		for {
			select {
			case <-ended:
				s.close()
				return store.close()
			default:
			}
			s.call(coreCall{what: doBegin})
			if torn := s.checkSnapshot(); torn != "" {
				fmt.Println("torn", torn)
			}
			s.call(coreCall{what: doRollback})
		}
	}
}

// checkSnapshot reads everything in the open transaction and returns the inconsistencies.
func (s crashSession) checkSnapshot() string {
	total := s.count(crashKey("^total"))
	sum := 0
	for w := range 3 {
		count, last := s.count(crashKey("^count(%d)", w)), s.count(crashKey("^last(%d)", w))
		sum += count
		if count != last {
			return fmt.Sprintf("writer %d: count %d, last %d", w, count, last)
		}
		var want []string
		for n := max(1, count-logKept+1); n <= count; n++ {
			for part := 0; part <= n%4; part++ {
				key := fmt.Sprintf("^log(%d,%d,%d)", w, n, part)
				if part == 0 {
					key = fmt.Sprintf("^log(%d,%d)", w, n)
				}
				want = append(want, key+`="`+crashText(w, n, part)+`"`)
			}
		}
		it, err := s.iterate(crashKey("^log(%d)", w), walkDescendants|walkValues)
		if err != nil {
			return err.Error()
		}
		for i := 0; ; i++ {
			item := it.next()
			if item == "NDB_NONE" && i == len(want) {
				break
			}
			if i >= len(want) || item != want[i] {
				it.close()
				return fmt.Sprintf("writer %d with count %d: entry %d is %.60s", w, count, i, item)
			}
		}
		it.close()
	}
	if sum != total {
		return fmt.Sprintf("total %d, the writers counted %d", total, sum)
	}
	return ""
}

// A crashChild is a writer or reader process, with its last report of durable changes.
type crashChild struct {
	*testChild
	w     int
	done  chan struct{} // closed when its output was read to the end
	mutex sync.Mutex
	count int // durable
	auto  int
	disk  int      // number of disk errors
	stops int      // number of times it was superseded
	lines []string // all other output
}

func startCrashChild(t *testing.T, started bool, work ...any) *crashChild {
	t.Helper()
	c := &crashChild{testChild: startChild(t, work...), done: make(chan struct{})}
	if len(work) > 2 {
		c.w = work[2].(int)
		t.Logf("process %d is writer %d with seed %d", c.Process.Pid, c.w, work[4])
	}
	if started {
		if line := c.read(t); line != "started" {
			t.Fatal(line)
		}
	}
	go c.follow()
	return c
}

func (c *crashChild) follow() {
	defer close(c.done)
	for {
		line, err := c.output.ReadString('\n')
		if err != nil {
			return // ignore a truncated line
		}
		c.mutex.Lock()
		var count, auto int
		if n, _ := fmt.Sscanf(line, "durable %d %d", &count, &auto); n == 2 {
			c.count, c.auto = count, max(c.auto, auto)
		} else if strings.HasPrefix(line, "disk ") {
			c.disk++
		} else if line == "superseded\n" {
			c.stops++
		} else if line != "started\n" {
			c.lines = append(c.lines, strings.TrimSpace(line))
		}
		c.mutex.Unlock()
	}
}

// waitDurable waits until the child has reported durable changes.
func (c *crashChild) waitDurable(t *testing.T) {
	t.Helper()
	said := func() bool {
		c.mutex.Lock()
		defer c.mutex.Unlock()
		return c.count > 0
	}
	for end := time.Now().Add(30 * time.Second); !said(); time.Sleep(time.Millisecond) {
		select {
		case <-c.done:
			t.Fatalf("writer %d has ended and made nothing durable: %q", c.w, c.lines)
		default:
		}
		if time.Now().After(end) {
			t.Fatalf("writer %d has made nothing durable in 30 seconds", c.w)
		}
	}
}

// end kills the child, or lets it close the store, and reads the rest of its output.
func (c *crashChild) end(kill bool) {
	if kill {
		c.Process.Kill()
	} else {
		c.input.Close()
		timer := time.AfterFunc(30*time.Second, func() {
			c.mutex.Lock()
			c.lines = append(c.lines, "it does not end")
			c.mutex.Unlock()
			c.Process.Kill()
		})
		defer timer.Stop()
	}
	<-c.done
	if err := c.Wait(); err != nil && !kill {
		c.lines = append(c.lines, err.Error())
	}
}

// A crashRun counts the findings of the crash tests.
type crashRun struct {
	folder     string
	kills      int
	lost, torn int
	durable    [3]int // counts and autos reported as durable
	auto       [3]int
	problems   []string
}

func (c *crashRun) problem(format string, arguments ...any) {
	c.problems = append(c.problems, fmt.Sprintf(format, arguments...))
}

// heard records the output of ended children.
func (c *crashRun) heard(children ...*crashChild) {
	for _, child := range children {
		c.durable[child.w] = max(c.durable[child.w], child.count)
		c.auto[child.w] = max(c.auto[child.w], child.auto)
		for _, line := range child.lines {
			if strings.HasPrefix(line, "torn ") {
				c.torn++
			}
			c.problem("process %d: %s", child.Process.Pid, line)
		}
	}
}

// inspect opens the store, with no other process, and checks everything.
func (c *crashRun) inspect() (err error) {
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
	statistics, err := store.statistics()
	if err != nil {
		return err
	}
	if statistics.locks != 0 || statistics.readers > 1 || statistics.processes != 1 {
		c.problem("%d locks, %d readers and %d processes are left", statistics.locks, statistics.readers, statistics.processes)
	}
	s.call(coreCall{what: doBegin})
	if torn := s.checkSnapshot(); torn != "" {
		c.torn++
		c.problem("torn: %s", torn)
	}
	s.call(coreCall{what: doRollback})
	for w := range 3 {
		if count := s.count(crashKey("^count(%d)", w)); count < c.durable[w] {
			c.lost += c.durable[w] - count
			c.problem("writer %d: transaction %d was durable, and count is %d", w, c.durable[w], count)
		}
		if auto := s.count(crashKey("^auto(%d)", w)); auto < c.auto[w] {
			c.lost += c.auto[w] - auto
			c.problem("writer %d: %d increments were durable, and there are %d", w, c.auto[w], auto)
		}
	}
	s.close()
	faults, err := store.check()
	if faults != "" {
		c.torn++
		c.problem("check: %s", faults)
	}
	return errors.Join(err, store.close())
}

func crashCount(t *testing.T, variable string, usual int) int {
	if text := os.Getenv(variable); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("%s: %v", variable, err)
		}
		return n
	}
	return usual
}

func (c *crashRun) report(t *testing.T) {
	t.Helper()
	for _, problem := range c.problems[:min(len(c.problems), 20)] {
		t.Error(problem)
	}
	if len(c.problems) > 20 {
		t.Errorf("and %d more", len(c.problems)-20)
	}
}

// TestKilledWriters kills a writer while another writer and a reader run.
func TestKilledWriters(t *testing.T) {
	r := testseed.New(t)
	c := &crashRun{folder: filepath.Join(t.TempDir(), "store")}
	kills := crashCount(t, "PERIGEE_NODE_KILLS", 6)
	for round := 0; c.kills < kills && len(c.problems) == 0; round++ {
		other := startCrashChild(t, true, "write", c.folder, 1, 5, r.Uint64())
		reader := startCrashChild(t, true, "read", c.folder)
		for n := range 4 {
			// Kill it while it opens the store, or while it writes.
			writer := startCrashChild(t, r.IntN(4) > 0, "write", c.folder, 0, 5, r.Uint64())
			if n == 0 {
				writer.waitDurable(t)
			}
			time.Sleep(time.Duration(r.IntN(60_000)) * time.Microsecond)
			writer.end(true)
			c.kills++
			c.heard(writer)
		}
		other.waitDurable(t)
		killOther, killReader := r.IntN(2) == 0, r.IntN(2) == 0
		other.end(killOther)
		reader.end(killReader)
		c.heard(other, reader)
		for _, killed := range []bool{killOther, killReader} {
			if killed {
				c.kills++
			}
		}
		if err := c.inspect(); err != nil {
			c.problem("after the kills: %v", err)
		}
	}
	c.report(t)
	fmt.Printf("figure crash_nodes_kills %d\nfigure crash_nodes_lost %d\nfigure crash_nodes_torn %d\n", c.kills, c.lost, c.torn)
	t.Logf("writers made %v transactions durable", c.durable)
	if min(c.durable[0], c.durable[1]) == 0 {
		t.Errorf("nothing of a writer was ever durable: %v", c.durable)
	}
}

// startHeld starts a writer and waits until it is about to rename the file of a new store.
func (f faults) startHeld(t *testing.T, folder string, seed uint64) *crashChild {
	t.Helper()
	f.set(t, holdRenames)
	writer := f.start(t, false, "write", folder, 0, 5, seed)
	waitFor(t, "a part of a store", func() bool {
		about, err := os.Stat(filepath.Join(folder, "data.new"))
		return err == nil && about.Size() > 0
	})
	return writer
}

func waitFor(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %s in 20 seconds", what)
		}
	}
}

// waiters counts the processes that wait for a lock of a file.
func waiters(t *testing.T, file string) int {
	t.Helper()
	var about syscall.Stat_t
	locks, err := os.ReadFile("/proc/locks")
	if err == nil {
		err = syscall.Stat(file, &about)
	}
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(locks)) {
		if strings.Contains(line, "-> OFDLCK") && strings.Contains(line, fmt.Sprintf(":%d ", about.Ino)) {
			n++
		}
	}
	return n
}

// TestCreatedAtOnce opens a folder with two writers while another one creates the store. They wait
// for it, and do not create the store themselves.
func TestCreatedAtOnce(t *testing.T) {
	r, f := testseed.New(t), newFaults(t)
	c := &crashRun{folder: filepath.Join(t.TempDir(), "store")}
	writers := []*crashChild{f.startHeld(t, c.folder, r.Uint64())}
	for w := 1; w < 3; w++ {
		writers = append(writers, startCrashChild(t, false, "write", c.folder, w, 5, r.Uint64()))
	}
	waitFor(t, "two processes that wait for the creation", func() bool {
		for _, writer := range writers[1:] {
			writer.mutex.Lock()
			count := writer.count
			writer.mutex.Unlock()
			if count > 0 {
				t.Fatalf("writer %d did not wait for the process that makes the store", writer.w)
			}
		}
		return waiters(t, filepath.Join(c.folder, "shared")) == 2
	})
	f.set(t, 0)
	for _, writer := range writers {
		writer.waitDurable(t)
	}
	for _, writer := range writers {
		writer.end(false)
	}
	c.heard(writers...)
	if err := c.inspect(); err != nil {
		c.problem("after the writers have ended: %v", err)
	}
	c.report(t)
}

// TestCreationReplacesNothing creates a file just before a process renames the file of a new store
// to the same name, also on a file system that cannot rename without replacing. Only an empty file
// may be replaced.
func TestCreationReplacesNothing(t *testing.T) {
	r, f := testseed.New(t), newFaults(t)
	for name, fault := range map[string]byte{"no replace": 0, "plain": plainRenames} {
		for _, data := range []string{"precious", ""} {
			t.Run(fmt.Sprintf("%s, %d bytes", name, len(data)), func(t *testing.T) {
				folder := filepath.Join(t.TempDir(), "store")
				writer := f.startHeld(t, folder, r.Uint64())
				file := filepath.Join(folder, "data.mdb")
				if err := os.WriteFile(file, []byte(data), 0o666); err != nil {
					t.Fatal(err)
				}
				f.set(t, fault)
				if data == "" {
					writer.waitDurable(t)
					writer.end(false)
					return
				}
				select {
				case <-writer.done:
				case <-time.After(20 * time.Second):
					t.Fatal("the writer goes on")
				}
				if len(writer.lines) != 1 || !strings.HasPrefix(writer.lines[0], "child: NDB_E_DISK: rename "+folder) {
					t.Errorf("the writer printed %q", writer.lines)
				}
				if is, err := os.ReadFile(file); string(is) != data {
					t.Errorf("the file was replaced: %d bytes, %v", len(is), err)
				}
				if left, err := os.ReadDir(folder); err != nil || len(left) != 2 { // data.mdb and shared
					t.Errorf("left: %v, %v", left, err)
				}
			})
		}
	}
}

// TestStoppedWriter stops a writer for longer than another one waits for the right to write. The
// other continues; the stopped one continues later, and gets an error for its lost changes.
func TestStoppedWriter(t *testing.T) {
	if testing.Short() {
		t.Skip("it stands still for four seconds")
	}
	t.Parallel()
	r := testseed.New(t)
	c := &crashRun{folder: filepath.Join(t.TempDir(), "store")}
	stops := crashCount(t, "PERIGEE_NODE_STOPS", 1)
	superseded := 0
	for range stops {
		writer := startCrashChild(t, true, "write", c.folder, 0, 1000, r.Uint64())
		time.Sleep(time.Duration(300+r.IntN(200)) * time.Millisecond)
		writer.Process.Signal(syscall.SIGSTOP)
		other := startCrashChild(t, true, "write", c.folder, 1, 5, r.Uint64())
		reader := startCrashChild(t, true, "read", c.folder)
		time.Sleep(4 * time.Second)
		writer.Process.Signal(syscall.SIGCONT)
		time.Sleep(500 * time.Millisecond)
		for _, child := range []*crashChild{writer, other, reader} {
			child.end(false)
		}
		c.heard(writer, other, reader)
		superseded += writer.stops
		if err := c.inspect(); err != nil {
			c.problem("after the stop: %v", err)
		}
	}
	if superseded < (stops+1)/2 { // a process stopped during a commit keeps the right to write
		c.problem("%d of %d stopped writers were superseded", superseded, stops)
	}
	c.report(t)
	t.Logf("%d of %d stopped writers were superseded; %v transactions were durable", superseded, stops, c.durable)
	if c.durable[1] == 0 {
		t.Error("nothing was ever durable of the writer that took over")
	}
}

// TestSupersededIsSaidOnce stops a process with a commit that is not durable until another one has
// taken over. Its wait for the commit reports the loss, and its next call succeeds.
func TestSupersededIsSaidOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("it stands still for more than three seconds")
	}
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "store")
	child := startChild(t, "wait", folder)
	if line := child.read(t); line != "committed" {
		t.Fatal(line)
	}
	child.Process.Signal(syscall.SIGSTOP)
	store, err := openCoreStore(folder, coreOptions{flushMs: 5})
	if err != nil {
		t.Fatal(err)
	}
	defer store.close()
	session, err := store.session()
	if err != nil {
		t.Fatal(err)
	}
	defer session.close()
	s := crashSession{session}
	s.set(crashKey("^x"), num(2)) // waits for the right to write
	if err := store.sync(); err != nil {
		t.Fatal(err)
	}
	child.Process.Signal(syscall.SIGCONT)
	fmt.Fprintln(child.input)
	if line := child.read(t); line != "NDB_E_SUPERSEDED, then 2" {
		t.Fatal(line)
	}
}

// faults make a process's system calls fail or wait, as described in testdata/faults.c.
type faults struct{ shim, control string }

const (
	failMeta     = 3
	holdRenames  = 5
	plainRenames = 6
)

func newFaults(t *testing.T) faults {
	t.Helper()
	folder := t.TempDir()
	f := faults{filepath.Join(folder, "faults.so"), filepath.Join(folder, "control")}
	if out, err := exec.Command("cc", "-O2", "-shared", "-fPIC", "-o", f.shim, "testdata/faults.c", "-ldl").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	f.set(t, 0)
	return f
}

func (f faults) set(t *testing.T, fault byte) {
	t.Helper()
	file, err := os.OpenFile(f.control, os.O_CREATE|os.O_WRONLY, 0o666)
	if err == nil {
		_, err = file.WriteAt([]byte{fault}, 0)
		file.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// child is startChild for a child with faults.
func (f faults) child(t *testing.T, work ...any) *testChild {
	t.Helper()
	t.Setenv("LD_PRELOAD", f.shim)
	t.Setenv("NODEDB_FAULTS", f.control)
	t.Setenv("ASAN_OPTIONS", "verify_asan_link_order=0")
	defer os.Unsetenv("LD_PRELOAD")
	return startChild(t, work...)
}

// storedValue returns the value of a node in a snapshot.
func storedValue(s *nodedb.Store, p nodedb.Path) (v nodedb.Value, err error) {
	err = s.View(context.Background(), func(tx *nodedb.Tx) (err error) {
		v, err = tx.Get(p)
		return err
	})
	return v, err
}

// start is startCrashChild for a child with faults.
func (f faults) start(t *testing.T, started bool, work ...any) *crashChild {
	t.Helper()
	t.Setenv("LD_PRELOAD", f.shim)
	t.Setenv("NODEDB_FAULTS", f.control)
	t.Setenv("ASAN_OPTIONS", "verify_asan_link_order=0") // the preloaded library comes before ASan's
	defer os.Unsetenv("LD_PRELOAD")
	return startCrashChild(t, started, work...)
}

// TestUpdateOnFailingDisk commits while the disk fails. The error has the number of the commit,
// which becomes durable when the disk has space again.
func TestUpdateOnFailingDisk(t *testing.T) {
	f := newFaults(t)
	folder := filepath.Join(t.TempDir(), "store")
	f.set(t, 0)
	child := f.child(t, "update", folder)
	if line := child.read(t); line != "started" {
		t.Fatal(line)
	}
	f.set(t, 1)
	fmt.Fprintln(child.input)
	if got, want := child.read(t), "true commit true, then 1 <nil>"; got != want {
		t.Errorf("with a full disk: got %q, want %q", got, want)
	}
	if got, want := child.read(t), "true commit true"; got != want {
		t.Errorf("waiting with a full disk: got %q, want %q", got, want)
	}
	f.set(t, 0)
	fmt.Fprintln(child.input)
	for range 2 {
		if got := child.read(t); got != "<nil>" {
			t.Errorf("waiting with room on the disk: got %q, want <nil>", got)
		}
	}
	if err := child.Wait(); err != nil {
		t.Error(err)
	}
	store, err := nodedb.Open(folder, nodedb.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if value, err := storedValue(store, nodedb.Name("^x")); value.String() != "1" || err != nil {
		t.Errorf("^x is %v, %v after the child has ended, want 1", value, err)
	}
}

// TestKilledAfterFailedMeta kills a process whose commit failed in its meta page: the meta pages are
// as before, and the store opens without the commit.
func TestKilledAfterFailedMeta(t *testing.T) {
	f := newFaults(t)
	folder := filepath.Join(t.TempDir(), "store")
	smallStore(t, folder)
	child := f.child(t, "update", folder)
	if line := child.read(t); line != "started" {
		t.Fatal(line)
	}
	path := filepath.Join(folder, "data.mdb")
	before := readFile(t, path)
	f.set(t, failMeta)
	fmt.Fprintln(child.input)
	if got, want := child.read(t), "true commit true, then 1 <nil>"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	child.Process.Kill()
	child.Wait()
	after := readFile(t, path)
	if !slices.Equal(after[:2*damagePage], before[:2*damagePage]) {
		t.Error("the meta pages were changed")
	}
	if slices.Equal(after, before) {
		t.Error("the commit wrote no pages")
	}
	store, err := nodedb.Open(folder, nodedb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if err := readAll(t, store); err != nil {
		t.Error(err)
	}
}

// TestFailingDisk fills the disk of a writer, also within a run of pages, or makes its syncs fail,
// and then kills it or lets it continue.
func TestFailingDisk(t *testing.T) {
	r := testseed.New(t)
	f := newFaults(t)
	c := &crashRun{folder: filepath.Join(t.TempDir(), "store")}
	failures := crashCount(t, "PERIGEE_NODE_DISK_FAILURES", 4)
	noticed := 0
	for round := 0; round < failures && len(c.problems) == 0; round++ {
		f.set(t, 0)
		writer := f.start(t, true, "write", c.folder, 0, 5, r.Uint64())
		time.Sleep(time.Duration(5+r.IntN(30)) * time.Millisecond)
		f.set(t, byte(1+round%4))
		failing := func() int {
			writer.mutex.Lock()
			defer writer.mutex.Unlock()
			return writer.disk
		}
		for end := time.Now().Add(10 * time.Second); failing() < 2 && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		kill := r.IntN(2) == 0
		if !kill { // the disk has space again
			f.set(t, 0)
			time.Sleep(time.Duration(r.IntN(200)) * time.Millisecond)
		}
		writer.end(kill)
		if writer.disk > 0 {
			noticed++
		}
		c.heard(writer)
		if err := c.inspect(); err != nil {
			c.problem("after fault %d: %v", 1+round%4, err)
		}
	}
	if noticed < failures && len(c.problems) == 0 {
		c.problem("only %d of %d failures of the disk were noticed", noticed, failures)
	}
	c.report(t)
	fmt.Printf("figure crash_nodes_disk_failures %d\nfigure crash_nodes_disk_lost %d\nfigure crash_nodes_disk_torn %d\n", failures, c.lost, c.torn)
	if slices.Max(c.durable[:]) == 0 {
		t.Error("nothing was ever durable")
	}
}
