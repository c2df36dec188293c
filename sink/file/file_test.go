package file

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/zstd"
	"go.uber.org/goleak"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/leaktest"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/sinktest"
)

func TestMain(m *testing.M) {
	if folder := os.Getenv("FILE_WRITE_FOREVER"); folder != "" {
		writeForever(folder)
	}
	if folder := os.Getenv(powercutFolder); folder != "" {
		if err := writeAndEnd(folder, os.Getenv(powercutMode)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func newSink(t testing.TB, pipeline string, c Config) *Sink {
	t.Helper()
	s, err := New(sink.Env{Pipeline: pipeline}, c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// lines returns the documents of all files in a folder that count, in order.
func lines(t testing.TB, folder string) (all []string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(folder, "*ndjson*"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text = unpack(t, name, text)
		all = append(all, strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")...)
	}
	return slices.DeleteFunc(all, func(s string) bool { return s == "" })
}

func unpack(t testing.TB, name string, packed []byte) []byte {
	t.Helper()
	var in io.Reader = bytes.NewReader(packed)
	var err error
	switch {
	case len(packed) == 0:
	case strings.Contains(name, ".gz"):
		in, err = gzip.NewReader(in)
	case strings.Contains(name, ".zst"):
		var d *zstd.Decoder
		if d, err = zstd.NewReader(in); err == nil {
			defer d.Close()
			in = d
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(in)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func copyFolder(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

func TestConformance(t *testing.T) {
	for i, c := range []Config{{}, {Pack: "gzip"}, {Pack: "zstd"}, {Order: "any"}} {
		run := sinktest.Run
		if i > 0 {
			run = sinktest.RunVariant
		}
		t.Run(c.Pack+c.Order, func(t *testing.T) {
			run(t, func(t *testing.T) sinktest.Place {
				folder := t.TempDir()
				c.Folder, c.Bytes = folder, 10_000
				return sinktest.Place{
					Guarantee: sink.ExactlyOnce,
					Ordered:   sinktest.IsOrdered(t, newSink(t, "p", c), c.Order),
					Sink:      func(t *testing.T, pipeline string) sink.Sink { return newSink(t, pipeline, c) },
					Snapshot: func(t *testing.T) (restore func()) {
						then := filepath.Join(t.TempDir(), "then")
						copyFolder(t, folder, then)
						return func() { // at once: open sinks look at the folder meanwhile
							now := filepath.Join(t.TempDir(), "now")
							if err := errors.Join(os.Rename(folder, now), os.Rename(then, folder)); err != nil {
								t.Fatal(err)
							}
						}
					},
					Rows: func(t *testing.T) (rows []sinktest.Row) {
						for _, line := range lines(t, folder) {
							var r sinktest.Row
							if err := json.Unmarshal([]byte(line), &r); err != nil {
								t.Fatalf("%q: %v", line, err)
							}
							rows = append(rows, r)
						}
						return rows
					},
				}
			})
		})
	}
}

func batch(first, count uint64) *event.Output {
	out := &event.Output{Partition: "p", Range: event.Range{First: first, Count: count}}
	for i := range count {
		out.Data = fmt.Appendf(out.Data, "{\"n\":%d,\n\"text\":\"x\"}", first+i)
		out.Ends = append(out.Ends, uint32(len(out.Data)))
		out.From = append(out.From, uint32(i))
	}
	return out
}

func openWriter(t testing.TB, s *Sink) (sink.Writer, event.Ranges) {
	t.Helper()
	w, done, err := s.Open(t.Context(), "p")
	if err != nil {
		t.Fatal(err)
	}
	return w, done
}

// crash leaves the files as a process does that is killed.
func crash(t testing.TB, s *Sink) {
	t.Helper()
	s.stopSealing()
	if err := s.journal.close(); err != nil {
		t.Fatal(err)
	}
}

// sealedAndOpen counts the files in a folder.
func sealedAndOpen(t testing.TB, folder string) (sealed, open int) {
	t.Helper()
	all, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		switch {
		case strings.HasPrefix(f.Name(), "."):
		case strings.HasSuffix(f.Name(), openSuffix):
			open++
		default:
			sealed++
		}
	}
	return sealed, open
}

func TestRotation(t *testing.T) {
	folder := t.TempDir()
	s := newSink(t, "p/files", Config{Folder: folder, Bytes: 500})
	defer s.Close()
	w, _ := openWriter(t, s)
	for i := range uint64(10) {
		if err := w.Write(t.Context(), batch(10*i, 10)); err != nil {
			t.Fatal(err)
		}
	}
	if sealed, open := sealedAndOpen(t, folder); sealed != 3 || open != 1 {
		t.Errorf("%d files are sealed, %d open", sealed, open)
	}
	if named, err := filepath.Glob(filepath.Join(folder, "p-files-*.ndjson")); len(named) != 3 {
		t.Errorf("files are named %v, %v", named, err)
	}
	if got := lines(t, folder); len(got) != 100 || got[0] != `{"n":0, "text":"x"}` {
		t.Errorf("%d lines, the first %s", len(got), got[0])
	}
}

// TestOtherPacking goes on with other settings where a file is open.
func TestOtherPacking(t *testing.T) {
	folder := t.TempDir()
	for i, pack := range []string{"none", "gzip", "zstd", "none"} {
		s := newSink(t, "p", Config{Folder: folder, Pack: pack})
		w, _ := openWriter(t, s)
		if err := w.Write(t.Context(), batch(uint64(i), 1)); err != nil {
			t.Fatalf("pack %s: %v", pack, err)
		}
		crash(t, s)
	}
	if all := lines(t, folder); len(all) != 4 {
		t.Errorf("%d lines, want 4: %v", len(all), all)
	}
}

// TestNameOfAnother has two pipelines, whose partitions may have the same names,
// meant to write to the same files.
func TestNameOfAnother(t *testing.T) {
	folder := t.TempDir()
	s := newSink(t, "p", Config{Folder: folder, Name: "n"})
	defer s.Close()
	openWriter(t, s)
	other := newSink(t, "q", Config{Folder: folder, Name: "n"})
	defer other.Close()
	if _, _, err := other.Open(t.Context(), "part"); !event.IsPermanent(err) {
		t.Errorf("got %v", err)
	}
}

// TestFilesBeyondTheJournal has files in the folder that are none of the sink's, which it
// leaves alone, and such as an older journal does not count, which it refuses.
func TestFilesBeyondTheJournal(t *testing.T) {
	folder := t.TempDir()
	s := newSink(t, "p", Config{Folder: folder, Name: "orders"})
	w, _ := openWriter(t, s)
	if err := errors.Join(w.Write(t.Context(), batch(0, 5)), w.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	other := newSink(t, "q", Config{Folder: folder, Name: "orders-20240131.x"})
	w, _ = openWriter(t, other)
	if err := errors.Join(w.Write(t.Context(), batch(0, 5)), w.Close(), other.Close()); err != nil {
		t.Fatal(err)
	}
	create := func(name string) string {
		t.Helper()
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte("{}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, name := range []string{
		"orders-20240131.csv", "orders-20240131.ndjson.gz", "orders-20240131.ndjson.open", "orders-20240131-00000009.ndjson",
		"orders-00000009.csv", "orders-00000009.ndjson.bak", "orders-00000009.ndjson.gz.tmp", "orders-00000009.ndjson.open.swp",
		"orders-00000009", "orders-000000009.ndjson", "orders-9.ndjson", "orders2-00000009.ndjson", "my-orders-00000009.ndjson",
	} {
		create(name)
	}
	open := func() error {
		s := newSink(t, "p", Config{Folder: folder, Name: "orders", Pack: "zstd"})
		_, _, err := s.Open(t.Context(), "part")
		return errors.Join(err, s.Close())
	}
	if err := open(); err != nil {
		t.Fatalf("the sink does not leave alone what others have in the folder: %v", err)
	}
	for _, name := range []string{
		"orders-00000009.ndjson", "orders-00000009.ndjson.gz", "orders-00000009.ndjson.zst", "orders-00000009.ndjson.open",
		"orders-00000009.ndjson.gz.open", "orders-00000009.ndjson.zst.open", "orders-00000500.ndjson",
	} {
		path := create(name)
		if err := open(); !event.IsPermanent(err) || event.HintOf(err) == "" || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, with hint %q; want a permanent error that names it", name, err, event.HintOf(err))
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if err := open(); err != nil {
		t.Errorf("with the files moved away: %v", err)
	}
}

// TestSealedByAge lets time pass without a write, in a run that goes on.
func TestSealedByAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder := t.TempDir()
		s := newSink(t, "p", Config{Folder: folder, Age: time.Hour})
		w, _ := openWriter(t, s)
		for i := range uint64(2) {
			time.Sleep(90 * time.Minute) // the age counts from the first row, not from the seal before
			if err := w.Write(t.Context(), batch(i, 1)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(59 * time.Minute)
			if sealed, open := sealedAndOpen(t, folder); sealed != int(i) || open != 1 {
				t.Errorf("after 59 minutes %d files are sealed, %d open", sealed, open)
			}
			time.Sleep(time.Minute + time.Second)
			if sealed, open := sealedAndOpen(t, folder); sealed != int(i)+1 || open != 0 {
				t.Errorf("after an hour %d files are sealed, %d open", sealed, open)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if got := lines(t, folder); len(got) != 2 {
			t.Errorf("the files hold %q", got)
		}
	})
}

// TestSealedAtEnd ends runs that have written rows and one that has not.
func TestSealedAtEnd(t *testing.T) {
	folder := t.TempDir()
	for i := range uint64(3) {
		s := newSink(t, "p", Config{Folder: folder})
		w, done := openWriter(t, s)
		if done.Next(0) != min(i, 2)*5 {
			t.Errorf("run %d: done %v", i, done)
		}
		out := batch(5*i, 5)
		if i == 2 {
			out.RemoveRows([]int{0, 1, 2, 3, 4})
		}
		if err := w.Write(t.Context(), out); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(w.Close(), s.Close()); err != nil {
			t.Fatal(err)
		}
		if sealed, open := sealedAndOpen(t, folder); sealed != min(int(i)+1, 2) || open != 0 {
			t.Errorf("after run %d, %d files are sealed, %d open", i, sealed, open)
		}
	}
	if got := lines(t, folder); len(got) != 10 {
		t.Errorf("the files hold %d lines", len(got))
	}
}

// TestCommandSealsNothing has a command that shows positions use the files of a run.
func TestCommandSealsNothing(t *testing.T) {
	folder := t.TempDir()
	s := newSink(t, "p", Config{Folder: folder})
	defer s.Close()
	w, _ := openWriter(t, s)
	if err := w.Write(t.Context(), batch(0, 5)); err != nil {
		t.Fatal(err)
	}
	command := newSink(t, "p", Config{Folder: folder})
	if _, err := command.Positions(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := command.Close(); err != nil {
		t.Fatal(err)
	}
	if sealed, open := sealedAndOpen(t, folder); sealed != 0 || open != 1 {
		t.Errorf("%d files are sealed, %d open", sealed, open)
	}
}

// TestSealInterrupted ends a process at each step of sealing a file.
func TestSealInterrupted(t *testing.T) {
	for step, cut := range []func(j *journal) error{
		func(j *journal) error { return os.Truncate(j.data.Name(), j.state.Size) },
		func(j *journal) error { return os.Rename(j.data.Name(), strings.TrimSuffix(j.data.Name(), openSuffix)) },
		func(j *journal) error {
			return errors.Join(os.Rename(j.data.Name(), strings.TrimSuffix(j.data.Name(), openSuffix)),
				os.WriteFile(j.files.hidden("journal.new"), []byte("half"), 0o644))
		},
	} {
		folder := t.TempDir()
		s := newSink(t, "p", Config{Folder: folder, Bytes: 1})
		w, _ := openWriter(t, s)
		if err := w.Write(t.Context(), batch(0, 5)); err != nil {
			t.Fatal(err)
		}
		if err := cut(s.journal); err != nil {
			t.Fatal(err)
		}
		crash(t, s)
		s = newSink(t, "p", Config{Folder: folder, Bytes: 1 << 20}) // larger: not full by size any more
		w, done := openWriter(t, s)
		if done.String() != "[0,5)" {
			t.Errorf("step %d: done %v", step, done)
		}
		if err := w.Write(t.Context(), batch(5, 5)); err != nil {
			t.Fatal(err)
		}
		_ = s.Close()
		if got := lines(t, folder); len(got) != 10 {
			t.Errorf("step %d: %d lines", step, len(got))
		}
		if _, open := sealedAndOpen(t, folder); open != 0 {
			t.Errorf("step %d: %d files are open", step, open)
		}
	}
}

func TestLostRowsAreNoticed(t *testing.T) {
	folder := t.TempDir()
	s := newSink(t, "p", Config{Folder: folder})
	defer s.Close()
	w, _ := openWriter(t, s)
	if err := w.Write(t.Context(), batch(0, 5)); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(s.journal.data.Name(), 3); err != nil {
		t.Fatal(err)
	}
	var permanent *event.PermanentError
	if err := w.Write(t.Context(), batch(5, 5)); !errors.As(err, &permanent) {
		t.Errorf("got %v", err)
	}
}

func TestDamagedJournal(t *testing.T) {
	folder := t.TempDir()
	s := newSink(t, "p", Config{Folder: folder})
	w, _ := openWriter(t, s)
	for i := range uint64(2) {
		if err := w.Write(t.Context(), batch(i, 1)); err != nil {
			t.Fatal(err)
		}
	}
	name := s.journal.files.hidden("journal")
	crash(t, s)
	whole, _ := os.ReadFile(name)
	last := bytes.LastIndexByte(whole[:len(whole)-1], '\n') + 1
	for cut := len(whole) - 1; cut > last; cut-- { // the last record, cut anywhere
		torn := append(bytes.Clone(whole[:cut]), make([]byte, (len(whole)-cut)*(cut%2))...) // or never written
		if cut%3 == 0 {
			torn = append(torn, strings.Repeat("x", 1000)+"\n"...)
		}
		if err := os.WriteFile(name, torn, 0o644); err != nil {
			t.Fatal(err)
		}
		s := newSink(t, "p", Config{Folder: folder})
		if _, done := openWriter(t, s); done.String() != "[0,1)" {
			t.Fatalf("cut at %d: done %v", cut, done)
		}
		if err := s.journal.withLock(s.journal.checkSize); err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		crash(t, s)
	}
	whole[10] ^= 1
	if err := os.WriteFile(name, whole, 0o644); err != nil {
		t.Fatal(err)
	}
	var permanent *event.PermanentError
	s = newSink(t, "p", Config{Folder: folder})
	if _, _, err := s.Open(t.Context(), "p"); !errors.As(err, &permanent) {
		t.Errorf("got %v", err)
	}
}

// writeForever is a process that writes one batch after the other, in runs that end
// and begin again, with files that are sealed by size, by age and by the end.
func writeForever(folder string) {
	var err error
	for err == nil {
		err = writeOneRun(folder)
	}
	fmt.Println(err)
	os.Exit(1)
}

func writeOneRun(folder string) error {
	s, err := New(sink.Env{Pipeline: "p"}, Config{Folder: folder, Bytes: 2000, Pack: "gzip", Age: 10 * time.Millisecond})
	if err != nil {
		return err
	}
	w, done, err := s.Open(context.Background(), "p")
	if err != nil {
		return err
	}
	next := done.Next(0)
	for range 20 {
		if err := w.Write(context.Background(), batch(next, 7)); err != nil {
			return err
		}
		next += 7
	}
	return s.Close()
}

// bytesIn is the size of the files in a folder.
func bytesIn(t *testing.T, folder string) (sum int64) {
	t.Helper()
	files, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if info, err := f.Info(); err == nil { // it may have been renamed
			sum += info.Size()
		}
	}
	return sum
}

// TestKill kills the writer at random: each line is there once.
func TestKill(t *testing.T) {
	folder := t.TempDir()
	for i := range 8 {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), "FILE_WRITE_FOREVER="+folder)
		before := bytesIn(t, folder)
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(time.Minute); bytesIn(t, folder) == before && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Duration(17*i) * time.Millisecond)
		_ = child.Process.Kill()
		_ = child.Wait()
	}
	s := newSink(t, "p", Config{Folder: folder, Bytes: 2000, Pack: "gzip"})
	_, done := openWriter(t, s)
	end := done.Next(0)
	if err := s.Close(); err != nil { // cuts off what does not count
		t.Fatal(err)
	}
	got := lines(t, folder)
	if uint64(len(got)) != end || end == 0 {
		t.Fatalf("%d lines, and the journal counts %d", len(got), end)
	}
	for i, line := range got {
		if want := fmt.Sprintf(`{"n":%d, "text":"x"}`, i); line != want {
			t.Fatalf("line %d is %s", i, line)
		}
	}
	if sealed, open := sealedAndOpen(t, folder); sealed == 0 || open > 0 {
		t.Errorf("%d files are sealed, %d open", sealed, open)
	}
}

func TestConfig(t *testing.T) {
	for _, c := range []Config{{}, {Folder: "x", Pack: "rar"}, {Folder: "x", Name: "../x"}, {Folder: "x", Bytes: -1}, {Folder: "x", Age: -1}, {Folder: "x", Order: "no"}} {
		if _, err := New(sink.Env{Pipeline: "p"}, c); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
}

// TestAccess writes files with the permissions of the configuration, whatever the umask
// takes away.
func TestAccess(t *testing.T) {
	for access, want := range map[string]os.FileMode{"": 0o640, "0600": 0o600, "0664": 0o664} {
		folder := filepath.Join(t.TempDir(), "rows")
		s, err := New(sink.Env{Pipeline: "p"}, Config{Folder: folder, Access: access})
		if err != nil {
			t.Fatal(err)
		}
		w, _, err := s.Open(t.Context(), "part")
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Write(t.Context(), sinktest.Docs(0, `{"a":1}`)); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(w.Close(), s.Close()); err != nil {
			t.Fatal(err)
		}
		files, err := os.ReadDir(folder)
		if err != nil || len(files) < 3 {
			t.Fatal(files, err)
		}
		for _, f := range files {
			info, err := f.Info()
			if err != nil || info.Mode().Perm() != want {
				t.Errorf("access %q: %s has %v, %v", access, f.Name(), info.Mode(), err)
			}
		}
		info, err := os.Stat(folder)
		if err != nil || info.Mode().Perm()&0o007 != (want|want>>2&0o111)&0o005 {
			t.Errorf("access %q: the folder has %v, %v", access, info.Mode(), err)
		}
	}
	for _, bad := range []string{"640x", "0777", "0400", "7777", "-1"} {
		if _, err := New(sink.Env{Pipeline: "p"}, Config{Folder: t.TempDir(), Access: bad}); err == nil {
			t.Errorf("%q is taken for permissions", bad)
		}
	}
}

// TestFilesAreClosed: rotation, a journal that another process replaces, and one that cannot be
// read leave no file open.
func TestFilesAreClosed(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "files")
	leaktest.Closed(t, folder, func() {
		s, other := newSink(t, "p", Config{Folder: folder, Bytes: 300}), newSink(t, "p", Config{Folder: folder, Bytes: 300})
		w, _ := openWriter(t, s)
		for i := range uint64(4) {
			if err := w.Write(t.Context(), batch(10*i, 10)); err != nil {
				t.Fatal(err)
			}
		}
		w2, _ := openWriter(t, other)
		for i := uint64(4); i < 8; i++ {
			if err := w2.Write(t.Context(), batch(10*i, 10)); err != nil {
				t.Fatal(err)
			}
		}
		if all, err := s.Positions(t.Context()); err != nil || all["p"].Next(0) != 80 {
			t.Errorf("%v, %v", all, err)
		}
		for _, one := range []*Sink{s, other} {
			if err := one.Close(); err != nil {
				t.Error(err)
			}
		}
		journal := filepath.Join(folder, ".p.journal")
		text, err := os.ReadFile(journal)
		if err == nil {
			err = os.WriteFile(journal, append([]byte("damaged\n"), text...), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		s = newSink(t, "p", Config{Folder: folder})
		for range 2 {
			if _, _, err := s.Open(t.Context(), "p"); !event.IsPermanent(err) {
				t.Errorf("a damaged journal: %v", err)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestKind(t *testing.T) { sinktest.Kind(t, Kind()) }

// TestDefaults are those of the reference.
func TestDefaults(t *testing.T) {
	s := newSink(t, "p/files", Config{Folder: t.TempDir()})
	want := fileSet{folder: s.files.folder, name: "p-files", pipeline: "p/files", suffix: ".ndjson", bytesMax: 128 << 20, ageMax: time.Hour, access: 0o640}
	if s.files != want {
		t.Errorf("the files are %+v, want %+v", s.files, want)
	}
}
