package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/frame"
	"github.com/perigeedb/perigee/internal/leaktest"
	"github.com/perigeedb/perigee/internal/powercut"
)

// build appends entries 0 to n-1, each with the given number of rows, to a log, closes it,
// and returns their positions.
func build(t testing.TB, folder string, o Options, n, rows int) []Position {
	t.Helper()
	l := open(t, folder, o)
	var positions []Position
	for i := range n {
		positions = append(positions, put(t, l, i, rows))
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return positions
}

// copyOf copies the folder of a log.
func copyOf(t testing.TB, folder string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "log")
	if err := os.CopyFS(to, os.DirFS(folder)); err != nil {
		t.Fatal(err)
	}
	return to
}

// changeFile rewrites a log file.
func changeFile(t testing.TB, folder string, number uint64, change func(content []byte) []byte) {
	t.Helper()
	path := Path(folder, number)
	content, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, change(content), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestTornTail opens logs with a partly missing last commit. The earlier entries exist, and
// the log continues.
func TestTornTail(t *testing.T) {
	folder := t.TempDir()
	o := Options{FileSize: 8192}
	last := build(t, folder, o, 3, 5)[2]
	size := len(AppendEntry(nil, numbered(2, 5)))
	tear := map[string]func(b []byte, at int){
		"zeros":   func(b []byte, at int) { clear(b[at:]) },
		"garbage": func(b []byte, at int) { copy(b[at:], bytes.Repeat([]byte("garbage!"), size/8)) },
		"hole":    func(b []byte, at int) { clear(b[at : at+8]) },
	}
	for name, tear := range tear {
		for at := 0; at < size; at += 40 {
			torn := copyOf(t, folder)
			changeFile(t, torn, 1, func(b []byte) []byte {
				tear(b, int(last.Offset)+at)
				return b
			})
			l, visited := reopen(t, nil, torn, o)
			if !slices.Equal(visited, upTo(2)) {
				t.Fatalf("%s at %d: visited %v", name, at, visited)
			}
			if p := put(t, l, 2, 4); p != last {
				t.Errorf("%s at %d: the next entry is at %v, not %v", name, at, p, last)
			}
			if _, visited = reopen(t, l, torn, o); !slices.Equal(visited, upTo(3)) {
				t.Fatalf("%s at %d: visited %v after one more", name, at, visited)
			}
		}
	}
	short := copyOf(t, folder) // as on a file system without preallocation
	changeFile(t, short, 1, func(b []byte) []byte { return b[:last.Offset+20] })
	if _, visited := reopen(t, nil, short, o); !slices.Equal(visited, upTo(2)) {
		t.Errorf("visited %v of a short file", visited)
	}
}

// TestTornGroup loses the first of several frames of one commit. The other frames are dropped
// too.
func TestTornGroup(t *testing.T) {
	folder := t.TempDir()
	l := open(t, folder, small)
	put(t, l, 0, 1)
	p, err := l.Append(t.Context(), AppendEntry(AppendEntry(AppendEntry(nil, numbered(1, 2)), numbered(2, 2)), numbered(3, 2)))
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	changeFile(t, folder, p.File, func(b []byte) []byte {
		b[p.Offset+20] ^= 1
		return b
	})
	l, visited := reopen(t, nil, folder, small)
	if !slices.Equal(visited, upTo(1)) {
		t.Errorf("visited %v", visited)
	}
	put(t, l, 1, 2) // the old second frame would now follow it
	if _, visited = reopen(t, l, folder, small); !slices.Equal(visited, upTo(2)) {
		t.Errorf("visited %v after one more", visited)
	}
}

// TestForeignFrames puts frames after the last entry that were written for another place:
// another file, whose blocks this file now has, or another offset.
func TestForeignFrames(t *testing.T) {
	folder, other := t.TempDir(), t.TempDir()
	positions := build(t, folder, small, 2, 2)
	build(t, other, small, 3, 2)
	foreign, err := os.ReadFile(Path(other, 1))
	if err != nil {
		t.Fatal(err)
	}
	end := open(t, copyOf(t, folder), small).End().Offset
	for name, stale := range map[string]func(b []byte) []byte{
		"another file":   func([]byte) []byte { return foreign[end:] },
		"another offset": func(b []byte) []byte { return b[positions[1].Offset:end] },
	} {
		spoilt := copyOf(t, folder)
		changeFile(t, spoilt, 1, func(b []byte) []byte {
			copy(b[end:], slices.Clone(stale(b)))
			return b
		})
		if _, visited := reopen(t, nil, spoilt, small); !slices.Equal(visited, upTo(2)) {
			t.Errorf("frames of %s: visited %v", name, visited)
		}
	}
}

// TestTornFirstCommit loses part of the first commit of a file.
func TestTornFirstCommit(t *testing.T) {
	folder := t.TempDir()
	l := open(t, folder, small)
	put(t, l, 0, 1)
	if err := l.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	var frames []byte
	for i := range 3 {
		frames = AppendEntry(frames, numbered(1+i, 2))
	}
	if _, err := l.Append(t.Context(), frames); err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	changeFile(t, folder, 2, func(b []byte) []byte {
		b[headerSize+20] ^= 1
		return b
	})
	l, visited := reopen(t, nil, folder, small)
	if !slices.Equal(visited, upTo(1)) {
		t.Errorf("visited %v", visited)
	}
	if p := put(t, l, 1, 1); p.File != 2 {
		t.Errorf("the next entry is at %v", p)
	}
	if _, visited = reopen(t, l, folder, small); !slices.Equal(visited, upTo(2)) {
		t.Errorf("visited %v after one more", visited)
	}
}

// TestCopiedFrame stores a row that looks like a log frame. A torn tail must still be
// recognized.
func TestCopiedFrame(t *testing.T) {
	folder := t.TempDir()
	l := open(t, folder, small)
	put(t, l, 0, 1)
	e := numbered(1, 1)
	fake := AppendEntry(nil, numbered(9, 1))
	var b []byte
	for offset := int64(0); offset < 2000; offset += 8 { // wherever it may be placed
		stamp(fake, trailer{commit: offset, offset: offset, key: 0x1234567812345678})
		b = append(b, fake...)
	}
	e.Columns.Vectors[1] = event.Vector{Bytes: b, Ends: []uint32{uint32(len(b))}}
	p, err := l.Append(t.Context(), AppendEntry(nil, e))
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	changeFile(t, folder, p.File, func(b []byte) []byte {
		b[p.Offset+16] ^= 1
		return b
	})
	if _, visited := reopen(t, nil, folder, small); !slices.Equal(visited, upTo(1)) {
		t.Errorf("visited %v", visited)
	}
}

// openDamaged checks that opening a damaged log returns a *DamageError with all the texts and
// a hint. It returns the log opened read-only, and the entries that Open visited.
func openDamaged(t *testing.T, folder string, o Options, texts ...string) (*Log, []int) {
	t.Helper()
	_, err := Open(folder, o, nil)
	damage, ok := errors.AsType[*DamageError](err)
	if !ok {
		t.Fatalf("opened with %v", err)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q does not say %q", err, text)
		}
	}
	if !strings.Contains(event.HintOf(err), "read-only") {
		t.Errorf("the hint is %q", event.HintOf(err))
	}
	before := list(t, folder)
	o.ReadOnly = true
	l, visited := reopen(t, nil, folder, o)
	if len(l.Damage()) != len(damage.Damage) {
		t.Errorf("read-only, the damage is %v, not %v", l.Damage(), damage.Damage)
	}
	if _, err := l.Append(t.Context(), AppendEntry(nil, numbered(0, 1))); !errors.Is(err, ErrReadOnly) {
		t.Errorf("append to a log that is open read-only: %v", err)
	}
	if after := list(t, folder); after != before {
		t.Errorf("opened read-only, the folder changed from\n%s to\n%s", before, after)
	}
	return l, visited
}

