package powercut

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const (
	toyVariable    = "PERIGEE_TEST_TOY"
	folderVariable = "PERIGEE_TEST_FOLDER"
	lineVariable   = "PERIGEE_TEST_LINE"
	mappedLock     = "mapped lock" // is not a toy: it needs a run that leaves a file out
)

func TestMain(m *testing.M) {
	if name := os.Getenv(toyVariable); name != "" {
		run := toys[name].run
		if name == mappedLock {
			run = mapLock
		}
		if err := run(os.Getenv(folderVariable)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A toy is a program that stores, prints what it has stored, and is right or wrong.
type toy struct {
	right bool
	run   func(folder string) error
	check func(folder string, said []string) error
}

func sync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// appendLog appends lines of 100 bytes to a file, and syncs what it is told to sync. The last
// line counts only if it is whole.
func appendLog(syncFile, syncFolder, syncParent bool) func(folder string) error {
	return func(folder string) error {
		folder = filepath.Join(folder, "made", "here")
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return err
		}
		if syncParent {
			if err := errors.Join(sync(filepath.Dir(folder)), sync(filepath.Dir(filepath.Dir(folder)))); err != nil {
				return err
			}
		}
		f, err := os.Create(filepath.Join(folder, "log"))
		if err != nil {
			return err
		}
		if syncFolder {
			if err := sync(folder); err != nil {
				return err
			}
		}
		for i := range 20 {
			line := fmt.Sprintf("%0100d", i)
			if _, err := f.WriteString(line + "\n"); err != nil {
				return err
			}
			if syncFile {
				if err := f.Sync(); err != nil {
					return err
				}
			}
			fmt.Println(line)
		}
		return f.Close()
	}
}

func checkLog(folder string, said []string) error {
	text, err := os.ReadFile(filepath.Join(folder, "made", "here", "log"))
	if err != nil && len(said) > 0 {
		return err
	}
	for i, line := range said {
		if !strings.HasPrefix(string(text), strings.Join(said[:i+1], "\n")+"\n") {
			return fmt.Errorf("line %s is gone", line)
		}
	}
	return nil
}

// replaceFile writes a file of two sectors again and again.
func replaceFile(replace func(path string, data []byte) error) func(folder string) error {
	return func(folder string) error {
		for i := range 10 {
			if err := replace(filepath.Join(folder, "file"), version(i)); err != nil {
				return err
			}
			fmt.Println(i)
		}
		return nil
	}
}

func version(i int) []byte { return []byte(strings.Repeat(fmt.Sprint(i), 1024)) }

func checkFile(folder string, said []string) error {
	text, err := os.ReadFile(filepath.Join(folder, "file"))
	if errors.Is(err, os.ErrNotExist) && len(said) == 0 {
		return nil
	}
	for i := max(0, len(said)-1); i < 10; i++ {
		if string(text) == string(version(i)) {
			return nil
		}
	}
	return fmt.Errorf("after %d versions the file has %d bytes %.20q, %v", len(said), len(text), text, err)
}

func renameOver(syncFile, syncFolder bool) func(path string, data []byte) error {
	return func(path string, data []byte) error {
		if err := os.WriteFile(path+".new", data, 0o600); err != nil {
			return err
		}
		if syncFile {
			if err := sync(path + ".new"); err != nil {
				return err
			}
		}
		if err := os.Rename(path+".new", path); err != nil {
			return err
		}
		if syncFolder {
			return sync(filepath.Dir(path))
		}
		return nil
	}
}

// twoFiles counts in one file and lists in another. Each must have what the other has.
func twoFiles(dataFirst bool) func(folder string) error {
	return func(folder string) error {
		rows, err := os.Create(filepath.Join(folder, "rows"))
		if err != nil {
			return err
		}
		count, err := os.OpenFile(filepath.Join(folder, "count"), os.O_WRONLY|os.O_CREATE|syscall.O_DSYNC, 0o600)
		if err != nil {
			return err
		}
		if err := sync(folder); err != nil {
			return err
		}
		for i := range 10 {
			_, err := rows.WriteString("row\n")
			if dataFirst {
				err = errors.Join(err, rows.Sync())
			}
			_, werr := count.WriteAt(fmt.Appendf(nil, "%d", i+1), 0)
			if err = errors.Join(err, werr, rows.Sync()); err != nil {
				return err
			}
			fmt.Println(i)
		}
		return errors.Join(rows.Close(), count.Close())
	}
}

func checkTwo(folder string, said []string) error {
	rows, _ := os.ReadFile(filepath.Join(folder, "rows"))
	text, _ := os.ReadFile(filepath.Join(folder, "count"))
	var count int
	_, _ = fmt.Sscan(string(text), &count)
	if have := strings.Count(string(rows), "row\n"); have < count || count < len(said) {
		return fmt.Errorf("%d rows, the count is %d, %d were acknowledged", have, count, len(said))
	}
	return nil
}

// cutBack writes over what it cut off, and syncs once for both.
func cutBack(folder string) error {
	f, err := os.Create(filepath.Join(folder, "file"))
	if err != nil {
		return err
	}
	if err := sync(folder); err != nil {
		return err
	}
	for i := range 10 {
		_, err := f.WriteAt(version(i), 0)
		if err = errors.Join(err, f.Truncate(600), f.Sync()); err != nil {
			return err
		}
		fmt.Println(i)
	}
	return nil
}

var toys = map[string]toy{
	"log":                      {true, appendLog(true, true, true), checkLog},
	"log, file not synced":     {false, appendLog(false, true, true), checkLog},
	"log, folder not synced":   {false, appendLog(true, false, true), checkLog},
	"log, parent not synced":   {false, appendLog(true, true, false), checkLog},
	"file":                     {true, replaceFile(renameOver(true, true)), checkFile},
	"file, data not synced":    {false, replaceFile(renameOver(false, true)), checkFile},
	"file, name not synced":    {false, replaceFile(renameOver(true, false)), checkFile},
	"file, overwritten":        {false, replaceFile(overwrite), checkFile},
	"two files":                {true, twoFiles(true), checkTwo},
	"two files, count first":   {false, twoFiles(false), checkTwo},
	"truncated and synced":     {true, cutBack, checkCutBack},
	"offsets of a descriptor":  {true, useOffsets, checkOffsets},
	"calls of several threads": {true, manyThreads, checkThreads},
	"another process":          {true, anotherProcess(true), checkLog},
	"another, not synced":      {false, anotherProcess(false), checkLog},
}

func overwrite(path string, data []byte) error {
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return err
	}
	return errors.Join(sync(path), sync(filepath.Dir(path)))
}

func checkCutBack(folder string, said []string) error {
	text, err := os.ReadFile(filepath.Join(folder, "file"))
	if len(said) > 0 && len(text) < 600 {
		return fmt.Errorf("%d bytes after %d versions, %v", len(text), len(said), err)
	}
	return nil
}

// useOffsets writes by descriptors that were read, sought, duplicated and opened to append.
func useOffsets(folder string) error {
	path := filepath.Join(folder, "file")
	if err := os.WriteFile(path, []byte("0123456789"), 0o600); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	_, err = io.ReadFull(f, make([]byte, 2))
	_, err1 := f.WriteString("ab")
	_, err2 := f.Seek(7, io.SeekStart)
	fd, err3 := syscall.Dup(int(f.Fd()))
	_, err4 := syscall.Write(fd, []byte("c"))
	_, err5 := f.WriteString("d")
	end, err6 := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	_, err7 := end.WriteString("!")
	if err := errors.Join(err, err1, err2, err3, err4, err5, err6, err7, f.Sync(), sync(folder)); err != nil {
		return err
	}
	fmt.Println("done")
	return nil
}

func checkOffsets(folder string, said []string) error {
	text, _ := os.ReadFile(filepath.Join(folder, "file"))
	if len(said) > 0 && string(text) != "01ab456cd9!" {
		return fmt.Errorf("the file has %q", text)
	}
	return nil
}

// manyThreads has threads append to files of their own at the same time.
func manyThreads(folder string) error {
	errs := make(chan error)
	for i := range 4 {
		go func() { errs <- appendNumbers(filepath.Join(folder, fmt.Sprint(i)), i) }()
	}
	var all error
	for range 4 {
		all = errors.Join(all, <-errs)
	}
	return all
}

func appendNumbers(path string, thread int) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := sync(filepath.Dir(path)); err != nil {
		return err
	}
	for i := range 20 {
		line := fmt.Sprintf("%d %d\n", thread, i)
		if _, err := f.WriteString(line); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
		fmt.Print(line)
	}
	return f.Close()
}

