//go:build linux && cgo

package eventstore

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/internal/testseed"
)

// A syncedBuffer is a log output that is safe for concurrent use.
type syncedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncedBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncedBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// TestMaintenanceHasEnoughMemory fills log files to their usual size as fast as possible, waits
// until they are sealed, and merges what can be merged. Both must succeed within the memory for
// writing files, whatever the shape of the rows. It tests one random shape of four; make test-sql
// tests all.
func TestMaintenanceHasEnoughMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("fills files of the log")
	}
	shapes := []struct {
		name  string
		width int
	}{{"narrow", 400}, {"middle", 1000}, {"wide", 20_000}, {"huge", 900_000}}
	for _, shape := range testseed.New(t).Perm(len(shapes))[:countFrom(t, "PERIGEE_STORE_SHAPES", 1)] {
		name, width := shapes[shape].name, shapes[shape].width
		t.Run(name, func(t *testing.T) {
			var said syncedBuffer
			s, err := Open(t.TempDir(), Options{Log: slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelWarn}))})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			p := take(t, openTable(t, s, TableConfig{Event: "name", Time: "time"}))
			const segments = mergeMin + 1
			first, rows := uint64(0), 2_000
			if width > 1000 {
				rows = 4_000_000 / width
			}
			for s.log.End().File <= segments {
				docs := make([]string, rows)
				for i := range docs {
					id := first + uint64(i)
					at := time.Date(2026, 11, 23, 0, 0, int(id%80_000), 0, time.UTC)
					// Distinct texts, so that a dictionary does not
					// shrink them.
					text := strings.Repeat(fmt.Sprintf("%016x", (id+1)*0x9e3779b97f4a7c15), width/16+1)
					docs[i] = fmt.Sprintf(`{"id":%d,"name":"event-%d","time":%q,"text":%q}`, id, id%7, at.Format(time.RFC3339), text[:width])
				}
				appendDocs(t, p, first, docs...)
				first += uint64(rows)
			}
			if err := s.log.Rotate(t.Context()); err != nil {
				t.Fatal(err)
			}
			waitUntil(t, s, func() bool { return s.current().LogStart > segments })
			if err := mergeQuiet(t.Context(), s); err != nil {
				t.Error(err)
			}
			if got := ask(t, s, `SELECT count(*), count(DISTINCT id) FROM events`); got != fmt.Sprintf("%d,%d", first, first) {
				t.Errorf("got %s rows of %d", got, first)
			}
			if text := said.String(); text != "" {
				t.Errorf("maintenance says:\n%s", text)
			}
		})
	}
}

