package file_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/source"
	"github.com/perigeedb/perigee/source/file"
	"github.com/perigeedb/perigee/source/sourcetest"
)

func gzipped(text string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write([]byte(text))
	_ = z.Close()
	return b.String()
}

func zstandard(text string) string {
	z, err := zstd.NewWriter(nil)
	if err != nil {
		panic(err)
	}
	defer z.Close()
	return string(z.EncodeAll([]byte(text), nil))
}

// newKind makes a source as a configuration does.
func newKind(t *testing.T, c file.Config, limits source.Limits) source.Source {
	t.Helper()
	return newKindWith(t, source.Env{Limits: limits}, c)
}

func newKindWith(t *testing.T, env source.Env, c file.Config) source.Source {
	t.Helper()
	s, err := file.Kind().New(env, func(into any) error {
		*into.(*file.Config) = c
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestCompressedContract(t *testing.T) {
	for name, pack := range map[string]func(string) string{"gzip": gzipped, "zstd": zstandard} {
		for _, path := range []string{"events.log", "*.log"} {
			t.Run(name+" "+path, func(t *testing.T) {
				sourcetest.Run(t, func(t *testing.T, events int) sourcetest.Place {
					folder := t.TempDir()
					p := sourcetest.Place{NoLag: true}
					for i := range events {
						p.Events = append(p.Events, fmt.Sprintf(`{"id":%06d}`, i))
					}
					if events == 0 && path == "*.log" {
						p.Events = append(p.Events, "")
					}
					write(t, filepath.Join(folder, "events.log"), pack(strings.Join(p.Events, "\n")))
					p.Events = p.Events[:events]
					p.Open = func(t *testing.T, limits source.Limits) source.Source {
						return newKind(t, file.Config{Path: filepath.Join(folder, path)}, limits)
					}
					p.Renew = func(t *testing.T) {
						if err := os.Remove(filepath.Join(folder, "events.log")); err != nil {
							t.Fatal(err)
						}
						write(t, filepath.Join(folder, "events.log"), pack("{\"another\":1}\n"))
					}
					return p
				})
			})
		}
	}
}

// TestUnitOfRotatedFile: a file that a rotation renames keeps the unit of the path at which it was
// found, and so does the one that takes its place.
func TestUnitOfRotatedFile(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "app.log")
	write(t, path, numbered(0, 5))
	s := newKind(t, file.Config{Path: filepath.Join(folder, "app.log*"), Follow: true}, source.Limits{Events: 10, Bytes: 1000})
	defer s.Close()
	unitOf := s.Traits().Unit
	old := partitions(t, s)[0]
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	write(t, path, numbered(5, 10))
	names := partitions(t, s)
	if len(names) != 2 {
		t.Fatalf("partitions %v", names)
	}
	for _, name := range append(names, old) {
		if unit := unitOf(name); unit != path {
			t.Errorf("the unit of %s is %q, want %q", name, unit, path)
		}
	}
}

func numbered(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "{\"n\":%d}\n", i)
	}
	return b.String()
}

func age(t *testing.T, path string, by time.Duration) {
	t.Helper()
	at := time.Now().Add(-by)
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}

