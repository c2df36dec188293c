//go:build linux && cgo

package eventstore

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
)

// TestBackupUnderLoad repeatedly backs up a store while several partitions append, files are
// sealed and merged, and rows are deleted. It restores every backup and checks that it has
// each row acknowledged before the backup began, no row twice, and the position after the
// rows.
func TestBackupUnderLoad(t *testing.T) {
	const writers, batch = 3, 50
	folder := t.TempDir()
	s, err := Open(filepath.Join(folder, "store"), Options{SegmentBytes: 256 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	table := openTable(t, s, TableConfig{Time: "time"})
	day := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)

	var mu sync.Mutex
	var acknowledged [writers]int
	beside := make(pace, 100)
	var writing sync.WaitGroup
	for w := range writers {
		p, _, err := table.TakeOver(t.Context(), "pipe", fmt.Sprint(w))
		if err != nil {
			t.Fatal(err)
		}
		writing.Go(func() {
			for i := range beside.batches() {
				n := i * batch
				docs := numbered(n, batch, day, fmt.Sprintf(`,"writer":%d`, w))
				if err := p.Append(context.Background(), outputOf(uint64(n), docs...)); err != nil {
					t.Errorf("writer %d: %v", w, err)
					return
				}
				mu.Lock()
				acknowledged[w] = n + batch
				mu.Unlock()
			}
		})
	}
	for i := range 5 {
		mu.Lock()
		before := acknowledged
		mu.Unlock()
		beside.renew()
		waitUntil(t, s, func() bool { // a busy machine may start one of the writers late
			mu.Lock()
			defer mu.Unlock()
			return acknowledged != before && !slices.Contains(acknowledged[:], 0)
		})
		if i == 2 {
			if _, err := s.Delete(t.Context(), "events", "writer = 9"); err != nil {
				t.Fatal(err)
			}
		}
		mu.Lock()
		before = acknowledged
		mu.Unlock()
		beside.renew()
		var archive bytes.Buffer
		if err := s.Backup(t.Context(), &archive); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		after := acknowledged
		mu.Unlock()
		if after == before {
			t.Logf("nothing was appended during backup %d", i)
		}
		checkBackup(t, filepath.Join(folder, fmt.Sprint(i)), &archive, before[:])
	}
	close(beside)
	writing.Wait()
}

func checkBackup(t *testing.T, folder string, archive *bytes.Buffer, least []int) {
	t.Helper()
	if err := Restore(folder, archive); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, folder)
	defer s.Close()
	for w, n := range least {
		var rows, distinct, greatest int
		fmt.Sscanf(ask(t, s, fmt.Sprintf("SELECT count(*), count(DISTINCT id), max(id) FROM events WHERE writer = %d", w)), "%d,%d,%d", &rows, &distinct, &greatest)
		if rows < n || rows != distinct || greatest != rows-1 {
			t.Errorf("writer %d: %d rows, %d distinct, greatest %d; %d had been acknowledged", w, rows, distinct, greatest, n)
		}
		p, done, err := s.tableNamed("events").TakeOver(t.Context(), "pipe", fmt.Sprint(w))
		if err != nil {
			t.Fatal(err)
		}
		if next := done[len(done)-1].End(); next != uint64(rows) {
			t.Errorf("writer %d: %d rows, but the next position is %d", w, rows, next)
		}
		// The restored store continues where the backup ends.
		appendDocs(t, p, uint64(rows), fmt.Sprintf(`{"time":"2026-11-23T00:00:00Z","id":%d,"writer":%d}`, rows, w))
		if got := ask(t, s, fmt.Sprintf("SELECT count(*) FROM events WHERE writer = %d", w)); got != fmt.Sprint(rows+1) {
			t.Errorf("after another row: %s", got)
		}
	}
}

