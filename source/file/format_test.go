package file_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/source"
	"github.com/perigeedb/perigee/source/file"
	"github.com/perigeedb/perigee/source/format"
)

// readPartition reads a partition to its end, and returns its events and their positions.
func readPartition(t *testing.T, s source.Source, partition string, done event.Ranges) (docs []string, positions []uint64, read event.Ranges) {
	t.Helper()
	r, err := s.Open(t.Context(), partition, done)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close(context.Background())
	var b event.Batch
	for {
		switch err := r.Read(t.Context(), &b); {
		case errors.Is(err, io.EOF):
			return docs, positions, read
		case err != nil:
			t.Fatal(err)
		}
		for i := range b.Len() {
			docs, positions = append(docs, string(b.Doc(i))), append(positions, b.Range.First+uint64(i))
		}
		read.Add(event.Range{First: b.Range.First, Count: b.Range.Count, Fingerprints: slices.Clone(b.Range.Fingerprints)})
	}
}

func TestFormats(t *testing.T) {
	csv := format.Settings{Format: format.CSV}
	for _, c := range []struct {
		name      string
		settings  format.Settings
		text      string
		docs      []string
		positions []uint64
		end       uint64
	}{
		{"lines", format.Settings{Format: format.Lines}, "a b\r\n\n \"c\"\nlast\xff",
			[]string{`{"line":"a b"}`, `{"line":""}`, `{"line":" \"c\""}`, `{"line":"last` + "\ufffd" + `","line_base64":"bGFzdP8="}`}, []uint64{0, 1, 2, 3}, 4},
		{"csv", csv, "\xef\xbb\xbfid,text\n1,\"two\nlines\"\n\n2,x\n3,\"a,\"\"b\"\"\"",
			[]string{`{"id":1,"text":"two\nlines"}`, `{"id":2,"text":"x"}`, `{"id":3,"text":"a,\"b\""}`}, []uint64{1, 3, 4}, 5},
		{"csv with columns", format.Settings{Format: format.CSV, Separator: ";", Columns: []string{"a", "b"}}, "1;x\n2;\n",
			[]string{`{"a":1,"b":"x"}`, `{"a":2}`}, []uint64{0, 1}, 2},
		{"logfmt", format.Settings{Format: format.Logfmt}, "a=1 b\n\nc=\"x y\"\n", []string{`{"a":1,"b":true}`, `{"c":"x y"}`}, []uint64{0, 2}, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			folder := t.TempDir()
			write(t, filepath.Join(folder, "plain.log"), c.text)
			write(t, filepath.Join(folder, "packed.log"), gzipped(c.text))
			for _, path := range []string{"plain.log", "packed.log", "pl*.log"} {
				s := newKind(t, file.Config{Path: filepath.Join(folder, path), Settings: c.settings}, source.Limits{Events: 2, Bytes: 1 << 20})
				partition := partitions(t, s)[0]
				docs, positions, read := readPartition(t, s, partition, nil)
				if !slices.Equal(docs, c.docs) || !slices.Equal(positions, c.positions) {
					t.Fatalf("%s: got %q at %v, want %q at %v", path, docs, positions, c.docs, c.positions)
				}
				if bounds := s.Traits().Bounds; bounds != nil {
					if got, err := bounds(t.Context()); err != nil || got[partition].End() != c.end {
						t.Errorf("%s: bounds %v, %v; want the end %d", path, got, err, c.end)
					}
				}
				first := event.Ranges{{First: read[0].First, Count: 1, Fingerprints: read[0].Fingerprints[:1]}}
				if docs, _, _ = readPartition(t, s, partition, first); !slices.Equal(docs, c.docs[1:]) {
					t.Errorf("%s: after the first event, got %q, want %q", path, docs, c.docs[1:])
				}
			}
		})
	}
}

// TestHeadersAlike: files of a pattern with the same header are different files.
func TestHeadersAlike(t *testing.T) {
	folder := t.TempDir()
	write(t, filepath.Join(folder, "a.csv"), "id\n1\n")
	write(t, filepath.Join(folder, "b.csv"), "id\n2\n")
	s := newKind(t, file.Config{Path: filepath.Join(folder, "*.csv"), Settings: format.Settings{Format: format.CSV}}, source.Limits{Events: 10, Bytes: 1000})
	var all []string
	for _, partition := range partitions(t, s) {
		docs, _, _ := readPartition(t, s, partition, nil)
		all = append(all, docs...)
	}
	slices.Sort(all)
	if want := []string{`{"id":1}`, `{"id":2}`}; !slices.Equal(all, want) {
		t.Errorf("got %q, want %q", all, want)
	}
}

// TestOpenQuote: a quote that is opened by mistake does not swallow the file.
func TestOpenQuote(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.csv")
	write(t, path, "id\n1\n\"2\n"+strings.Repeat("3\n", format.QuotedMax))
	s := newKind(t, file.Config{Path: path, Settings: format.Settings{Format: format.CSV}}, source.Limits{Events: 1, Bytes: 1000})
	r, err := s.Open(t.Context(), partitions(t, s)[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close(context.Background())
	var b event.Batch
	for err == nil {
		err = r.Read(t.Context(), &b)
	}
	if !event.IsPermanent(err) || !strings.Contains(err.Error(), "record 3 opens a quote and does not close it within 1 MiB") {
		t.Errorf("got %v, want a permanent error that names record 3", err)
	}
}

// TestFollowedHeader: the first line of a followed file may arrive in parts.
func TestFollowedHeader(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.csv")
	write(t, path, "id,na")
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := newKind(t, file.Config{Path: path, Follow: true, Settings: format.Settings{Format: format.CSV}}, source.Limits{Events: 10, Bytes: 1000})
	r, err := s.Open(t.Context(), partitions(t, s)[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close(context.Background())
	go func() {
		for _, part := range []string{"me\n1,\"a\n", "b\"\n"} {
			if _, err := f.WriteString(part); err != nil {
				t.Error(err)
			}
		}
	}()
	var b event.Batch
	if err := r.Read(t.Context(), &b); err != nil || string(b.Doc(0)) != `{"id":1,"name":"a\nb"}` {
		t.Errorf("got %q, %v", b.Data, err)
	}
}

// TestReadDoesNotAllocatePerRecord: a batch takes no memory for a record.
func TestReadDoesNotAllocatePerRecord(t *testing.T) {
	const records = 1000
	for as, line := range map[string]string{
		format.JSON:   `{"id":17,"name":"ada"}`,
		format.Lines:  `10.0.0.1 "GET /a/path" 200`,
		format.CSV:    `17,"ada lovelace",/a/path`,
		format.Logfmt: `id=17 name="ada lovelace" path=/a/path`,
	} {
		path := filepath.Join(t.TempDir(), "events")
		if err := os.WriteFile(path, []byte(strings.Repeat(line+"\n", 12*records)), 0o600); err != nil {
			t.Fatal(err)
		}
		c := file.Config{Path: path, Settings: format.Settings{Format: as}}
		if as == format.CSV {
			c.Columns = []string{"id", "name", "path"}
		}
		r := open(t, newSource(t, c, source.Limits{Events: records, Bytes: 1 << 20}), nil)
		var b event.Batch
		allocs := testing.AllocsPerRun(10, func() {
			if err := r.Read(t.Context(), &b); err != nil || b.Len() != records {
				t.Fatalf("%s: read %d records, %v", as, b.Len(), err)
			}
		})
		if allocs > 20 {
			t.Errorf("%s: %v allocations for a batch of %d", as, allocs, records)
		}
	}
}
