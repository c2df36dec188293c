// Package powercut tests what a program leaves on a disk when the power fails, and what
// it does when the disk fails it. The program needs no seam for that: strace records its
// system calls, or lets some of them fail.
//
// Record runs a program, usually the test itself in another process, and records every
// change below one folder. The program prints a line for each thing that it acknowledges.
// From the recording, Cut builds the folder as a disk may have it after the power was cut
// at some moment, and returns what was acknowledged until then. It is as strict as POSIX:
//
//   - The contents of a file survive what happened before a sync of that file, and names
//     what happened before a sync of the folder that they are in. A file that is synced,
//     in a folder that is not, may have no name.
//   - Sectors of 512 bytes that were written since the last sync have what they had at
//     some moment since then, each at another; the size of the file has its own moment.
//   - Each unsynced create, rename and remove has happened or not. A rename alone is
//     atomic.
//   - A write, rename or remove during which a process was killed has happened if the next
//     process found it so.
//   - After a sync of a file that failed, no later sync makes durable what it should have.
//
// The program may begin other processes, which open their files themselves; what they print
// is no acknowledgement. It changes files by system calls: Record fails if it maps one to
// write to it that the run does not leave out. SmallDisk is for tests of a full disk.
package powercut

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	factorVariable    = "PERIGEE_POWERCUTS" // how many times as many cuts and faults tests make
	recordingVariable = "PERIGEE_RECORDING" // the folder of a recording, which is replayed
)

// A Recording is what programs did to the files of a folder. Its methods may be called
// by one goroutine at a time.
type Recording struct {
	folder string // with the files of the recording, to replay it
	disk   *disk
}

// A Run is one process of a recording. Fault, if it is not empty, lets system calls fail or
// wait, in the words of strace: "fdatasync,fsync:error=EIO:when=2", "fsync:signal=KILL:when=5",
// "ftruncate:delay_enter=500000" (microseconds). It counts the calls of each thread. There may be several faults, with spaces in between.
//
// LeaveOut has the names of files that are worth nothing once the power was cut, such as
// those by which processes lock each other, and which they may map to write to them. They
// are left out of the whole recording, in all folders: no cut leaves them on the disk.
type Run struct {
	Command  *exec.Cmd
	Fault    string
	LeaveOut []string
}

// SelfRun is the test binary once more, with more in its environment, by which TestMain finds
// the work to do.
func SelfRun(fault string, env ...string) Run {
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), env...)
	return Run{Command: command, Fault: fault}
}

// Record runs commands, one after the other, and records what they do below a folder. What
// is there before is durable. A command must end without an error, unless it is killed by
// its fault. It skips the test under -short, as hundreds of cuts take long.
func Record(t testing.TB, folder string, runs ...Run) *Recording {
	t.Helper()
	if testing.Short() {
		t.Skip("cuts the power")
	}
	r := &Recording{folder: filepath.Join(t.TempDir(), "recording")}
	if replayed := os.Getenv(recordingVariable); replayed != "" && nameOf(replayed) == t.Name() {
		r.folder = replayed
	} else if err := r.record(t, folder, runs); err != nil {
		t.Fatal(err)
	}
	if err := r.load(runs); err != nil {
		t.Fatalf("read the recording: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() && os.Getenv(recordingVariable) == "" {
			r.keep(t)
		}
	})
	return r
}

// Files of a recording. Those of traces have a number behind the name.
const (
	traceFile    = "trace"
	leftFolder   = "left" // what each run but the last has left
	beforeFolder = "before"
	folderFile   = "folder"
	testFile     = "test" // its name
)

func nameOf(recording string) string {
	name, _ := os.ReadFile(filepath.Join(recording, testFile))
	return string(name)
}

