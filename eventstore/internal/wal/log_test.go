package wal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/perigeedb/perigee/internal/frame"
)

func TestMain(m *testing.M) {
	for variable, run := range map[string]func(folder string) error{
		powercutFolder: appendAndRemove,
		appendForever:  appendUntilKilled,
		openLog:        openTwice,
		removeAtOnce:   rotateAndRemove,
	} {
		if folder := os.Getenv(variable); folder != "" {
			if err := run(folder); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	goleak.VerifyTestMain(m)
}

// small are options for files of a few entries.
var small = Options{Store: "store", FileSize: 4096}

func open(t testing.TB, folder string, o Options) *Log {
	t.Helper()
	l, err := Open(folder, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// reopen closes a log, if it is not nil, and opens it again. It returns the numbers of the
// entries that Open visited.
func reopen(t testing.TB, l *Log, folder string, o Options) (*Log, []int) {
	t.Helper()
	if l != nil {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	var visited []int
	last := Position{}
	l, err := Open(folder, o, func(p Position, e *Entry) error {
		if p.Compare(last) <= 0 {
			t.Errorf("visited position %v after %v", p, last)
		}
		last = p
		i, err := checkNumbered(e)
		visited = append(visited, i)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l, visited
}

func put(t testing.TB, l *Log, i, rows int) Position {
	t.Helper()
	p, err := l.Append(t.Context(), AppendEntry(nil, numbered(i, rows)))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// entries reads the entries that the log reports as durable.
func entries(t testing.TB, l *Log) (numbers []int) {
	t.Helper()
	for _, f := range l.Ends() {
		r, err := OpenReader(l.folder, f.Number)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		for {
			e, err := r.Next(f.End)
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			i, err := checkNumbered(e)
			if err != nil {
				t.Fatal(err)
			}
			numbers = append(numbers, i)
		}
	}
	return numbers
}

func upTo(n int) (numbers []int) {
	for i := range n {
		numbers = append(numbers, i)
	}
	return numbers
}

func TestAppendAndReopen(t *testing.T) {
	folder := t.TempDir()
	var l *Log
	n, last := 0, Position{}
	for range 4 {
		var visited []int
		l, visited = reopen(t, l, folder, small)
		if !slices.Equal(visited, upTo(n)) {
			t.Fatalf("visited %v of %d entries", visited, n)
		}
		for range 7 {
			p := put(t, l, n, 1+n%30)
			if p.Compare(last) <= 0 || p.Compare(l.End()) >= 0 {
				t.Errorf("position %v after %v, and the log ends at %v", p, last, l.End())
			}
			n, last = n+1, p
		}
		if got := entries(t, l); !slices.Equal(got, upTo(n)) {
			t.Fatalf("%v are durable of %d entries", got, n)
		}
	}
	ends := l.Ends()
	if len(ends) < 3 {
		t.Errorf("%d entries are in %d files, want 3 at least", n, len(ends))
	}
	for i, f := range ends {
		if f.Closed != (i < len(ends)-1) || f.Number != uint64(i+1) {
			t.Errorf("file %d of %d is %+v", i, len(ends), f)
		}
	}
}

// TestGroups appends from many goroutines. Each entry must exist once, in the order of
// positions.
func TestGroups(t *testing.T) {
	folder := t.TempDir()
	l := open(t, folder, small)
	const goroutines, each = 8, 20
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			for i := range each {
				if _, err := l.Append(context.Background(), AppendEntry(nil, numbered(g*each+i, 2))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	got := entries(t, l)
	_, visited := reopen(t, l, folder, small)
	if !slices.Equal(got, visited) {
		t.Errorf("%v were durable, and %v after a restart", got, visited)
	}
	slices.Sort(got)
	if !slices.Equal(got, upTo(goroutines*each)) {
		t.Errorf("%v are durable", got)
	}
}

// TestSeveralFrames appends frames together. They must be in one file, whatever its size.
func TestSeveralFrames(t *testing.T) {
	l := open(t, t.TempDir(), small)
	put(t, l, 0, 1)
	var frames []byte
	for i := range 20 {
		frames = AppendEntry(frames, numbered(1+i, 20))
	}
	p, err := l.Append(t.Context(), frames)
	if err != nil {
		t.Fatal(err)
	}
	if ends := l.Ends(); len(ends) != 2 || ends[1].Number != p.File || ends[1].End < int64(len(frames)) {
		t.Errorf("the frames begin at %v, and the files are %+v", p, ends)
	}
	if got := entries(t, l); !slices.Equal(got, upTo(21)) {
		t.Errorf("%v are durable", got)
	}
}

func TestReader(t *testing.T) {
	l := open(t, t.TempDir(), Options{})
	positions := []Position{put(t, l, 0, 5), put(t, l, 1, 5), put(t, l, 2, 5)}
	r, err := OpenReader(l.folder, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.SeekTo(positions[1].Offset)
	for i := 1; i < 3; i++ {
		e, err := r.Next(l.End().Offset)
		if err != nil || r.Position() != positions[i] {
			t.Fatalf("entry %d at %v, %v", i, r.Position(), err)
		}
		if got, err := checkNumbered(e); got != i || err != nil {
			t.Errorf("read entry %d: %v", got, err)
		}
	}
	if _, err := r.Next(l.End().Offset); err != io.EOF {
		t.Errorf("behind the last entry: %v", err)
	}
	put(t, l, 3, 2000) // the reader sees new entries, beyond its window
	if e, err := r.Next(l.End().Offset); err != nil || e.Rows() != 2000 {
		t.Errorf("the new entry: %v", err)
	}
	if _, err := OpenReader(l.folder, 2); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that does not exist: %v", err)
	}
}

func TestRotate(t *testing.T) {
	folder := t.TempDir()
	l := open(t, folder, Options{})
	if err := l.Rotate(t.Context()); err != nil || len(l.Ends()) != 0 {
		t.Fatalf("an empty log has files %+v, %v", l.Ends(), err)
	}
	put(t, l, 0, 1)
	for range 2 { // the second time there is nothing to close
		if err := l.Rotate(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-l.Closed():
	default:
		t.Error("nothing says that a file was closed")
	}
	if ends := l.Ends(); len(ends) != 2 || !ends[0].Closed || ends[1].Closed {
		t.Errorf("the files are %+v", ends)
	}
	end := l.End()
	l, visited := reopen(t, l, folder, Options{})
	if !slices.Equal(visited, upTo(1)) {
		t.Errorf("visited %v", visited)
	}
	if p := put(t, l, 1, 1); p.Compare(end) < 0 {
		t.Errorf("appended at %v, before the end %v of the time before", p, end)
	}
}

// TestAge closes a file when its first entry is old enough, even if the log was reopened in
// between.
func TestAge(t *testing.T) {
	folder := t.TempDir()
	l := open(t, folder, Options{FileAge: time.Hour})
	put(t, l, 0, 1)
	_ = l.Close()
	l = open(t, folder, Options{FileAge: 10 * time.Millisecond})
	waitClosed(t, l, 1)
	put(t, l, 1, 1)
	waitClosed(t, l, 2)
	if got := entries(t, l); !slices.Equal(got, upTo(2)) {
		t.Errorf("%v are durable", got)
	}
}

func waitClosed(t *testing.T, l *Log, number uint64) {
	t.Helper()
	for deadline := time.After(10 * time.Second); ; {
		for _, f := range l.Ends() {
			if f.Number == number && f.Closed {
				return
			}
		}
		select {
		case <-l.Closed():
		case <-deadline:
			t.Fatalf("file %d is not closed: %+v", number, l.Ends())
		}
	}
}

func TestRemoveBefore(t *testing.T) {
	folder := t.TempDir()
	l := open(t, folder, small)
	for i := range 30 {
		put(t, l, i, 20)
	}
	ends := l.Ends()
	last := ends[len(ends)-1].Number
	if err := l.RemoveBefore(3); err != nil {
		t.Fatal(err)
	}
	if got := l.Ends(); got[0].Number != 3 || len(got) != len(ends)-2 {
		t.Errorf("the files are %+v", got)
	}
	if err := l.RemoveBefore(last + 10); err != nil { // the active file stays
		t.Fatal(err)
	}
	if got := l.Ends(); len(got) != 1 || got[0].Number != last {
		t.Errorf("the files are %+v, and %d is the active one", got, last)
	}
	put(t, l, 30, 1)
	_ = l.Close()

	// The process ended between the manifest change and the removal.
	folder = t.TempDir()
	l = open(t, folder, small)
	for i := range 30 {
		put(t, l, i, 20)
	}
	_ = l.Close()
	o := small
	o.First = 4
	l, _ = reopen(t, nil, folder, o)
	if _, err := os.Stat(Path(folder, 3)); !errors.Is(err, os.ErrNotExist) || l.Ends()[0].Number != 4 {
		t.Errorf("file 3: %v; the files are %+v", err, l.Ends())
	}
}

// TestSpareFile removes files that are reused for later ones. None of the old entries may
// reappear, neither while the log is open nor afterwards, and a reader must learn of the
// removal.
func TestSpareFile(t *testing.T) {
	folder := t.TempDir()
	o := small
	l := open(t, folder, o)
	stat := func(number uint64) os.FileInfo {
		info, err := os.Stat(Path(folder, number))
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	n := 0
	fill := func(number uint64) {
		for l.End().File <= number {
			put(t, l, n, 20)
			n++
		}
	}
	fill(1)
	reader, err := OpenReader(folder, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if _, err := reader.Next(l.Ends()[0].End); err != nil {
		t.Fatal(err)
	}
	removed := stat(1)
	l.finishing.Wait() // an unfinished file is not reused
	if err := l.RemoveBefore(2); err != nil {
		t.Fatal(err)
	}
	fill(3) // file 2 was created before
	if number := l.End().File; !os.SameFile(removed, stat(3)) && !os.SameFile(removed, stat(number)) {
		t.Errorf("neither file 3 nor file %d is what was file 1", number)
	}
	reader.SeekTo(FirstFrame)
	reader.window = window{file: reader.file}
	if _, err := reader.Next(1 << 10); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("read from a removed file: %v", err)
	}
	o.First = 2
	there := entries(t, l)
	l, visited := reopen(t, l, folder, o)
	if !slices.Equal(visited, there) {
		t.Errorf("visited %v, and %v were durable", visited, there)
	}
	put(t, l, n, 1)
	if l, visited = reopen(t, l, folder, o); !slices.Equal(visited, append(there, n)) {
		t.Errorf("visited %v, and %v were durable", visited, append(there, n))
	}
	_ = l.Close()
	if files, err := os.ReadDir(folder); err != nil || strings.Contains(fmt.Sprint(files), spareName) || strings.Contains(fmt.Sprint(files), nextName) {
		t.Errorf("closed, the folder has %v, %v", files, err)
	}
}

// TestScrub searches the disk for entries of removed files, for each state of the reused
// file: spare, prepared, active without entries and with some.
func TestScrub(t *testing.T) {
	for state := range 4 {
		folder := t.TempDir()
		l := open(t, folder, small)
		n := 0
		fill := func(files uint64) {
			for until := l.End().File + files; l.End().File < until; n++ {
				put(t, l, n, 10) // more than three quarters of a file
			}
		}
		fill(2)
		first := l.End().File
		const removed = "row 3 of entry 1row" // and not of entry 10
		l.finishing.Wait()                    // an unfinished file is not reused
		if err := l.RemoveBefore(first); err != nil {
			t.Fatal(err)
		}
		switch state {
		case 1:
			fill(1)
		case 2:
			fill(1)
			if err := l.Rotate(t.Context()); err != nil {
				t.Fatal(err)
			}
		case 3:
			fill(2)
		}
		waitPrepared(l)                                       // the spare file may get its name
		if filesWith(t, folder, removed) == 0 && state == 0 { // later it may be overwritten
			t.Error("the entry is gone before")
		}
		there := entries(t, l)
		if err := l.Scrub(t.Context()); err != nil {
			t.Fatal(err)
		}
		if files := filesWith(t, folder, removed); files > 0 {
			t.Errorf("state %d: %d files have the entry", state, files)
		}
		waitPrepared(l)
		if open := openBelow(t, folder); len(open) > 2 {
			t.Errorf("state %d: %q are open, not the active and the prepared file alone", state, open)
		}
		put(t, l, n, 1)
		n++
		fill(1)
		for i := there[len(there)-1] + 1; i < n; i++ {
			there = append(there, i)
		}
		o := small
		o.First = first
		if _, visited := reopen(t, l, folder, o); !slices.Equal(visited, there) {
			t.Errorf("state %d: visited %v, want %v", state, visited, there)
		}
	}
}

// waitPrepared waits until the file after the active one is prepared, if preparing it has
// begun.
func waitPrepared(l *Log) {
	for end := time.Now().Add(30 * time.Second); len(l.preparing) < cap(l.preparing) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

func filesWith(t *testing.T, folder, text string) (n int) {
	t.Helper()
	files, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		content, err := os.ReadFile(filepath.Join(folder, f.Name()))
		if err == nil && strings.Contains(string(content), text) {
			n++
		}
	}
	return n
}

func TestChanged(t *testing.T) {
	l := open(t, t.TempDir(), small)
	changed := l.Changed()
	select {
	case <-changed:
		t.Fatal("nothing has changed")
	default:
	}
	put(t, l, 0, 1)
	<-changed
	changed = l.Changed()
	_ = l.Close()
	<-changed
	<-l.Changed()
}

func TestClose(t *testing.T) {
	l := open(t, t.TempDir(), small)
	put(t, l, 0, 1)
	for range 2 {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := l.Append(t.Context(), AppendEntry(nil, numbered(1, 1))); !errors.Is(err, ErrClosed) {
		t.Errorf("append after Close: %v", err)
	}
	if err := l.Rotate(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("rotate after Close: %v", err)
	}
}

// TestFailedWrite makes a write fail, in a file with entries and in one without. The next
// commit continues in another file, and the failed file is closed.
func TestFailedWrite(t *testing.T) {
	for name, rotate := range map[string]bool{"with entries": false, "without entries": true} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			l := open(t, folder, small)
			put(t, l, 0, 1)
			if rotate {
				if err := l.Rotate(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			readOnly, err := os.Open(Path(folder, l.active.number))
			if err != nil {
				t.Fatal(err)
			}
			_ = l.active.Close()
			l.active.File = readOnly
			if _, err := l.Append(t.Context(), AppendEntry(nil, numbered(1, 1))); err == nil || !strings.Contains(err.Error(), "write to the event log, file 0000") {
				t.Errorf("append to a file that cannot be written: %v", err)
			}
			put(t, l, 1, 1)
			if got := entries(t, l); !slices.Equal(got, upTo(2)) {
				t.Errorf("%v are durable", got)
			}
			l, visited := reopen(t, l, folder, small)
			if !slices.Equal(visited, upTo(2)) {
				t.Errorf("visited %v", visited)
			}
			_ = l.Close()
			if left := openBelow(t, folder); len(left) > 0 {
				t.Errorf("%q are open after Close", left)
			}
			runtime.KeepAlive(readOnly) // keeps the collector from closing it
		})
	}
}

// TestNoNextFile makes creating or renaming the next file fail. The commit fails, no file
// stays open, and the log continues afterwards.
func TestNoNextFile(t *testing.T) {
	t.Run("too large", func(t *testing.T) {
		folder := t.TempDir()
		l := open(t, folder, Options{FileSize: 1 << 62})
		for range 2 {
			if _, err := l.Append(t.Context(), AppendEntry(nil, numbered(0, 1))); err == nil || !strings.Contains(err.Error(), "begin a file of the event log: allocate") {
				t.Errorf("a file that no disk has room for: %v", err)
			}
			if left := openBelow(t, folder); len(left) > 0 || list(t, folder) != "" {
				t.Errorf("%q are open, and the folder has %s", left, list(t, folder))
			}
		}
	})
	t.Run("name in use", func(t *testing.T) {
		folder := t.TempDir()
		l := open(t, folder, small)
		put(t, l, 0, 1)
		if err := os.MkdirAll(filepath.Join(Path(folder, 2), "in the way"), 0o700); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := l.Rotate(t.Context()); err == nil || !strings.Contains(err.Error(), "close a file of the event log") {
				t.Errorf("rotate: %v", err)
			}
			if left := openBelow(t, folder); len(left) != 1 {
				t.Errorf("%q are open, not the active file alone", left)
			}
		}
		put(t, l, 1, 1) // there is space in the active file
		if err := os.RemoveAll(Path(folder, 2)); err != nil {
			t.Fatal(err)
		}
		if err := l.Rotate(t.Context()); err != nil {
			t.Error(err)
		}
		put(t, l, 2, 1)
		if _, visited := reopen(t, l, folder, small); !slices.Equal(visited, upTo(3)) {
			t.Errorf("visited %v", visited)
		}
	})
}

func TestCanceled(t *testing.T) {
	l := open(t, t.TempDir(), small)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Append(ctx, AppendEntry(nil, numbered(0, 1))); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if got := entries(t, l); len(got) != 0 {
		t.Errorf("%v are durable", got)
	}
}

// TestClosedFileGivesRoomBack closes a nearly empty file. Its preallocated space becomes
// free, and the log stays intact.
func TestClosedFileGivesRoomBack(t *testing.T) {
	folder := t.TempDir()
	o := Options{FileSize: 1 << 20}
	l := open(t, folder, o)
	put(t, l, 0, 1)
	if err := l.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	put(t, l, 1, 1)
	end := l.Ends()[0].End
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(Path(folder, 1))
	if err != nil || info.Size() < end || info.Size() > end+100 {
		t.Errorf("a closed file with entries up to %d has %d bytes, %v", end, info.Size(), err)
	}
	if _, visited := reopen(t, nil, folder, o); !slices.Equal(visited, upTo(2)) {
		t.Errorf("visited %v", visited)
	}
}

// TestRefused makes invalid requests.
func TestRefused(t *testing.T) {
	folder := t.TempDir()
	if _, err := Open(folder, Options{Store: strings.Repeat("s", storeMax+1)}, nil); err == nil || !strings.Contains(err.Error(), "more than 32 bytes") {
		t.Errorf("a long id: %v", err)
	}
	o := small
	o.Store = strings.Repeat("s", storeMax)
	l := open(t, folder, o)
	put(t, l, 0, 1)
	if l, visited := reopen(t, l, folder, o); !slices.Equal(visited, upTo(1)) {
		t.Errorf("with the longest id, %s, visited %v", l.options.Store, visited)
	}
	good := AppendEntry(nil, numbered(1, 1))
	changed := func(length int) []byte {
		f := slices.Clone(good)
		frame.PutPrefix(f, length, 0)
		return f
	}
	l = open(t, t.TempDir(), small)
	for name, frames := range map[string][]byte{
		"nothing":                 nil,
		"a frame that is cut off": good[:len(good)-8],
		"a frame and a half":      append(slices.Clone(good), good[:len(good)/2]...),
		"no trailer":              changed(trailerSize - 8),
		"nothing but a trailer":   changed(trailerSize),
		"not a multiple of 8":     changed(trailerSize + 1),
		"longer than it is":       changed(len(good)),
	} {
		if _, err := l.Append(t.Context(), frames); err == nil {
			t.Errorf("%s was appended", name)
		}
	}
	if end := l.End(); end != (Position{File: 1, Offset: FirstFrame}) || len(l.Ends()) > 0 {
		t.Errorf("the log ends at %v", end)
	}
	o = small
	o.ReadOnly = true
	readOnly := open(t, folder, Options{Store: strings.Repeat("s", storeMax), ReadOnly: true})
	for what, err := range map[string]error{
		"RemoveBefore": readOnly.RemoveBefore(9), "Rotate": readOnly.Rotate(t.Context()), "Scrub": readOnly.Scrub(t.Context()),
		"Append": func() error { _, err := readOnly.Append(t.Context(), good); return err }(),
	} {
		if !errors.Is(err, ErrReadOnly) {
			t.Errorf("%s of a log that is open read-only: %v", what, err)
		}
	}
	_ = l.Close()
	if err := l.Scrub(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("Scrub after Close: %v", err)
	}
}

// TestOddNames checks that other files in the folder are not taken for log files.
func TestOddNames(t *testing.T) {
	folder := t.TempDir()
	build(t, folder, small, 2, 1)
	content, err := os.ReadFile(Path(folder, 1))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"2.log", "00000000000000000002", "00000000000000000002.log.old", "-0000000000000000002.log", "+0000000000000000002.log", "99999999999999999999.log"} {
		if err := os.WriteFile(folder+"/"+name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if l, visited := reopen(t, nil, folder, small); !slices.Equal(visited, upTo(2)) || len(l.Ends()) != 1 {
		t.Errorf("visited %v, files %+v", visited, l.Ends())
	}
}

// TestFullFile fills a file to its last byte. With one entry less of space, the next file
// begins.
func TestFullFile(t *testing.T) {
	l := open(t, t.TempDir(), Options{FileSize: 1 << 20})
	put(t, l, 0, 5)
	if p := put(t, l, 1, 5); p.File != l.Ends()[0].Number {
		t.Fatalf("the second entry is at %v", p)
	}
	end := l.Ends()[0].End
	for size, files := range map[int64]int{end + 1: 1, end: 1, end - 1: 2} {
		l := open(t, t.TempDir(), Options{FileSize: size})
		put(t, l, 0, 5)
		put(t, l, 1, 5)
		if n := len(l.Ends()); n != files {
			t.Errorf("two entries that take %d bytes are in %d files of %d", end, n, size)
		}
	}
}

// TestNothingToDo removes and scrubs when there is nothing to remove. The log stays
// unchanged.
func TestNothingToDo(t *testing.T) {
	l := open(t, t.TempDir(), small)
	if err := errors.Join(l.RemoveBefore(10), l.Scrub(t.Context()), l.Rotate(t.Context())); err != nil || len(l.Ends()) > 0 {
		t.Errorf("of an empty log: %v, files %+v", err, l.Ends())
	}
	put(t, l, 0, 1)
	before := l.Ends()
	if err := errors.Join(l.RemoveBefore(1), l.Scrub(t.Context())); err != nil || !reflect.DeepEqual(before, l.Ends()) {
		t.Errorf("%v, files %+v, and before %+v", err, l.Ends(), before)
	}
	put(t, l, 1, 1)
	if got := entries(t, l); !slices.Equal(got, upTo(2)) || len(l.Ends()) != 1 {
		t.Errorf("%v are durable, in files %+v", got, l.Ends())
	}
}

// TestOpenLeavesClosedFiles checks that Open never changes a closed file.
func TestOpenLeavesClosedFiles(t *testing.T) {
	folder := t.TempDir()
	o := Options{FileSize: 1200}
	last := build(t, folder, o, 20, 5)[19].File
	read := func() (all []string) {
		for number := range last - 1 {
			content, err := os.ReadFile(Path(folder, number+1))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, string(content))
		}
		return all
	}
	before := read()
	for range 2 {
		_ = open(t, folder, o).Close()
	}
	if !slices.Equal(before, read()) {
		t.Error("opening the log has changed a closed file")
	}
}

func TestComparePositions(t *testing.T) {
	ascending := []Position{{}, {0, 1}, {1, 0}, {1, 128}, {1, 129}, {2, 0}, {2, 129}}
	for i, p := range ascending {
		for k, q := range ascending {
			if got := p.Compare(q); (got < 0) != (i < k) || (got > 0) != (i > k) {
				t.Errorf("%v compared with %v is %d", p, q, got)
			}
		}
	}
}