// TestManyDaysAreMergedTogether checks that merges of many days share a manifest change and a
// worker request, because each merge of a day would cost one of both.
func TestManyDaysAreMergedTogether(t *testing.T) {
	s := openStore(t, t.TempDir())
	p := take(t, openTable(t, s, TableConfig{Time: "time"}))
	const days, segments = 30, 4
	begin := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range segments {
		docs := make([]string, 2*days)
		for row := range docs {
			docs[row] = fmt.Sprintf(`{"id":%d,"time":%q}`, i*len(docs)+row, begin.AddDate(0, 0, row/2).Format(time.RFC3339))
		}
		appendDocs(t, p, uint64(i*len(docs)), docs...)
		if err := s.log.Rotate(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if files := s.current().Tables[0].Files; len(files) == days && files[0].Rows == 2*segments {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d files of %d days are left", len(s.current().Tables[0].Files), days)
		}
	}
	if used := s.nextSegment() - 1; used > segments+3 {
		t.Errorf("%d segments were written, %d of them by sealing", used, segments)
	}
	if got := ask(t, s, `SELECT count(*), count(DISTINCT id) FROM events`); got != fmt.Sprintf("%d,%[1]d", 2*days*segments) {
		t.Errorf("got %s rows", got)
	}
}

// TestNextMerge checks that merged files have about the same size and fit the memory and time
// of one request.
func TestNextMerge(t *testing.T) {
	s := &Store{unmerged: map[string]bool{}}
	type files struct {
		day          string
		count        int
		bytes, group int64
		quiet        time.Duration // since they were sealed
	}
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		files []files
		want  string
	}{
		"three are few":                {[]files{{"a", 3, 1 << 20, 1 << 20, 0}}, ""},
		"four":                         {[]files{{"a", 4, 1 << 20, 1 << 20, 0}}, "4"},
		"of other sizes":               {[]files{{"a", 3, 1 << 20, 1 << 20, 0}, {"a", 3, 20 << 20, 1 << 20, 0}}, ""},
		"large ones":                   {[]files{{"a", 9, 32 << 20, 1 << 20, 0}}, ""},
		"of other days":                {[]files{{"a", 3, 1 << 20, 1 << 20, 0}, {"b", 3, 1 << 20, 1 << 20, 0}}, ""},
		"two days":                     {[]files{{"a", 5, 1 << 20, 1 << 20, 0}, {"b", 4, 1 << 20, 1 << 20, 0}}, "5 4"},
		"as many as memory has":        {[]files{{"a", 9, 1 << 20, 12 << 20, 0}}, "3"},
		"all that memory has":          {[]files{{"a", 9, 1 << 20, mergeMemory/4*512/515 + 1, 0}}, "4"}, // reading a file needs 515/512 of its row group
		"row groups too large":         {[]files{{"a", 9, 1 << 20, 30 << 20, 0}}, ""},
		"as much as a request has":     {[]files{{"a", 9, 31 << 20, 1 << 20, 0}, {"b", 9, 31 << 20, 1 << 20, 0}}, "8"},
		"all that a request has":       {[]files{{"a", 17, mergeMax / 16, 1 << 20, 0}}, "16"},
		"as many as a request has":     {[]files{{"a", 800, 1000, 100, 0}, {"b", 800, 1000, 100, 0}}, "800"},
		"a quiet day":                  {[]files{{"a", 2, 1 << 20, 1 << 20, time.Hour}, {"b", 2, 1 << 20, 1 << 20, time.Hour - time.Second}}, "2"},
		"a late row in a quiet day":    {[]files{{"a", 2, 1 << 20, 1 << 20, 30 * time.Hour}, {"a", 1, 1 << 20, 1 << 20, 0}}, ""},
		"a large day, quiet too short": {[]files{{"a", 2, 64 << 20, 1 << 20, 4*time.Hour - time.Second}}, ""},
		"a large quiet day":            {[]files{{"a", 9, 64 << 20, 1 << 20, 8 * time.Hour}}, "4"},
		"quiet files of any size":      {[]files{{"a", 1, 1 << 10, 1 << 20, 9 * time.Hour}, {"a", 1, 200 << 20, 1 << 20, 9 * time.Hour}}, "2"},
		"one file in a quiet day":      {[]files{{"a", 1, 1 << 20, 1 << 20, 9 * time.Hour}}, ""},
		"quiet files that stay":        {[]files{{"a", 3, 200 << 20, 1 << 20, 900 * time.Hour}}, ""},
		"quiet, and too much memory":   {[]files{{"a", 2, 1 << 20, 49 << 20, 9 * time.Hour}}, ""},
	} {
		m := &manifest.Table{}
		for _, f := range test.files {
			for range f.count {
				m.Files = append(m.Files, &manifest.File{Name: fmt.Sprint(len(m.Files)), Day: f.day, Bytes: f.bytes, GroupBytes: f.group, GroupRows: 1 << 20, Sealed: now.Add(-f.quiet).Unix()})
			}
		}
		got := ""
		for _, group := range s.nextMerge(m, now) {
			if got != "" {
				got += " "
			}
			got += fmt.Sprint(len(group))
		}
		if got != test.want {
			t.Errorf("%s: groups of %s, want %s", name, got, test.want)
		}
	}
}

