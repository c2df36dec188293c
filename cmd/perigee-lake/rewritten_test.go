package main

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/table"

	"github.com/perigeedb/perigee/eventstore/lake"
)

// TestRewritesSince judges files of other engines by the snapshots that added them.
func TestRewritesSince(t *testing.T) {
	snapshot := func(id int64, operation table.Operation, properties iceberg.Properties) table.Snapshot {
		parent := id - 1
		return table.Snapshot{SnapshotID: id, ParentSnapshotID: &parent, SequenceNumber: id, TimestampMs: 1000 + id, Summary: &table.Summary{Operation: operation, Properties: properties}}
	}
	own, removed := iceberg.Properties{misfitsProperty: "0"}, iceberg.Properties{"deleted-data-files": "3"}
	first, unknown := snapshot(1, table.OpAppend, nil), snapshot(9, table.OpAppend, nil)
	first.ParentSnapshotID, unknown.Summary = nil, nil
	r := rewrites{record: rewrittenRecord{Seen: 0}, snapshots: map[int64]*table.Snapshot{}, bySequence: map[int64]*table.Snapshot{}}
	for _, s := range []table.Snapshot{
		first, snapshot(2, table.OpOverwrite, own), snapshot(3, table.OpAppend, nil), snapshot(4, table.OpReplace, removed), snapshot(5, table.OpAppend, nil),
		snapshot(6, table.OpAppend, removed), snapshot(7, table.OpDelete, nil), snapshot(8, table.OpAppend, nil), unknown, snapshot(11, table.OpAppend, nil),
		snapshot(12, table.OpReplace, nil), snapshot(13, table.OpAppend, nil),
	} {
		r.snapshots[s.SnapshotID], r.bySequence[s.SequenceNumber] = &s, &s
	}
	for _, test := range []struct {
		sequence, want int64
		name           string
	}{
		{0, always, "of format version 1"}, {1, never, "the first snapshot"}, {2, never, "of a store"}, {3, never, "appended after a commit of a store"},
		{4, always, "compacted"}, {5, 1005, "appended after a compaction"}, {6, 1006, "appended, and files removed"}, {7, 1007, "of a delete"},
		{8, 1008, "appended after a delete"}, {9, always, "without a summary"}, {10, always, "of a snapshot that has expired"},
		{11, always, "appended after a snapshot that has expired"}, {13, never, "appended after manifests were rewritten"},
	} {
		if got := r.since(test.sequence); got != test.want {
			t.Errorf("a file %s: since %d, want %d", test.name, got, test.want)
		}
	}
	r.record = rewrittenRecord{Seen: 10, Since: map[int64]int64{4: always, 10: 77}}
	for sequence, want := range map[int64]int64{3: never, 4: always, 10: 77, 11: never, 14: always} {
		if got := r.since(sequence); got != want {
			t.Errorf("with a record, a file of %d: since %d, want %d", sequence, got, want)
		}
	}
	one := map[string]*manifest{"a": {others: map[int64]string{11: "x"}, othersGone: map[int64]string{4: "y"}}}
	if got, ok := r.next(one, 13); !ok || got != `{"seen":13,"since":{"4":0}}` {
		t.Errorf("the next record is %s, %v", got, ok)
	}
	delete(one["a"].others, 11)
	if got, ok := r.next(one, 13); ok {
		t.Errorf("without new files, the next record is %s, want none", got)
	}
}

// An otherEngine commits files to the table of an order, as another engine does.
type otherEngine struct {
	*testing.T
	order *lake.TableOrder
}

// entry puts the rows of a file under a name of the other engine.
func (e *otherEngine) entry(name string, of lake.File) iceberg.DataFile {
	e.Helper()
	_, loaded := load(e.T, e.order)
	p, err := readPublished(of.Path, e.order.Columns)
	if err != nil {
		e.Fatal(err)
	}
	store, err := openObjects(loaded.Location())
	if err == nil {
		err = store.put(e.Context(), "data/"+name, p)
	}
	if err != nil {
		e.Fatal(err)
	}
	entry, err := p.entry(loaded.Location() + "/data/" + name)
	if err != nil {
		e.Fatal(err)
	}
	return entry
}

func (e *otherEngine) append(name string, of lake.File) {
	e.Helper()
	entry := e.entry(name, of)
	c, loaded := load(e.T, e.order)
	transaction := loaded.NewTransaction()
	if err := errors.Join(transaction.AddDataFiles(e.Context(), []iceberg.DataFile{entry}, nil), commit(e.Context(), c, transaction)); err != nil {
		e.Fatal(err)
	}
}