func checkThreads(folder string, said []string) error {
	for _, line := range said {
		text, _ := os.ReadFile(filepath.Join(folder, line[:1]))
		if !strings.Contains(string(text), line+"\n") {
			return fmt.Errorf("%s is gone", line)
		}
	}
	return nil
}

// anotherProcess has a process for each line of the log, while files are open here under the
// descriptors that it uses.
func anotherProcess(syncs bool) func(folder string) error {
	return func(folder string) error {
		if os.Getenv(lineVariable) != "" {
			return appendLine(folder, syncs)
		}
		folder = filepath.Join(folder, "made", "here")
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return err
		}
		var opened []*os.File
		for i := range 8 {
			f, err := os.Create(filepath.Join(folder, fmt.Sprint(i)))
			if err != nil {
				return err
			}
			opened = append(opened, f)
		}
		for i := range 20 {
			line := fmt.Sprintf("%0100d", i)
			command := exec.Command(os.Args[0])
			command.Env = append(os.Environ(), lineVariable+"="+line)
			if output, err := command.CombinedOutput(); err != nil {
				return fmt.Errorf("%w: %s", err, output)
			}
			if _, err := opened[i%8].WriteString("and here\n"); err != nil {
				return err
			}
			fmt.Println(line)
		}
		return nil
	}
}

