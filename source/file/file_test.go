package file_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/leaktest"
	"github.com/perigeedb/perigee/source"
	"github.com/perigeedb/perigee/source/file"
	"github.com/perigeedb/perigee/source/sourcetest"
)

var usual = source.Limits{Events: 100, Bytes: 1 << 20}

func TestContract(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T, events int) sourcetest.Place {
		path := filepath.Join(t.TempDir(), "events.ndjson")
		p := sourcetest.Place{NoLag: true}
		for i := range events {
			p.Events = append(p.Events, fmt.Sprintf(`{"id":%06d}`, i))
		}
		write(t, path, strings.Join(p.Events, "\n"))
		open := func(follow bool) func(*testing.T, source.Limits) source.Source {
			return func(t *testing.T, limits source.Limits) source.Source {
				return newSource(t, file.Config{Path: path, Follow: follow}, limits)
			}
		}
		p.Open, p.Wait = open(false), open(true)
		p.Renew = func(t *testing.T) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			write(t, path, "{\"another\":1}\n")
		}
		return p
	})
}

func newSource(t *testing.T, c file.Config, limits source.Limits) source.Source {
	t.Helper()
	s, err := file.New(source.Env{Limits: limits}, c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func appendTo(t *testing.T, path, content string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(content); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, s source.Source, done event.Ranges) source.Reader {
	t.Helper()
	names, err := s.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Open(t.Context(), names[0], done)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close(context.Background()) })
	return r
}

// read reads one batch and shows its events with their positions.
func read(t *testing.T, r source.Reader) (got []string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var b event.Batch
	err = r.Read(ctx, &b)
	for i := range b.Len() {
		got = append(got, fmt.Sprintf("%d:%s", b.Range.First+uint64(i), b.Doc(i)))
	}
	return got, err
}

func readAll(t *testing.T, r source.Reader) (all []string) {
	t.Helper()
	for {
		got, err := read(t, r)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, got...)
	}
}

func TestLines(t *testing.T) {
	long := strings.Repeat("x", 600<<10)
	for _, c := range []struct {
		name, content string
		want          []string
	}{
		{"nothing", "", nil},
		{"only empty lines", "\n\r\n  \n", nil},
		{"last line without newline", "a\nb", []string{"0:a", "1:b"}},
		{"last line with newline", "a\nb\n", []string{"0:a", "1:b"}},
		{"carriage returns", "a\r\nb\r\nc\r", []string{"0:a", "1:b", "2:c"}},
		{"empty lines are counted", "\n\na\n\n \t\nb\n\n", []string{"2:a", "5:b"}},
		{"blanks around an event stay", " a \n", []string{"0: a "}},
		{"longer than any buffer", "a\n" + long + "\nb", []string{"0:a", "1:" + long, "2:b"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "f")
			write(t, path, c.content)
			for _, limits := range []source.Limits{usual, {Events: 1, Bytes: 1}, {Events: 100, Bytes: 2}} {
				got := readAll(t, open(t, newSource(t, file.Config{Path: path}, limits), nil))
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Errorf("limits %+v: %s", limits, diff)
				}
			}
		})
	}
}

func TestResumesPastEmptyLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	write(t, path, "a\n\nb\nc\n\nd\n")
	s := newSource(t, file.Config{Path: path}, usual)
	got := readAll(t, open(t, s, event.Ranges{{First: 0, Count: 1}, {First: 3, Count: 1}}))
	if diff := cmp.Diff([]string{"2:b", "5:d"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestLineTooLong(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	write(t, path, "a\n"+strings.Repeat("x", 64<<20+1)+"\n")
	r := open(t, newSource(t, file.Config{Path: path}, usual), nil)
	if got, err := read(t, r); err != nil || len(got) != 1 {
		t.Fatalf("read %d events, %v; want the event before the long line", len(got), err)
	}
	_, err := read(t, r)
	permanent(t, err, path, "line 2")
}

func TestIdentity(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "f"), filepath.Join(dir, "g")
	name := func(path string) string {
		t.Helper()
		names, err := newSource(t, file.Config{Path: path}, usual).Partitions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return names[0]
	}
	write(t, path, "a\n")
	write(t, other, "a\n")
	first := name(path)
	if name(other) == first {
		t.Error("two files have one name")
	}
	appendTo(t, path, strings.Repeat("b\n", 10_000))
	if name(path) != first {
		t.Error("a file that grows changes its name")
	}
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if name(path+".1") != first {
		t.Error("a file that is renamed changes its name")
	}
	write(t, path+".1", "c\n")
	if name(path+".1") == first {
		t.Error("a file with another first line keeps its name")
	}
}

func TestTruncated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	write(t, path, "a\nb\n")
	s := newSource(t, file.Config{Path: path}, usual)
	names, err := s.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Open(t.Context(), names[0], event.Ranges{{First: 0, Count: 3}})
	permanent(t, err, "2 lines", "line 3")
}