// rewrite replaces the files of the table that isRewritten chooses with one that has the rows of a
// file.
func (e *otherEngine) rewrite(name string, of lake.File, isRewritten func(name string) bool) {
	e.Helper()
	entry := e.entry(name, of)
	c, loaded := load(e.T, e.order)
	all, err := readTable(e.Context(), loaded)
	if err != nil {
		e.Fatal(err)
	}
	maps.DeleteFunc(all.files, func(name string, _ iceberg.DataFile) bool { return !isRewritten(name) })
	transaction := loaded.NewTransaction()
	if err := errors.Join(transaction.ReplaceDataFilesWithDataFiles(e.Context(), slices.Collect(maps.Values(all.files)), []iceberg.DataFile{entry}, nil), commit(e.Context(), c, transaction)); err != nil {
		e.Fatal(err)
	}
}

// expire expires all snapshots but the newest.
func (e *otherEngine) expire() {
	e.Helper()
	c, loaded := load(e.T, e.order)
	var old []int64
	for _, s := range loaded.Metadata().Snapshots() {
		if s.SnapshotID != loaded.CurrentSnapshot().SnapshotID {
			old = append(old, s.SnapshotID)
		}
	}
	if _, _, err := c.CommitTable(e.Context(), loaded.Identifier(), nil, []table.Update{table.NewRemoveSnapshotsUpdate(old, false)}); err != nil {
		e.Fatal(err)
	}
}

const testGrace = 50 * time.Millisecond

// tidyUntil publishes and tidies until a purge is done or only a person can help, and returns why
// it waits.
func tidyUntil(t *testing.T, settings lake.Settings, step *int, purge lake.Purge, files ...lake.File) string {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; {
		*step++
		o := orderOf(settings, *step, files...)
		o.Tidy = quickTidy(purge)
		o.Tidy.Grace, o.Tidy.ForeignGrace = testGrace, testGrace
		r := publish(t.Context(), record(t, o))
		if r.Error != "" || r.Tidied == nil || r.Tidied.Error != "" {
			t.Fatalf("%+v, tidied %+v", r, r.Tidied)
		}
		if got := r.Tidied.Purged[0]; got.Waits == "" || got.Until.IsZero() || time.Now().After(end) {
			return got.Waits
		}
		time.Sleep(2 * testGrace)
	}
}

// TestPurgeRewritten deletes rows that another engine has rewritten into a file of its own, from
// which the store cannot delete them.
func TestPurgeRewritten(t *testing.T) {
	const waits = "another engine has rewritten files of this store"
	any := func(string) bool { return true }
	for name, test := range map[string]struct {
		// change is what the other engine does; f has the rows, and g has none of them.
		change func(e *otherEngine, f, g lake.File)
		told   bool // the store learns of the change before the delete
		want   string
	}{
		"rewritten":              {func(e *otherEngine, f, _ lake.File) { e.rewrite("x.parquet", f, any) }, false, waits},
		"rewritten, and told":    {func(e *otherEngine, f, _ lake.File) { e.rewrite("x.parquet", f, any) }, true, waits},
		"appended":               {func(e *otherEngine, _, g lake.File) { e.append("x.parquet", g) }, true, ""},
		"appended, never seen":   {func(e *otherEngine, _, g lake.File) { e.append("x.parquet", g); e.append("y.parquet", g); e.expire() }, false, waits},
		"appended and rewritten": {func(e *otherEngine, f, g lake.File) { e.append("x.parquet", g); e.rewrite("y.parquet", f, any) }, false, waits},
		"rewritten twice": {func(e *otherEngine, f, _ lake.File) {
			e.rewrite("x.parquet", f, any)
			e.rewrite("y.parquet", f, any)
			e.expire()
		}, false, waits},
	} {
		t.Run(name, func(t *testing.T) {
			settings, folder := catalogs(t)["sqlite"], t.TempDir()
			o := orderOf(settings, 1, writeFile(t, folder, 1, 20, 31))
			if r := publish(t.Context(), o); r.Error != "" {
				t.Fatal(r.Error)
			}
			f, g := o.Files[0], writeFile(t, folder, 2, 40, 51)
			e := &otherEngine{t, o}
			load(t, o) // so that the order has the IDs of columns
			test.change(e, f, g)
			step := 1
			if test.told {
				step++
				if r := publish(t.Context(), orderOf(settings, step, f)); r.Error != "" {
					t.Fatal(r.Error)
				}
			}
			purge := lake.Purge{Number: 2, At: time.Now()}
			got := tidyUntil(t, settings, &step, purge) // the delete leaves nothing of the file
			if !strings.Contains(got, test.want) || test.want == "" && got != "" {
				t.Fatalf("waits for %q, want %q", got, test.want)
			}
			_, loaded := load(t, o)
			if left := found(t, readObjects(t, loaded.Location()), "name 20"); got == "" && len(left) > 0 {
				t.Fatalf("the purge is done, and %v have the rows", left)
			}
			// The other engine deletes the rows.
			time.Sleep(2 * testGrace)
			if test.want != "" {
				e.rewrite("without.parquet", g, any)
			}
			if got := tidyUntil(t, settings, &step, purge); got != "" {
				t.Errorf("after a delete by the other engine, it waits for %q", got)
			}
			if left := found(t, readObjects(t, loaded.Location()), "name 20"); len(left) > 0 {
				t.Errorf("the purge is done, and %v have the rows", left)
			}
			// Its file counts for a later purge.
			purge = lake.Purge{Number: 2, At: time.Now()}
			if got := tidyUntil(t, settings, &step, purge); !strings.Contains(got, test.want) || test.want == "" && got != "" {
				t.Errorf("the next purge waits for %q, want %q", got, test.want)
			}
		})
	}
}