// TestRestoreRefuses restores incomplete backups, and restores into a folder that holds a
// store.
func TestRestoreRefuses(t *testing.T) {
	s := openStore(t, t.TempDir())
	p := take(t, openTable(t, s, TableConfig{}))
	appendDocs(t, p, 0, `{"a":1}`)
	seal(t, s)
	appendDocs(t, p, 1, `{"a":2}`)
	var archive bytes.Buffer
	if err := s.Backup(t.Context(), &archive); err != nil {
		t.Fatal(err)
	}
	whole := archive.Bytes()
	restore := func(data []byte) (string, error) {
		folder := filepath.Join(t.TempDir(), "events")
		err := Restore(folder, bytes.NewReader(data))
		left, _ := filepath.Glob(folder + "*")
		if err != nil && len(left) > 0 {
			t.Errorf("after %v there is %v", err, left)
		}
		return folder, err
	}
	folder, err := restore(whole)
	if err != nil {
		t.Fatal(err)
	}
	if err := Restore(folder, bytes.NewReader(whole)); !isPermanent(err) || !strings.Contains(err.Error(), "holds an event store already") {
		t.Errorf("over a store: %v", err)
	}
	if got := ask(t, openStore(t, folder), "SELECT sum(a) FROM events"); got != "3" {
		t.Errorf("restored: %s", got)
	}
	for n := 0; n < len(whole)-1536; n += 512 { // the end marker of the archive has 1,024 bytes
		if _, err := restore(whole[:n]); !isPermanent(err) {
			t.Fatalf("the first %d of %d bytes: %v", n, len(whole), err)
		}
	}
	for n := 0; n < len(whole)-1536; n += 701 {
		damaged := bytes.Clone(whole)
		damaged[n] ^= 0x40
		if folder, err := restore(damaged); err == nil {
			// The bit is meaningless, as in the padding between files.
			if got := ask(t, openStore(t, folder), "SELECT sum(a) FROM events"); got != "3" {
				t.Fatalf("byte %d: %s", n, got)
			}
		} else if !isPermanent(err) {
			t.Fatalf("byte %d: %v", n, err)
		}
	}
}