// list returns the names and contents of a folder.
func list(t testing.TB, folder string) string {
	t.Helper()
	files, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, f := range files {
		content, err := os.ReadFile(filepath.Join(folder, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString(f.Name())
		text.Write(binary.LittleEndian.AppendUint32(nil, frame.Checksum(0, content)))
	}
	return text.String()
}

// TestDamage damages any acknowledged entry except the last. The error names its place, and
// the other entries remain readable.
func TestDamage(t *testing.T) {
	folder := t.TempDir()
	o := Options{FileSize: 1200}
	const n = 12
	positions := build(t, folder, o, n, 5)
	for i, p := range positions[:n-1] {
		spoilt := copyOf(t, folder)
		changeFile(t, spoilt, p.File, func(b []byte) []byte {
			if i%2 == 0 {
				b[p.Offset+100] ^= 4
			} else {
				clear(b[p.Offset : p.Offset+16]) // including the prefix
			}
			return b
		})
		l, visited := openDamaged(t, spoilt, o, Path(spoilt, p.File), "unknown number of rows", "from offset ")
		if want := slices.Delete(upTo(n), i, i+1); !slices.Equal(visited, want) {
			t.Fatalf("entry %d spoilt: visited %v", i, visited)
		}
		var read []int
		for _, f := range l.Ends() {
			read = append(read, readAround(t, spoilt, f)...)
			for _, s := range f.Damaged {
				if s.Begin != p.Offset || f.Number != p.File {
					t.Errorf("entry at %v spoilt, and file %d has damage %+v", p, f.Number, s)
				}
			}
		}
		if !slices.Equal(read, visited) {
			t.Errorf("entry %d spoilt: read %v, visited %v", i, read, visited)
		}
	}
}

// readAround reads the entries of a file around its damaged parts.
func readAround(t testing.TB, folder string, f FileEnd) (numbers []int) {
	t.Helper()
	r, err := OpenReader(folder, f.Number)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, s := range append(f.Damaged, Span{f.End, f.End}) {
		for {
			e, err := r.Next(s.Begin)
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
		if _, err := r.Next(s.End); s.Begin < s.End && !errors.Is(err, frame.ErrDamaged) {
			t.Errorf("read from a damaged part: %v", err)
		}
		r.SeekTo(s.End)
	}
	return numbers
}

// TestDamagedEnd truncates or damages the last entry of a closed file. That is damage, not a
// torn tail.
func TestDamagedEnd(t *testing.T) {
	folder := t.TempDir()
	o := Options{FileSize: 1200}
	positions := build(t, folder, o, 12, 5)
	i := slices.IndexFunc(positions, func(p Position) bool { return p.File == 2 }) - 1
	for name, change := range map[string]func(b []byte) []byte{
		"cut off": func(b []byte) []byte { return b[:positions[i].Offset] },
		"zeroed":  func(b []byte) []byte { clear(b[positions[i].Offset:]); return b },
		"flipped": func(b []byte) []byte { b[positions[i].Offset+90] ^= 1; return b },
	} {
		t.Run(name, func(t *testing.T) {
			spoilt := copyOf(t, folder)
			changeFile(t, spoilt, 1, change)
			_, visited := openDamaged(t, spoilt, o, Path(spoilt, 1))
			if want := slices.Delete(upTo(12), i, i+1); !slices.Equal(visited, want) {
				t.Errorf("visited %v", visited)
			}
		})
	}
}

func TestMissingFiles(t *testing.T) {
	folder := t.TempDir()
	o := Options{FileSize: 1200}
	positions := build(t, folder, o, 20, 5)
	last := positions[19].File
	for _, missing := range [][]uint64{{1}, {2}, {2, 3}, {last}, {1, last}} {
		spoilt := copyOf(t, folder)
		for _, number := range missing {
			if err := os.Remove(Path(spoilt, number)); err != nil {
				t.Fatal(err)
			}
		}
		_, visited := openDamaged(t, spoilt, o, Path(spoilt, missing[0]), "missing")
		var want []int
		for i, p := range positions {
			if !slices.Contains(missing, p.File) {
				want = append(want, i)
			}
		}
		if !slices.Equal(visited, want) {
			t.Errorf("without files %v: visited %v, want %v", missing, visited, want)
		}
	}
	o.First = last + 1 // the manifest names a missing file
	openDamaged(t, copyOf(t, folder), o, Path("", last+1), "missing")
}

func TestDamagedHeader(t *testing.T) {
	folder := t.TempDir()
	build(t, folder, small, 3, 5)
	for at := range headerSize {
		spoilt := copyOf(t, folder)
		changeFile(t, spoilt, 1, func(b []byte) []byte {
			b[at] ^= 1
			return b
		})
		openDamaged(t, spoilt, small, Path(spoilt, 1), "header")
	}
	renamed := copyOf(t, folder)
	if err := os.Rename(Path(renamed, 1), Path(renamed, 2)); err != nil {
		t.Fatal(err)
	}
	openDamaged(t, renamed, small, Path(renamed, 1), "missing", "file number 1 under another name")
	o := small
	o.Store = "another"
	openDamaged(t, folder, o, "belongs to another store, store")
}

// TestNewerFormat checks that a newer format is rejected and not reported as damage.
func TestNewerFormat(t *testing.T) {
	folder := t.TempDir()
	build(t, folder, small, 1, 1)
	changeFile(t, folder, 1, func(b []byte) []byte {
		b[8]++
		binary.LittleEndian.PutUint32(b[124:], frame.Checksum(0, b[:124]))
		return b
	})
	_, err := Open(folder, small, nil)
	if _, damage := errors.AsType[*DamageError](err); damage || !errors.Is(err, errFormat) {
		t.Error(err)
	}
}

// TestVisitFails opens a log with a visit function that rejects an entry.
func TestVisitFails(t *testing.T) {
	folder := t.TempDir()
	build(t, folder, small, 3, 1)
	refused := errors.New("refused")
	if _, err := Open(folder, small, func(Position, *Entry) error { return refused }); !errors.Is(err, refused) {
		t.Error(err)
	}
	if _, visited := reopen(t, nil, folder, small); !slices.Equal(visited, upTo(3)) {
		t.Errorf("visited %v afterwards", visited)
	}
}

// TestOpenReadOnly reads an intact log and a missing one.
func TestOpenReadOnly(t *testing.T) {
	folder := t.TempDir()
	build(t, folder, small, 3, 1)
	before := list(t, folder)
	o := small
	o.ReadOnly = true
	if l, visited := reopen(t, nil, folder, o); !slices.Equal(visited, upTo(3)) || len(l.Damage()) != 0 {
		t.Errorf("visited %v, damage %v", visited, l.Damage())
	}
	if list(t, folder) != before {
		t.Errorf("got the files\n%s\nwant as before\n%s", list(t, folder), before)
	}
	missing := filepath.Join(folder, "missing")
	if l, _ := reopen(t, nil, missing, o); len(l.Ends()) != 0 {
		t.Errorf("files %+v", l.Ends())
	}
	if _, err := os.Stat(missing); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder was made: %v", err)
	}
}

// openBelow returns the open files of this process below a folder.
func openBelow(t *testing.T, folder string) (names []string) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("the system does not list open files: ", err)
	}
	for _, fd := range all {
		if name, err := os.Readlink(filepath.Join("/proc/self/fd", fd.Name())); err == nil && strings.HasPrefix(name, folder) {
			names = append(names, name)
		}
	}
	return names
}