func (r *Recording) record(t testing.TB, folder string, runs []Run) error {
	strace, err := exec.LookPath("strace")
	if runtime.GOOS != "linux" {
		t.Skip("strace records on Linux alone")
	} else if err != nil {
		return errors.New("strace is not installed: tools/setup.sh servers installs it")
	}
	folder, err = filepath.EvalSymlinks(folder)
	if err != nil {
		return err
	}
	err = errors.Join(
		os.CopyFS(filepath.Join(r.folder, beforeFolder), os.DirFS(folder)),
		os.WriteFile(filepath.Join(r.folder, folderFile), []byte(folder), 0o600),
		os.WriteFile(filepath.Join(r.folder, testFile), []byte(t.Name()), 0o600))
	if err != nil {
		return fmt.Errorf("begin a recording: %w", err)
	}
	for i, run := range runs {
		if err := run.trace(strace, r.tracePath(i)); err != nil {
			return err
		}
		if i == len(runs)-1 {
			break
		}
		if err := os.CopyFS(r.leftPath(i), os.DirFS(folder)); err != nil {
			return fmt.Errorf("keep what the process left: %w", err)
		}
	}
	return nil
}

func (r *Recording) leftPath(run int) string {
	return filepath.Join(r.folder, fmt.Sprint(leftFolder, run))
}

func (r *Recording) tracePath(run int) string {
	return filepath.Join(r.folder, fmt.Sprint(traceFile, run))
}

// trace runs the command under strace, which writes to a file. A program that hangs is ended.
func (run *Run) trace(strace, to string) error {
	args := []string{strace, "-f", "-qq", "-y", "-xx", "-s", strconv.Itoa(1 << 26), "-o", to}
	traced := tracedCalls
	for _, fault := range strings.Fields(run.Fault) {
		calls, _, _ := strings.Cut(fault, ":")
		traced += "," + calls
		args = append(args, "-e", "inject="+fault)
	}
	args = append(args, "-e", "trace="+traced)
	if run.Fault == "" {
		args = append(args, "--seccomp-bpf") // is faster, and does not let calls fail
	}
	c := run.Command
	c.Path, c.Args = strace, slices.Concat(args, []string{c.Path}, c.Args[1:])
	var output bytes.Buffer
	c.Stdout, c.Stderr = &output, &output
	err := runFor(traceMax, c)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() < 0 && strings.Contains(run.Fault, "signal=") {
		return nil // strace ends by the signal that ended the process
	}
	if err != nil {
		text := output.String()
		return fmt.Errorf("the recorded program ended with %w, after\n%s", err, text[max(0, len(text)-4000):])
	}
	trace, err := os.ReadFile(to)
	if err == nil && run.Fault != "" && !bytes.Contains(trace, []byte("(INJECTED)")) && !bytes.Contains(trace, []byte("(DELAYED)")) {
		err = fmt.Errorf("the fault %s has not come up", run.Fault)
	}
	return err
}

func (r *Recording) load(runs []Run) error {
	var leaveOut []string
	for _, run := range runs {
		leaveOut = append(leaveOut, run.LeaveOut...)
	}
	folder, err := os.ReadFile(filepath.Join(r.folder, folderFile))
	if err != nil {
		return err
	}
	if r.disk, err = newDisk(string(folder), filepath.Join(r.folder, beforeFolder), leaveOut); err != nil {
		return err
	}
	for run, line := 0, 0; ; run++ {
		trace, err := os.ReadFile(r.tracePath(run))
		if errors.Is(err, fs.ErrNotExist) && run > 0 {
			return nil
		}
		if err != nil {
			return err
		}
		r.disk.left = ""
		if run < len(runs)-1 {
			r.disk.left = r.leftPath(run)
		}
		if line, err = r.disk.replay(trace, line); err != nil {
			return err
		}
	}
}

// keep copies the recording of a test that failed to where it outlives the test.
func (r *Recording) keep(t testing.TB) {
	kept, err := os.MkdirTemp("", "powercut-")
	if err == nil {
		err = os.CopyFS(kept, os.DirFS(r.folder))
	}
	t.Logf("the recording is in %s (%v): %s replays it, with -run '%s/seed=N' for one cut", kept, err, recordingVariable+"="+kept, t.Name())
}

// Said returns all lines that the program printed.
func (r *Recording) Said() []string {
	whole := &cut{line: 1 << 62}
	return whole.said(r.disk.said)
}