// TestBackupOfDamage checks that Backup refuses a damaged store.
func TestBackupOfDamage(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	p := take(t, openTable(t, s, TableConfig{}))
	appendDocs(t, p, 0, `{"a":1}`)
	seal(t, s)
	name := filepath.Join(folder, "tables/events", filesOf(s)[0].Name)
	s.Close()
	if err := os.Truncate(name, 10); err != nil {
		t.Fatal(err)
	}
	s, err := Open(folder, Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Backup(t.Context(), new(bytes.Buffer)); err == nil || !strings.Contains(err.Error(), "is damaged") {
		t.Errorf("backup of a damaged store: %v", err)
	}
}

func isPermanent(err error) bool {
	_, ok := errors.AsType[*event.PermanentError](err)
	return ok
}

func TestTables(t *testing.T) {
	s := openStore(t, t.TempDir())
	p := take(t, openTable(t, s, TableConfig{Time: "time", Retention: 100 * 365 * 24 * time.Hour}))
	day := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	appendDocs(t, p, 0, numbered(0, 100, day, "")...)
	seal(t, s)
	appendDocs(t, p, 100, numbered(100, 20, day.Add(48*time.Hour), "")...)
	all, err := s.Tables()
	if err != nil || len(all) != 1 {
		t.Fatalf("got tables %+v and error %v, want one table", all, err)
	}
	got := all[0]
	if got.Name != "events" || got.LogRows != 20 || got.Rows != 120 || len(got.Files) != 1 || got.Files[0].Rows != 100 || got.Files[0].Bytes == 0 ||
		!got.Oldest.Equal(day) || got.Newest.Before(day.Add(48*time.Hour)) || !got.Files[0].Oldest.Equal(day) {
		t.Errorf("got %+v", got)
	}
}

// archiveOf builds a backup from pairs of name and content.
func archiveOf(t *testing.T, entries ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, header := range entries {
		content := header.Linkname
		header.Mode, header.Size, header.Linkname = 0o600, int64(len(content)), ""
		if header.Typeflag != tar.TypeReg {
			header.Size, header.Linkname = 0, content
		}
		err := w.WriteHeader(&header)
		if err == nil && header.Typeflag == tar.TypeReg {
			_, err = io.WriteString(w, content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// manifestText returns the text of a manifest with one table, after change.
func manifestText(change func(*manifest.Table)) string {
	table := &manifest.Table{ID: 1, Name: "t", NextColumn: 2, Schemas: []*manifest.Schema{{Version: 1, Columns: []manifest.Column{}}}}
	m := manifest.New()
	m.NextTable, m.NextSegment, m.LogStart, m.Tables = 2, 2, 2, []*manifest.Table{table}
	change(table)
	text, _ := json.MarshalIndent(m, "", " ")
	text = append(text, '\n')
	return fmt.Sprintf("perigee-manifest 1 %08x\n%s", crc32.Checksum(text, crc32.MakeTable(crc32.Castagnoli)), text)
}

// TestRestoreRefusesArchives restores archives that Backup never writes.
func TestRestoreRefusesArchives(t *testing.T) {
	regular := func(name, content string) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeReg, Linkname: content}
	}
	sum := func(name, content string) string {
		return fmt.Sprintf("%x  %s\n", sha256.Sum256([]byte(content)), name)
	}
	wide := manifestText(func(table *manifest.Table) {
		table.NextColumn = 2000
		for i := range int32(1001) {
			table.Schemas[0].Columns = append(table.Schemas[0].Columns, manifest.Column{ID: 2 + i, Name: fmt.Sprint("c", i), Type: event.Int64})
		}
	})
	outside := manifestText(func(table *manifest.Table) {
		table.Files = []*manifest.File{{Name: "undated/0000000001-0.parquet", Schema: 1, Bloom: "../../../outside"}}
	})
	for name, test := range map[string]struct {
		entries []tar.Header
		want    string
	}{
		"nothing":              {nil, "it ends before its last file, SHA256SUMS"},
		"a path outside":       {[]tar.Header{regular("../log/x", "")}, `it has "../log/x", which is not a file of an event store`},
		"a path that returns":  {[]tar.Header{regular("log/../../x", "")}, `it has "log/../../x", which is not`},
		"an absolute path":     {[]tar.Header{regular("/log/x", "")}, `it has "/log/x", which is not`},
		"another file":         {[]tar.Header{regular("notes", "")}, `it has "notes", which is not`},
		"a file twice":         {[]tar.Header{regular("log/x", "a"), regular("log/x", "a")}, `it has "log/x", which is not`},
		"a file by two names":  {[]tar.Header{regular("log/x", "a"), regular("log/./x", "a")}, `it has "log/./x", which is not`},
		"an empty name":        {[]tar.Header{regular("log//x", "a")}, `it has "log//x", which is not`},
		"a file for a folder":  {[]tar.Header{regular("log", "a")}, `it has "log", which is not`},
		"a folder in the log":  {[]tar.Header{regular("log/a/x", "a")}, `it has "log/a/x", which is not`},
		"a file beside tables": {[]tar.Header{regular("tables/x", "a")}, `it has "tables/x", which is not`},
		"a deep folder":        {[]tar.Header{regular("tables/a/b/c/x", "a")}, `it has "tables/a/b/c/x", which is not`},
		"a very deep folder":   {[]tar.Header{regular("tables/"+strings.Repeat("a/", 2000)+"x", "a")}, "which is not a file of an event store"},
		"a long name":          {[]tar.Header{regular("log/"+strings.Repeat("x", 300), "a")}, "which is not a file of an event store"},
		"a backslash":          {[]tar.Header{regular(`log/a\b`, "a")}, "which is not a file of an event store"},
		"a link":               {[]tar.Header{{Name: "log/x", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}}, `it has "log/x", which is not`},
		"another checksum":     {[]tar.Header{regular("log/x", "a"), regular(sumsName, sum("log/x", "b"))}, `the checksum of "log/x" is wrong`},
		"no checksum":          {[]tar.Header{regular("log/x", "a"), regular(sumsName, "")}, `the checksum of "log/x" is missing`},
		"a checksum too many":  {[]tar.Header{regular(sumsName, sum("log/x", "a"))}, `the checksum of "log/x" is wrong`},
		"a line without end":   {[]tar.Header{regular(sumsName, strings.Repeat("x", 1<<20))}, "token too long"},
		"too many columns":     {[]tar.Header{regular(manifest.Name, wide), regular(sumsName, sum(manifest.Name, wide))}, "schema version 1 has 1001 columns"},
		"a file outside":       {[]tar.Header{regular(manifest.Name, outside), regular(sumsName, sum(manifest.Name, outside))}, "is damaged: table t: "},
		"no manifest":          {[]tar.Header{regular("log/x", "a"), regular(sumsName, sum("log/x", "a"))}, "manifest: no such file"},
		"a manifest of nobody": {[]tar.Header{regular(manifest.Name, "a"), regular(sumsName, sum(manifest.Name, "a"))}, "is damaged: it does not begin with"},
	} {
		folder := filepath.Join(t.TempDir(), "events")
		err := Restore(folder, bytes.NewReader(archiveOf(t, test.entries...)))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
		if left, _ := filepath.Glob(folder + "*"); len(left) > 0 {
			t.Errorf("%s: left %v", name, left)
		}
	}
}

// TestRestoreRefusesHoles restores a small archive with a sparse file of a terabyte.
func TestRestoreRefusesHoles(t *testing.T) {
	records := map[string]string{"GNU.sparsX.major": "0", "GNU.sparsX.minor": "1", "GNU.sparsX.numblocks": "1", "GNU.sparsX.map": "0,1", "GNU.sparsX.size": "1099511627776"}
	archive := archiveOf(t, tar.Header{Name: "log/x", Typeflag: tar.TypeReg, Linkname: "a", Format: tar.FormatPAX, PAXRecords: records})
	archive = bytes.ReplaceAll(archive, []byte("GNU.sparsX"), []byte("GNU.sparse")) // package tar does not write this
	ended := make(chan error, 1)
	folder := filepath.Join(t.TempDir(), "events")
	go func() { ended <- Restore(folder, bytes.NewReader(archive)) }()
	select {
	case err := <-ended:
		if want := `it has "log/x", which is not a file of an event store`; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the file is being written, want it refused")
	}
}

// TestRestoreWhere restores into empty folders, into folders that an earlier attempt has
// partly filled, and to the path of a file.
func TestRestoreWhere(t *testing.T) {
	s := openStore(t, t.TempDir())
	appendDocs(t, take(t, openTable(t, s, TableConfig{})), 0, `{"a":1}`)
	var archive bytes.Buffer
	if err := s.Backup(t.Context(), &archive); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(t.TempDir(), "events")
	for _, path := range []string{folder, filepath.Join(folder+restoringSuffix, "log", "0")} {
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	gc := debug.SetGCPercent(-1) // the collector would close leaked files
	err := Restore(folder, bytes.NewReader(archive.Bytes()))
	open := openFiles(t, filepath.Dir(folder))
	debug.SetGCPercent(gc)
	if err != nil || len(open) > 0 {
		t.Fatalf("%v, and %q are open", err, open)
	}
	if got := ask(t, openStore(t, folder), "SELECT sum(a) FROM events"); got != "1" {
		t.Errorf("restored: %s", got)
	}
	if _, err := os.Stat(filepath.Join(folder, "log", "0")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file of the attempt before: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{file, filepath.Join(file, "below")} {
		if err := Restore(folder, bytes.NewReader(archive.Bytes())); err == nil || !strings.Contains(err.Error(), "eventstore: restore: ") {
			t.Errorf("into a file: %v", err)
		}
	}
}

// A failingWriter fails after left bytes.
type failingWriter struct{ left int }

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return 0, errNoRoom
	}
	return len(p), nil
}

var errNoRoom = errors.New("no room")

// TestBackupFails backs up to a full disk, with a truncated file, with a canceled context,
// and from a closed store.
func TestBackupFails(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	p := take(t, openTable(t, s, TableConfig{Bloom: []string{"a"}}))
	appendDocs(t, p, 0, `{"a":"1"}`)
	seal(t, s)
	appendDocs(t, p, 1, `{"a":"2"}`)
	var whole bytes.Buffer
	if err := s.Backup(t.Context(), &whole); err != nil {
		t.Fatal(err)
	}
	for n := 0; n < whole.Len(); n += 512 {
		if err := s.Backup(t.Context(), &failingWriter{left: n}); !errors.Is(err, errNoRoom) {
			t.Fatalf("with room for %d of %d bytes: %v", n, whole.Len(), err)
		}
	}
	canceled, cancel := context.WithCancelCause(t.Context())
	cancel(errNoRoom)
	if err := s.Backup(canceled, io.Discard); !errors.Is(err, errNoRoom) {
		t.Errorf("canceled: %v", err)
	}
	for _, f := range filesOf(s) {
		path := filepath.Join(folder, "tables/events", f.Name)
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, change := range []func() error{func() error { return os.Truncate(path, f.Bytes-1) }, func() error { return os.Remove(path) }} {
			if err := change(); err != nil {
				t.Fatal(err)
			}
			if err := s.Backup(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), f.Name) {
				t.Errorf("with a file that is cut off or gone: %v", err)
			}
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Backup(t.Context(), io.Discard); err != nil {
		t.Error(err)
	}
	s.Close()
	if err := s.Backup(t.Context(), io.Discard); !errors.Is(err, ErrClosed) {
		t.Errorf("of a closed store: %v", err)
	}
}