// TestOpenClosesFiles opens logs that fail to open, and one that is repaired and closed. No
// file may stay open.
func TestOpenClosesFiles(t *testing.T) {
	folder := t.TempDir()
	positions := build(t, folder, Options{FileSize: 1200}, 20, 5)
	opened := func() []string { return openBelow(t, filepath.Dir(folder)) }
	torn := copyOf(t, folder)
	last := positions[len(positions)-1]
	changeFile(t, torn, last.File, func(b []byte) []byte { b[last.Offset+20] ^= 1; return b })
	l := open(t, torn, Options{FileSize: 1200})
	put(t, l, 100, 1)
	_ = l.Close()
	if left := opened(); len(left) > 0 {
		t.Errorf("%q are open after Close", left)
	}
	for name, change := range map[string]func(b []byte) []byte{
		"a newer format": func(b []byte) []byte {
			b[8]++
			binary.LittleEndian.PutUint32(b[124:], frame.Checksum(0, b[:124]))
			return b
		},
		"a damaged header": func(b []byte) []byte { b[20] ^= 1; return b },
		"a damaged entry":  func(b []byte) []byte { b[300] ^= 1; return b },
		"no header":        func([]byte) []byte { return nil },
	} {
		for number := range uint64(3) {
			spoilt := copyOf(t, folder)
			changeFile(t, spoilt, number+1, change)
			var damage *DamageError
			_, err := Open(spoilt, Options{FileSize: 1200}, nil)
			if name == "a newer format" && !errors.Is(err, errFormat) || name != "a newer format" && !errors.As(err, &damage) {
				t.Errorf("%s in file %d: %v", name, number+1, err)
			}
			if err != nil && !strings.Contains(err.Error(), Path(spoilt, number+1)) {
				t.Errorf("%s in file %d: %v does not name it", name, number+1, err)
			}
			if left := opened(); len(left) > 0 {
				t.Fatalf("%s in file %d: %q are open", name, number+1, left)
			}
			if r, err := OpenReader(spoilt, number+1); err == nil {
				_ = r.Close()
			}
			if left := opened(); len(left) > 0 {
				t.Fatalf("%s in file %d: %q are open after OpenReader", name, number+1, left)
			}
		}
	}
}