func appendLine(folder string, syncs bool) error {
	folder = filepath.Join(folder, "made", "here")
	f, err := os.OpenFile(filepath.Join(folder, "log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	fmt.Println("no acknowledgement")
	if _, err := f.WriteString(os.Getenv(lineVariable) + "\n"); err != nil || !syncs {
		return err
	}
	return errors.Join(f.Sync(), sync(folder), sync(filepath.Dir(folder)), sync(filepath.Dir(filepath.Dir(folder))))
}

func recordToy(t *testing.T, name string) *Recording {
	folder := t.TempDir()
	return Record(t, folder, SelfRun("", toyVariable+"="+name, folderVariable+"="+folder))
}

// TestToys finds the toys that are wrong, and no others.
func TestToys(t *testing.T) {
	for name, toy := range toys {
		t.Run(name, func(t *testing.T) {
			r := recordToy(t, name)
			failures := 0
			for seed := range uint64(100) {
				folder, said := r.Cut(t, seed)
				err := toy.check(folder, said)
				if err != nil && toy.right {
					t.Errorf("seed %d: %v", seed, err)
				} else if err != nil {
					failures++
				}
			}
			if !toy.right && failures == 0 {
				t.Errorf("no cut found the fault")
			}
			failures = 0
			for _, c := range r.losses() {
				err := toy.check(build(t, c.entries(r.disk)), c.said(r.disk.said))
				if err != nil && toy.right {
					t.Errorf("%v: %v", c, err)
				} else if err != nil {
					failures++
				}
			}
			if !toy.right && failures == 0 {
				t.Errorf("no single loss found the fault")
			}
		})
	}
}

// TestChecksOnce loses each single change of a program that appends 20 lines and syncs each: a
// loss that leaves what another has left is not checked again, and each that differs is.
func TestChecksOnce(t *testing.T) {
	r := recordToy(t, "log")
	describe := func(folder string, said []string) string {
		text, _ := os.ReadFile(filepath.Join(folder, "made", "here", "log")) // its name may be lost
		var names []string
		_ = filepath.WalkDir(folder, func(path string, _ os.DirEntry, err error) error {
			names = append(names, strings.TrimPrefix(path, folder))
			return err
		})
		return fmt.Sprintf("%q %s %q", names, text, said)
	}
	want, losses := map[string]int{}, r.losses()
	for _, c := range losses {
		want[describe(build(t, c.entries(r.disk)), c.said(r.disk.said))] = 1
	}
	got := map[string]int{}
	r.EachLoss(t, func(_ *testing.T, folder string, said []string) { got[describe(folder, said)]++ })
	if !maps.Equal(got, want) {
		t.Errorf("%d different losses were checked, some of them again, want %d once each", len(got), len(want))
	}
	if len(want) < 20 || len(want) == len(losses) {
		t.Errorf("%d of %d losses differ", len(want), len(losses))
	}
}

// mapLock has a log beside a file that it maps to write to it.
func mapLock(folder string) error {
	f, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(4096); err != nil {
		return err
	}
	lock, err := syscall.Mmap(int(f.Fd()), 0, 4096, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return err
	}
	lock[0] = 1
	return appendLog(true, true, true)(folder)
}

// TestLeaveOut records a program that maps a file to write to it if that is left out, and no cut
// has the file, also if it was there before.
func TestLeaveOut(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "lock"), []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func() Run { return SelfRun("", toyVariable+"="+mappedLock, folderVariable+"="+folder) }
	refused := &Recording{folder: filepath.Join(t.TempDir(), "recording")}
	if err := refused.record(t, folder, []Run{run()}); err != nil {
		t.Fatal(err)
	}
	if err := refused.load([]Run{run()}); err == nil || !strings.Contains(err.Error(), "mmap changes a file in a way that is not recorded") {
		t.Errorf("the map of a file that is not left out: %v", err)
	}
	last := run()
	last.LeaveOut = []string{"lock"}
	r := Record(t, folder, last)
	for seed := range uint64(20) {
		left, said := r.Cut(t, seed)
		if err := checkLog(left, said); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		if _, err := os.Stat(filepath.Join(left, "lock")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("seed %d: what is left out is there, %v", seed, err)
		}
	}
}

// TestSyncedWrites makes writes by O_DSYNC and O_SYNC durable as soon as they have returned, and
// one that the end of the process has cut off not at all.
func TestSyncedWrites(t *testing.T) {
	for flags, synced := range map[string]bool{"O_DSYNC": true, "O_SYNC": true, "O_ASYNC": false, "O_CLOEXEC": false} {
		d, err := newDisk("/d", t.TempDir(), nil)
		if err != nil {
			t.Fatal(err)
		}
		trace := `1 openat(AT_FDCWD, "\x2f\x64\x2f\x66", O_WRONLY|O_CREAT|` + flags + `, 0600) = 3</d/f>
1 pwrite64(3</d/f>, "\x61", 1, 0) = 1
1 pwrite64(3</d/f>, "\x62", 1, 0 <unfinished ...>
1 +++ killed by SIGKILL +++
`
		end, err := d.replay([]byte(trace), 0)
		if err != nil {
			t.Fatal(err)
		}
		changes := d.root.entries["f"].changes
		if len(changes) != 2 {
			t.Fatalf("%s: %d changes, and the process began 2", flags, len(changes))
		}
		if got := changes[0].durable < end; got != synced {
			t.Errorf("%s: a write that returned is durable: %v, want %v", flags, got, synced)
		}
		if changes[1].durable != unsynced {
			t.Errorf("%s: a write that has not returned is durable from line %d on", flags, changes[1].durable)
		}
	}
}

// TestKilledInACall: a call that had not returned when its process was killed happened if the next
// process found it so.
func TestKilledInACall(t *testing.T) {
	for _, test := range []struct {
		call        string
		left, bytes string   // of the file f
		after       []string // names of the file in the end
	}{
		{`pwrite64(3<\x2f\x64\x2f\x66>, "\x62", 1, 1)`, "ab", "b", []string{"f"}},
		{`pwrite64(3<\x2f\x64\x2f\x66>, "\x62", 1, 1)`, "ac", "", []string{"f"}},
		{`pwrite64(3<\x2f\x64\x2f\x66>, "\x62", 1, 1)`, "a", "", []string{"f"}},
		{`write(3<\x2f\x64\x2f\x66>, "\x62", 1 <unfinished ...>`, "b", "b", []string{"f"}},
		{`rename("\x2f\x64\x2f\x66", "\x2f\x64\x2f\x67")`, "a", "", []string{"f"}},
		{`rename("\x2f\x64\x2f\x66", "\x2f\x64\x2f\x67")`, "", "", []string{"g"}},
		{`unlink("\x2f\x64\x2f\x66")`, "a", "", []string{"f"}},
		{`unlink("\x2f\x64\x2f\x66")`, "", "", nil},
	} {
		d, err := newDisk("/d", t.TempDir(), nil)
		if err != nil {
			t.Fatal(err)
		}
		d.left = t.TempDir()
		if test.left != "" {
			if err := os.WriteFile(filepath.Join(d.left, "f"), []byte(test.left), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		line := test.call
		if !strings.HasSuffix(line, ">") {
			line += " = ?"
		}
		if _, err := d.replay([]byte("1 openat(AT_FDCWD, \"\\x2f\\x64\\x2f\\x66\", O_WRONLY|O_CREAT, 0600) = 3</d/f>\n1 "+line+"\n1 +++ killed by SIGKILL +++\n"), 0); err != nil {
			t.Fatal(err)
		}
		file := d.names[0].to
		var written string
		for _, c := range file.changes {
			written += string(c.data)
		}
		names := map[string]*inode{}
		for _, name := range test.after {
			names[name] = file
		}
		if written != test.bytes || !maps.Equal(d.root.entries, names) {
			t.Errorf("%s, left %q: written %q, names %v", test.call, test.left, written, d.root.entries)
		}
	}
}

// TestWrongTrace names the line that cannot be read.
func TestWrongTrace(t *testing.T) {
	_, _, err := parseTrace([]byte("1 close(3) = 0\n\n1 not a call\n"), 100)
	if err == nil || !strings.Contains(err.Error(), "line 3 of the trace: ") {
		t.Errorf("got %v", err)
	}
}