func partitions(t *testing.T, s source.Source) []string {
	t.Helper()
	names, err := s.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// drain reads every partition to its end, as a pipeline does, and returns the events.
func drain(t *testing.T, s source.Source, had map[string]event.Ranges) (all []string) {
	t.Helper()
	for range 1000 {
		names := partitions(t, s)
		if len(names) == 0 {
			return all
		}
		for _, name := range names {
			r, err := s.Open(t.Context(), name, slices.Clone(had[name]))
			if err != nil {
				t.Fatal(err)
			}
			for {
				var b event.Batch
				if err = r.Read(t.Context(), &b); err != nil {
					break
				}
				done := had[name]
				done.Add(b.Range)
				had[name] = done
				for i := range b.Len() {
					all = append(all, string(b.Doc(i)))
				}
			}
			if err.Error() != "EOF" {
				t.Fatal(err)
			}
			_ = r.Close(t.Context())
		}
	}
	t.Fatal("partitions are listed again and again")
	return nil
}

// TestRotation reads, restarts and reads again while files are renamed, compressed
// and added: each line is read once, the oldest first.
func TestRotation(t *testing.T) {
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	source := func() source.Source { return newKind(t, file.Config{Path: at("app.log*")}, usual) }
	had := map[string]event.Ranges{}
	var got []string

	write(t, at("app.log.1"), numbered(0, 500))
	age(t, at("app.log.1"), time.Hour)
	write(t, at("app.log"), numbered(500, 700))
	got = append(got, drain(t, source(), had)...)

	appendTo(t, at("app.log"), numbered(700, 800)) // the newest grows,
	write(t, at("app.log.2.gz"), gzipped(numbered(0, 500)))
	age(t, at("app.log.2.gz"), time.Hour) // the oldest is compressed to a second file,
	got = append(got, drain(t, source(), had)...)

	if err := os.Remove(at("app.log.1")); err != nil { // then removed,
		t.Fatal(err)
	}
	if err := os.Rename(at("app.log"), at("app.log.1")); err != nil {
		t.Fatal(err)
	}
	appendTo(t, at("app.log.1"), numbered(800, 900)) // its writer still has it open,
	age(t, at("app.log.1"), time.Second)
	write(t, at("app.log"), numbered(900, 1000)) // and a new one has started.
	got = append(got, drain(t, source(), had)...)

	if want := strings.Fields(numbered(0, 1000)); !slices.Equal(got, want) {
		t.Errorf("got %d lines, or in another order: %.500s …", len(got), fmt.Sprint(got))
	}
}

func TestAtOnce(t *testing.T) {
	folder := t.TempDir()
	for i := range 6 {
		path := filepath.Join(folder, fmt.Sprint(i))
		write(t, path, numbered(i, i+1))
		age(t, path, time.Hour-time.Duration(i)*time.Minute)
	}
	write(t, filepath.Join(folder, "empty"), "")
	if err := os.Mkdir(filepath.Join(folder, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	s := newKind(t, file.Config{Path: filepath.Join(folder, "*"), AtOnce: 2}, usual)
	if n := len(partitions(t, s)); n != 2 {
		t.Errorf("%d files at once", n)
	}
	if got := strings.Join(drain(t, s, map[string]event.Ranges{}), "\n") + "\n"; got != numbered(0, 6) {
		t.Errorf("got %q", got)
	}
}

// TestFollowPattern follows a file through its rotation.
func TestFollowPattern(t *testing.T) {
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	s := newKind(t, file.Config{Path: at("app.log*"), Follow: true}, usual)
	if names := partitions(t, s); len(names) != 0 || !s.Traits().Growing {
		t.Errorf("a folder that waits for files: %v", names)
	}
	write(t, at("app.log"), `{"n":0`)
	if names := partitions(t, s); len(names) != 0 {
		t.Errorf("a first line that still grows: %v", names)
	}
	appendTo(t, at("app.log"), "}\n")
	r := open(t, s, nil)
	if got, err := read(t, r); err != nil || fmt.Sprint(got) != `[0:{"n":0}]` {
		t.Fatal(got, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	var b event.Batch
	if err := r.Read(ctx, &b); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("at the end of the newest file: %v", err)
	}
	if err := os.Rename(at("app.log"), at("app.log.1")); err != nil {
		t.Fatal(err)
	}
	appendTo(t, at("app.log.1"), `{"n":1}`) // the last line of a file may lack its end
	write(t, at("app.log"), "{\"n\":2}\n")
	if n := len(partitions(t, s)); n != 2 {
		t.Errorf("%d partitions after the rotation", n)
	}
	age(t, at("app.log.1"), time.Minute)
	if got := readAll(t, r); fmt.Sprint(got) != `[1:{"n":1}]` {
		t.Errorf("got %v", got)
	}
	if names := partitions(t, s); len(names) != 1 {
		t.Errorf("a finished file is listed again: %v", names)
	}
}

// TestNoFileMatches says in the log, once, and in WhyEmpty, that a pattern matches
// no file.
func TestNoFileMatches(t *testing.T) {
	for _, follow := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "*.ndjson")
		var log bytes.Buffer
		s := newKindWith(t, source.Env{Limits: usual, Log: slog.New(slog.NewTextHandler(&log, nil))}, file.Config{Path: path, Follow: follow})
		why := s.Traits().WhyEmpty
		for range 3 {
			if names := partitions(t, s); len(names) != 0 || why() != "no file matches "+path {
				t.Errorf("partitions %v, because %q", names, why())
			}
		}
		if n := strings.Count(log.String(), "no file matches "+path); n != 1 {
			t.Errorf("the log says so %d times:\n%s", n, &log)
		}
		write(t, strings.Replace(path, "*", "a", 1), "")
		partitions(t, s)
		if want := "no file that matches " + path + " has a complete line"; why() != want || !strings.Contains(log.String(), want) {
			t.Errorf("an empty file: %q, and the log is\n%s", why(), &log)
		}
		write(t, strings.Replace(path, "*", "a", 1), "{}\n")
		if names := partitions(t, s); len(names) != 1 || why() != "" {
			t.Errorf("a file with a line: partitions %v, because %q", names, why())
		}
		if err := os.Remove(strings.Replace(path, "*", "a", 1)); err != nil {
			t.Fatal(err)
		}
		partitions(t, s)
		if n := strings.Count(log.String(), "no file matches "+path); n != 2 {
			t.Errorf("after the file is gone the log says so %d times:\n%s", n, &log)
		}
	}
}

func TestCopies(t *testing.T) {
	folder := t.TempDir()
	write(t, filepath.Join(folder, "a.log"), numbered(0, 10))
	write(t, filepath.Join(folder, "b.log"), numbered(0, 20))
	s := newKind(t, file.Config{Path: filepath.Join(folder, "*.log")}, usual)
	var permanent *event.PermanentError
	if _, err := s.Partitions(t.Context()); !errors.As(err, &permanent) || !strings.Contains(err.Error(), "b.log") {
		t.Errorf("got %v", err)
	}
}

func TestTruncatedGzip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.gz")
	whole := gzipped(numbered(0, 1000))
	write(t, path, whole[:len(whole)/2])
	r := open(t, newKind(t, file.Config{Path: path}, usual), nil)
	var err error
	for err == nil {
		_, err = read(t, r)
	}
	if !strings.Contains(err.Error(), path) || err.Error() == "EOF" {
		t.Errorf("a truncated file: %v", err)
	}
}

// TestDamagedFile has a compressed file that nobody writes to and that cannot be
// decompressed: it must not be skipped silently.
func TestDamagedFile(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "a.log.gz")
	write(t, path, "\x1f\x8bnothing that gzip has made")
	for _, follow := range []bool{true, false} {
		age(t, path, 0)
		s := newKind(t, file.Config{Path: filepath.Join(folder, "*.log*"), Follow: follow}, usual)
		if _, err := s.Partitions(t.Context()); (err != nil) == follow || event.IsPermanent(err) {
			t.Errorf("follow %v, while it may still be compressed: %v", follow, err)
		}
		age(t, path, time.Minute)
		if _, err := s.Partitions(t.Context()); !event.IsPermanent(err) || !strings.Contains(err.Error(), path) {
			t.Errorf("follow %v: got %v", follow, err)
		}
	}
}