func TestDamageIsNamed(t *testing.T) {
	folder := t.TempDir()
	o := Options{FileSize: 1200}
	build(t, folder, o, 20, 5)
	for _, number := range []uint64{2, 3} {
		if err := os.Remove(Path(folder, number)); err != nil {
			t.Fatal(err)
		}
	}
	changeFile(t, folder, 1, func(b []byte) []byte { clear(b[headerSize+64:][:64]); return b })
	_, err := Open(folder, o, nil)
	damage, ok := errors.AsType[*DamageError](err)
	if !ok || len(damage.Damage) != 2 {
		t.Fatalf("%v", err)
	}
	for _, d := range damage.Damage {
		want := Path(folder, 2) + ": and the 1 files after it are missing"
		if d.Path == Path(folder, 1) {
			want = Path(folder, 1) + ": the "
		}
		if !strings.HasPrefix(d.String(), want) {
			t.Errorf("%s, want %s", d, want)
		}
	}
	if hint := damage.ErrorHint(); !strings.Contains(hint, "restore the folder from a backup") {
		t.Errorf("got hint %q, want one that says to restore the folder from a backup", hint)
	}
	if !strings.Contains(err.Error(), "; ") || !strings.HasPrefix(damage.Error(), "the event log has lost an unknown number of rows: ") {
		t.Error(err)
	}
}