// TestPurgeAppended purges rows of a table to which another engine appends, whose snapshots have
// expired.
func TestPurgeAppended(t *testing.T) {
	settings, folder := catalogs(t)["sqlite"], t.TempDir()
	o := orderOf(settings, 1, writeFile(t, folder, 1, 20, 31))
	if r := publish(t.Context(), o); r.Error != "" {
		t.Fatal(r.Error)
	}
	load(t, o)
	e, g, step := &otherEngine{t, o}, writeFile(t, folder, 2, 40, 51), 1
	for i := range 3 {
		e.append(filepath.Base(t.Name())+string(rune('a'+i))+".parquet", g)
		if got := tidyUntil(t, settings, &step, lake.Purge{Number: 1, At: time.Now()}, o.Files...); got != "" {
			t.Errorf("after %d files, the purge waits for %q", i+1, got)
		}
		e.expire()
	}
	if got := tidyUntil(t, settings, &step, lake.Purge{Number: 2, At: time.Now()}); got != "" {
		t.Errorf("the purge waits for %q", got)
	}
	if got := sums(t, orderOf(settings, step)); !strings.HasPrefix(got, "33 ") {
		t.Errorf("the table has %s, want the 33 rows of the other engine", got)
	}
}

// TestPurgeOrphans purges a table beside manifests of commits that failed. One that cannot be read
// may have values of the rows.
func TestPurgeOrphans(t *testing.T) {
	for name, test := range map[string]struct {
		isList bool
		cut    int // bytes that are missing
		waits  bool
		there  bool
	}{
		"a manifest":               {false, 0, false, false},
		"a torn manifest":          {false, 10, true, true},
		"the begin of a manifest":  {false, 1000, true, true},
		"a list of manifests":      {true, 0, false, true},
		"a torn list of manifests": {true, 10, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			settings := catalogs(t)["sqlite"]
			o := orderOf(settings, 1, writeFile(t, t.TempDir(), 1, 20, 31))
			if r := publish(t.Context(), o); r.Error != "" {
				t.Fatal(r.Error)
			}
			_, loaded := load(t, o)
			fs, err := loaded.FS(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			manifests, err := loaded.CurrentSnapshot().Manifests(fs)
			if err != nil {
				t.Fatal(err)
			}
			address := manifests[0].FilePath()
			if test.isList {
				address = loaded.CurrentSnapshot().ManifestList
			}
			path, _ := localPath(address)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			orphan := filepath.Join(filepath.Dir(path), "orphan.avro")
			if err := os.WriteFile(orphan, text[:len(text)-test.cut], 0o600); err != nil {
				t.Fatal(err)
			}
			var got lake.Purged
			purge := lake.Purge{Number: 2, At: time.Now()}
			for step := 2; step < 6; step++ {
				o = orderOf(settings, step)
				o.Tidy = quickTidy(purge)
				o.Tidy.Grace = testGrace
				r := publish(t.Context(), record(t, o))
				if r.Error != "" || r.Tidied.Error != "" {
					t.Fatalf("%+v, tidied %+v", r, r.Tidied)
				}
				got = r.Tidied.Purged[0]
				time.Sleep(2 * testGrace)
			}
			if (got.Waits != "") != test.waits || got.Until.IsZero() == test.waits {
				t.Errorf("waits for %q until %v, want that it waits: %v", got.Waits, got.Until, test.waits)
			}
			if _, err := os.Stat(orphan); (err == nil) != test.there {
				t.Errorf("the orphan: %v, want that it is there: %v", err, test.there)
			}
		})
	}
}