// Cut cuts the power at a moment of the last run, and in a way, that the seed decides. It
// returns a folder with what is left on the disk, and the lines that all runs had begun to
// print.
func (r *Recording) Cut(t testing.TB, seed uint64) (folder string, said []string) {
	t.Helper()
	c := newCut(seed, r.disk.points)
	return build(t, c.entries(r.disk)), c.said(r.disk.said)
}

// build builds the folder that a power cut left.
func build(t testing.TB, entries []leftEntry) (folder string) {
	t.Helper()
	folder = filepath.Join(tempDir(t), "disk")
	if err := writeTo(folder, entries); err != nil {
		t.Fatalf("build the folder after the power cut: %v", err)
	}
	return folder
}

// tempDir is like t.TempDir, in memory if there is a file system for that: its files
// need not survive anything.
func tempDir(t testing.TB) string {
	const memory = "/dev/shm"
	folder, err := os.MkdirTemp(memory, "powercut-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return folder
}

// EachCut cuts the power n times, and calls check with what each leaves: in a subtest that
// is named for its seed. Of cuts that leave the same files and lines, it checks the first.
func (r *Recording) EachCut(t *testing.T, n int, check func(t *testing.T, folder string, said []string)) {
	t.Helper()
	r.expectChanges(t)
	seen := sums{}
	for seed := range uint64(n * factor()) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { r.checkCut(t, newCut(seed, r.disk.points), seen, check) })
	}
}

// EachLoss cuts the power at every moment of the last run, once for each single write, each
// file and each name that is not synced at that moment, and loses nothing but that. Unlike
// EachCut it cannot miss a sync that is not there; it is for short runs. Of losses that leave
// the same files and lines, it checks the first.
func (r *Recording) EachLoss(t *testing.T, check func(t *testing.T, folder string, said []string)) {
	t.Helper()
	r.expectChanges(t)
	seen := sums{}
	for _, c := range r.losses() {
		t.Run(c.String(), func(t *testing.T) { r.checkCut(t, c, seen, check) })
	}
}

func (r *Recording) losses() (cuts []*cut) {
	lines := slices.Clone(r.disk.points)
	slices.Sort(lines)
	for _, line := range slices.Compact(lines) {
		cuts = append(cuts, r.disk.losses(line)...)
	}
	return cuts
}

func (r *Recording) expectChanges(t *testing.T) {
	t.Helper()
	if len(r.disk.names) == 0 || len(r.disk.said) == 0 {
		t.Fatal("the program has changed nothing, or has printed nothing")
	}
}

// sums are those of what was checked.
type sums map[[sha256.Size]byte]bool

func (r *Recording) checkCut(t *testing.T, c *cut, seen sums, check func(t *testing.T, folder string, said []string)) {
	entries, said := c.entries(r.disk), c.said(r.disk.said)
	sum := sumOf(entries, said)
	if seen[sum] {
		return
	}
	seen[sum] = true
	folder := build(t, entries)
	check(t, folder, said)
	if t.Failed() {
		t.Logf("the disk had\n%s", list(folder))
	}
}

// factor is 1 in short tests.
func factor() int {
	n, _ := strconv.Atoi(os.Getenv(factorVariable))
	return max(n, 1)
}

// SomeOf yields some of the numbers from 1 to n, and all of them in long tests: for runs
// whose fault is in their n-th call. They are odd and even by turns, because programs often
// sync two files by turns.
func SomeOf(n int) iter.Seq[int] {
	step := max(n/5/factor(), 1) | 1
	return func(yield func(int) bool) {
		for i := 1; i <= n && yield(i); i += step {
		}
	}
}

// list lists the files of a folder.
func list(folder string) string {
	var text strings.Builder
	_ = filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if info, err := e.Info(); err == nil && !e.IsDir() {
			fmt.Fprintf(&text, "%9d %s\n", info.Size(), strings.TrimPrefix(path, folder+"/"))
		}
		return nil
	})
	return text.String()
}