const openLog = "WAL_OPEN" // turns the test's process into one that opens a log twice

// A printer prints the errors of a test in a process that is not one.
type printer struct{ testing.TB }

func (printer) Helper() {}

func (printer) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// openTwice opens a log normally and then read-only, and prints the results and the files
// that stay open. It runs in a separate thread: strace counts calls by thread, and the first
// thread has loaded libraries.
func openTwice(folder string) error {
	runtime.LockOSThread()
	ended := make(chan error)
	go func() {
		runtime.LockOSThread()
		var err error
		leaktest.Closed(printer{}, folder, func() { err = openTwiceHere(folder) })
		ended <- err
	}()
	return <-ended
}

func openTwiceHere(folder string) error {
	for _, readOnly := range []bool{false, true} {
		visited := 0
		l, err := Open(logFolder(folder), Options{FileSize: 1 << 20, ReadOnly: readOnly}, func(Position, *Entry) error {
			visited++
			return nil
		})
		if err != nil {
			fmt.Println("failed", err)
			continue
		}
		fmt.Println("visited", visited, "damage", l.Damage())
		_ = l.Close()
	}
	return os.WriteFile(filepath.Join(folder, "done"), nil, 0o600) // a recording needs a change
}

// TestUnreadable opens a log with a part that the disk cannot read. Even at the end of the
// last file that is damage, and not a torn tail to truncate.
func TestUnreadable(t *testing.T) {
	for n := range powercut.SomeOf(4) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			folder := t.TempDir()
			l := open(t, logFolder(folder), Options{FileSize: 1 << 20})
			for i := range 40 {
				put(t, l, i, 500)
			}
			ends := l.Ends()
			_ = l.Close()
			// Reads 1 and 2 of the file are of its header and its beginMark.
			run := powercut.SelfRun(fmt.Sprintf("pread64:error=EIO:when=%d+", 2+n), openLog+"="+folder)
			said := powercut.Record(t, folder, run).Said()
			if len(said) != 2 || !strings.HasPrefix(said[0], "failed") || !strings.Contains(said[0], "cannot be read") || !strings.Contains(said[0], "input/output error") {
				t.Errorf("the process says %q", said)
			}
			l, visited := reopen(t, nil, logFolder(folder), Options{FileSize: 1 << 20}) // the disk works again
			if len(visited) != 40 || l.Ends()[0].End != ends[0].End {
				t.Errorf("visited %d entries of 40", len(visited))
			}
		})
	}
}