// TestRetentionKeepsYoungRows checks that a file and its bloom filters are removed once all
// of its rows have expired, and not before.
func TestRetentionKeepsYoungRows(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	p := take(t, openTable(t, s, TableConfig{Time: "time", Event: "kind", Retention: 100 * 365 * 24 * time.Hour}))
	day := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	appendDocs(t, p, 0, append(numbered(0, 10, day, `,"kind":"a"`), numbered(10, 10, day.Add(20*time.Hour), `,"kind":"b"`)...)...)
	seal(t, s)
	retention := 100 * 365 * 24 * time.Hour
	last := day.Add(20*time.Hour + 9*time.Millisecond) // of the newest row
	for _, now := range []time.Time{day.Add(10 * time.Hour), last} {
		if err := s.removeOldFiles(now.Add(retention)); err != nil {
			t.Fatal(err)
		}
		if got := ask(t, s, `SELECT count(*) FROM events`); got != "20" {
			t.Errorf("%s rows when the newest is %v younger than the retention", got, last.Sub(now))
		}
	}
	if n := len(filesBelow(t, manifest.TablesFolder(folder))); n != 2 {
		t.Errorf("%d files instead of rows and their bloom filter", n)
	}
	if err := s.removeOldFiles(last.Add(retention + time.Microsecond)); err != nil {
		t.Fatal(err)
	}
	await(t, "the files are gone", func() bool {
		wake(s.sealer)
		return len(filesBelow(t, manifest.TablesFolder(folder))) == 0
	})
	if got := ask(t, s, `SELECT count(*) FROM events`); got != "0" {
		t.Errorf("%s rows", got)
	}
}

// TestWhatIsMerged checks that small files of one day are merged once there are enough of
// them, and other files are not.
func TestWhatIsMerged(t *testing.T) {
	s := openStore(t, t.TempDir())
	p := take(t, openTable(t, s, TableConfig{Time: "time"}))
	day := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	for i := range mergeMin - 1 {
		appendDocs(t, p, uint64(20*i), append(numbered(20*i, 10, day, ""), numbered(20*i+10, 10, day.AddDate(0, 0, 1), "")...)...)
		seal(t, s)
	}
	before := filesOf(s)
	if err := s.mergeSmallFiles(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, filesOf(s)); diff != "" || len(before) != 2*(mergeMin-1) {
		t.Errorf("%d files, three of a day (-before +after):\n%s", len(before), diff)
	}
}

// TestChangesInterruptMerges holds merges to give way to the changes of tables.
func TestChangesInterruptMerges(t *testing.T) {
	var m merging
	canceled := func(ctx context.Context) bool { return ctx.Err() != nil }
	first, endFirst := m.begin(t.Context())
	if canceled(first) {
		t.Error("a merge is canceled, and no table changes")
	}
	resume, resumeOther := m.interrupt(), m.interrupt()
	if !canceled(first) {
		t.Error("a table changes, and the merge that was running is not canceled")
	}
	endFirst()
	resume()
	second, endSecond := m.begin(t.Context())
	if !canceled(second) {
		t.Error("another table changes, and a merge that has begun since is not canceled")
	}
	endSecond()
	resumeOther()
	third, endThird := m.begin(t.Context())
	if canceled(third) {
		t.Error("a merge is canceled after the changes have ended")
	}
	endThird()
}

func TestMergedFile(t *testing.T) {
	files := []*manifest.File{{Bytes: 10, Log: 3}, {Bytes: 20, Log: 7}, {Bytes: 30, Log: 5}}
	merged := mergedFile(manifest.New(), &manifest.Table{}, manifest.File{Name: "new", Rows: 9}, files, 8, 2)
	if diff := cmp.Diff(&manifest.File{Name: "new", Rows: 9, Segment: 8, Deleted: 2, Log: 7}, merged); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got := lastDelete(&manifest.Table{Deletes: []*manifest.Delete{{Number: 2}, {Number: 9}, {Number: 4}}}); got != 9 {
		t.Errorf("the newest of the deletes 2, 9 and 4 is %d", got)
	}
}