// TestRewrittenInPlace rewrites a file whose first line stays the same.
func TestRewrittenInPlace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	write(t, path, "a\n\nb\nc")
	s := newSource(t, file.Config{Path: path}, usual)
	var done event.Ranges
	r := open(t, s, nil)
	var b event.Batch
	for r.Read(t.Context(), &b) == nil {
		done.Add(event.Range{First: b.Range.First, Count: b.Range.Count, Fingerprints: slices.Clone(b.Range.Fingerprints)})
	}
	open(t, s, done)
	for content, want := range map[string]string{
		"a\n\nb\nX\nd": "line 4",
		"a\n\nX\nc\nd": "line 3",
		"a\nX\nb\ncd":  "line 4",
		"a\n\nb\n":     "3 lines",
	} {
		write(t, path, content)
		names, err := s.Partitions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Open(t.Context(), names[0], done)
		permanent(t, err, path, want)
	}
}

func TestInvalidPaths(t *testing.T) {
	dir := t.TempDir()
	for path, want := range map[string]string{filepath.Join(dir, "none"): "none", dir: "folder"} {
		_, err := newSource(t, file.Config{Path: path}, usual).Partitions(t.Context())
		permanent(t, err, want)
	}
	for _, c := range []file.Config{{}, {Path: "-", Follow: true}} {
		if _, err := file.New(source.Env{}, c); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
}

func TestRelativePathsStartAtTheConfiguration(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "f"), "a\n")
	s, err := file.New(source.Env{Folder: dir, Limits: usual}, file.Config{Path: "f"})
	if err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, open(t, s, nil)); len(got) != 1 {
		t.Errorf("read %q", got)
	}
}

func TestFollow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	write(t, path, "a\nhal")
	r := open(t, newSource(t, file.Config{Path: path, Follow: true}, usual), nil)
	for _, c := range []struct{ add, want string }{{"", "0:a"}, {"f\n", "1:half"}, {"b\nc", "2:b"}, {"\n", "3:c"}} {
		appendTo(t, path, c.add)
		if got, err := read(t, r); err != nil || len(got) != 1 || got[0] != c.want {
			t.Fatalf("after %q: read %q, %v; want %q", c.add, got, err, c.want)
		}
	}
	write(t, path, "new\n")
	if _, err := read(t, r); !errors.Is(err, source.ErrMoved) {
		t.Errorf("a file that was truncated: %v, want source.ErrMoved", err)
	}
}

func permanent(t *testing.T, err error, words ...string) {
	t.Helper()
	var p *event.PermanentError
	if !errors.As(err, &p) || p.Hint == "" {
		t.Fatalf("error %v, want a permanent one with a hint", err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
}

// TestFilesAreClosed: a listing, a check, a reader and one that is refused leave no file open.
func TestFilesAreClosed(t *testing.T) {
	for name, path := range map[string]string{"one": "f", "pattern": "*"} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			write(t, filepath.Join(folder, "f"), "a\nb\n")
			s := newKind(t, file.Config{Path: filepath.Join(folder, path)}, usual)
			leaktest.Closed(t, folder, func() {
				if err := s.Traits().Check(t.Context()); err != nil {
					t.Error(err)
				}
				if bounds := s.Traits().Bounds; bounds != nil {
					if all, err := bounds(t.Context()); err != nil || len(all) != 1 {
						t.Errorf("bounds %v, %v", all, err)
					}
				}
				names, err := s.Partitions(t.Context())
				if err != nil || len(names) != 1 {
					t.Fatal(names, err)
				}
				r, err := s.Open(t.Context(), names[0], nil)
				if err != nil {
					t.Fatal(err)
				}
				if got := readAll(t, r); len(got) != 2 {
					t.Errorf("read %v", got)
				}
				if err := r.Close(t.Context()); err != nil {
					t.Error(err)
				}
				if _, err := s.Open(t.Context(), "other", nil); !errors.Is(err, source.ErrMoved) {
					t.Errorf("another partition: %v", err)
				}
				_, err = s.Open(t.Context(), names[0], event.Ranges{{First: 0, Count: 3}})
				permanent(t, err, "2 lines", "line 3")
				write(t, filepath.Join(folder, "f"), "\x1f\x8b no gzip")
				for _, name := range names {
					if _, err := s.Open(t.Context(), name, nil); err == nil {
						t.Error("a damaged file was opened")
					}
				}
				_, _ = s.Partitions(t.Context())
			})
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestKind(t *testing.T) { sourcetest.Kind(t, file.Kind()) }