// TestRewriteUnreadable rewrites a commit that cannot be read. It must stay unchanged.
func TestRewriteUnreadable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	content := bytes.Repeat([]byte("entry"), 100)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := rewrite(f, 100, 400); !errors.Is(err, syscall.EBADF) {
		t.Errorf("it ends with %v", err)
	}
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, content) {
		t.Errorf("the file holds %q, %v", now, err)
	}
}

// FuzzOpen opens a log with arbitrary content after a header. Open succeeds or reports
// damage, and always succeeds read-only. Entries appended to an opened log exist afterwards.
func FuzzOpen(f *testing.F) {
	folder := f.TempDir()
	positions := build(f, folder, Options{FileSize: 2048}, 4, 3)
	whole, err := os.ReadFile(Path(folder, 1))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole[headerSize:], 0, byte(0))
	f.Add(whole[headerSize:], int(positions[1].Offset-headerSize+30), byte(1))
	f.Add(whole[headerSize:], int(positions[2].Offset-headerSize), byte(255))
	f.Fuzz(func(t *testing.T, content []byte, at int, flip byte) {
		folder := t.TempDir()
		content = append(whole[:headerSize:headerSize], content...)
		if at >= 0 && headerSize+at < len(content) {
			content[headerSize+at] ^= flip
		}
		if err := os.WriteFile(Path(folder, 1), content, 0o600); err != nil {
			t.Fatal(err)
		}
		visited := 0
		count := func(Position, *Entry) error { visited++; return nil }
		l, err := Open(folder, Options{FileSize: 2048, ReadOnly: true}, count)
		if err != nil {
			t.Fatalf("read-only: %v", err)
		}
		readable, damage := visited, len(l.Damage())
		_ = l.Close()
		visited = 0
		l, err = Open(folder, Options{FileSize: 2048}, count)
		if _, damaged := errors.AsType[*DamageError](err); damaged != (damage > 0) || err != nil && !damaged {
			t.Fatalf("%d damages, and %v", damage, err)
		}
		if err != nil {
			return
		}
		if visited != readable {
			t.Fatalf("visited %d entries, read-only %d", visited, readable)
		}
		put(t, l, 1000, 1)
		_ = l.Close()
		visited = 0
		if l, err = Open(folder, Options{FileSize: 2048}, count); err != nil || visited != readable+1 {
			t.Fatalf("visited %d entries and one more, and then %d, %v", readable, visited, err)
		}
		_ = l.Close()
	})
}

// TestUnknownSize opens a log while the disk does not report the size of a file. That is an
// error.
func TestUnknownSize(t *testing.T) {
	folder := t.TempDir()
	l := open(t, logFolder(folder), Options{FileSize: 1 << 20})
	put(t, l, 0, 1)
	_ = l.Close()
	said := powercut.Record(t, folder, powercut.SelfRun("fstat:error=EIO", openLog+"="+folder)).Said()
	if len(said) != 2 || !strings.HasPrefix(said[0], "failed") || !strings.Contains(said[0], "input/output error") {
		t.Errorf("the process says %q", said)
	}
}
