package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/catalog"
	"github.com/apache/iceberg-go/table"
	"github.com/minio/minio-go/v7"

	"github.com/perigeedb/perigee/eventstore/lake"
)

// readObjects returns the contents of all objects below a location, in all versions, by name
// and version.
func readObjects(t *testing.T, location string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	if path, local := localPath(location); local {
		if err := filepath.WalkDir(path, func(path string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				all[path], err = os.ReadFile(path)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return all
	}
	u, err := url.Parse(location)
	if err != nil {
		t.Fatal(err)
	}
	client, err := newS3Client()
	if err != nil {
		t.Fatal(err)
	}
	for object := range client.Client.ListObjects(t.Context(), u.Host, minio.ListObjectsOptions{Prefix: strings.TrimPrefix(u.Path, "/") + "/", Recursive: true, WithVersions: u.Host == "versioned"}) {
		if object.Err != nil {
			t.Fatal(object.Err)
		}
		name := object.Key + " " + object.VersionID
		if all[name] = nil; object.IsDeleteMarker || strings.HasSuffix(object.Key, "/") {
			continue
		}
		o, err := client.Client.GetObject(t.Context(), u.Host, object.Key, minio.GetObjectOptions{VersionID: object.VersionID})
		if err != nil {
			t.Fatal(err)
		}
		if all[name], err = io.ReadAll(o); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// found returns the names of the objects that have a text, in their bytes, in the values of a
// Parquet file, or in the bounds of a manifest.
func found(t *testing.T, objects map[string][]byte, text string) (names []string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		has := bytes.Contains(objects[name], []byte(text))
		switch key, _, _ := strings.Cut(name, " "); filepath.Ext(key) {
		case ".parquet":
			reader, err := file.NewParquetReader(bytes.NewReader(objects[name]))
			if err != nil {
				t.Fatal(name, err)
			}
			rows, err := pqarrow.NewFileReader(reader, pqarrow.ArrowReadProperties{}, memory.DefaultAllocator)
			if err != nil {
				t.Fatal(name, err)
			}
			columns, err := rows.ReadTable(t.Context())
			if err != nil {
				t.Fatal(name, err)
			}
			for i := range int(columns.NumCols()) {
				for _, chunk := range columns.Column(i).Data().Chunks() {
					if values, ok := chunk.(*array.String); ok {
						for k := range values.Len() {
							has = has || strings.Contains(values.Value(k), text)
						}
					}
				}
			}
		case ".avro":
			m := iceberg.NewManifestFile(2, key, int64(len(objects[name])), 0, 0).Build()
			if entries, err := iceberg.ReadManifest(m, bytes.NewReader(objects[name]), false); err == nil {
				for _, entry := range entries {
					for _, bounds := range []map[int][]byte{entry.DataFile().LowerBoundValues(), entry.DataFile().UpperBoundValues()} {
						for _, bound := range bounds {
							has = has || bytes.Contains(bound, []byte(text))
						}
					}
				}
			}
		}
		if has {
			names = append(names, name)
		}
	}
	return names
}

// quickTidy are limits for tests that wait.
func quickTidy(purges ...lake.Purge) *lake.Tidy {
	return &lake.Tidy{Age: 5 * 24 * time.Hour, Keep: 10, Grace: 2 * time.Second, ForeignGrace: time.Hour, Purges: purges}
}

// record gives an order what the store has recorded of the lake table.
func record(t *testing.T, o *lake.TableOrder) *lake.TableOrder {
	t.Helper()
	_, loaded := load(t, o)
	o.UUID, o.Location = loaded.Metadata().TableUUID().String(), loaded.Location()
	return o
}

// TestPurge deletes the rows of a user in every kind of catalog and store, and searches for them
// in all versions of all objects.
func TestPurge(t *testing.T) {
	total := 0
	for name, settings := range catalogs(t) {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			a, b, c := writeFile(t, folder, 1, 0, 11), writeFile(t, folder, 2, 20, 31), writeFile(t, folder, 3, 40, 51)
			publishAll := func(o *lake.TableOrder) lake.TableReport {
				t.Helper()
				r := publish(t.Context(), o)
				if r.Error != "" || r.Covered != o.Step || r.Tidied != nil && r.Tidied.Error != "" {
					t.Fatalf("step %d: %+v %+v", o.Step, r, r.Tidied)
				}
				return r
			}
			o := orderOf(settings, 1, a, b)
			publishAll(o)
			_, loaded := load(t, o)
			location := loaded.Location()
			const user = "name 20" // the least of its file, so that bounds have it
			if names := found(t, readObjects(t, location), user); len(names) != 2 {
				t.Fatalf("before the delete, %v have the text", names)
			}
			merged := writeFile(t, folder, 4, 0, 31) // has the rows, too
			merged.Replaces = o.Files
			publishAll(orderOf(settings, 2, merged))
			merged.Step = 2
			without := writeFile(t, folder, 5, 0, 11) // the delete
			without.Replaces = []lake.File{merged}
			o = orderOf(settings, 3, without, c)
			without, c = o.Files[0], o.Files[1]
			purge := lake.Purge{Number: 5, At: time.Now()}
			o.Tidy = quickTidy(purge)
			o.Tidy.Grace = time.Hour // so that nothing goes before the test has looked
			r := publishAll(record(t, o))
			if waits := r.Tidied.Purged[0]; waits.Waits == "" || waits.Until.IsZero() || len(found(t, readObjects(t, location), user)) == 0 {
				t.Errorf("at once: %+v", waits)
			}
			for step, end := 4, time.Now().Add(40*time.Second); ; step++ {
				o = orderOf(settings, step, without, c)
				o.Tidy = quickTidy(purge)
				r = publishAll(record(t, o))
				if r.Tidied.Purged[0].Waits == "" {
					break
				}
				if r.Tidied.Purged[0].Until.IsZero() || time.Now().After(end) {
					t.Fatalf("%+v", r.Tidied)
				}
				time.Sleep(min(2*time.Second, max(0, time.Until(r.Tidied.Purged[0].Until)+100*time.Millisecond)))
			}
			objects := readObjects(t, location)
			names := found(t, objects, user)
			total += len(names)
			if len(names) > 0 {
				t.Errorf("%v still have the rows", names)
			}
			for key := range objects {
				if strings.Contains(key, "0000000001-0") || strings.Contains(key, "0000000004-0") {
					t.Errorf("%s is still there", key)
				}
			}
			if got := sums(t, o); !strings.HasPrefix(got, "22 ") {
				t.Errorf("the table has %s", got)
			}
			t.Logf("%+v", r.Tidied)
		})
	}
	fmt.Printf("figure deleted_bytes_found_by_committer %d\n", total)
}

// TestPurgeWaits tidies tables from which rows cannot go, or nothing may be removed.
func TestPurgeWaits(t *testing.T) {
	for name, test := range map[string]struct {
		change func(t *testing.T, c catalog.Catalog, loaded *table.Table)
		want   string
	}{
		"a tag": {func(t *testing.T, c catalog.Catalog, loaded *table.Table) {
			update := table.NewSetSnapshotRefUpdate("audit", loaded.CurrentSnapshot().SnapshotID, table.TagRef, 0, 0, 0)
			if _, _, err := c.CommitTable(t.Context(), loaded.Identifier(), nil, []table.Update{update}); err != nil {
				t.Fatal(err)
			}
		}, "branch or tag audit keeps a snapshot with the rows: drop it"},
		"gc.enabled": {func(t *testing.T, c catalog.Catalog, loaded *table.Table) {
			transaction := loaded.NewTransaction()
			if err := errors.Join(transaction.SetProperties(iceberg.Properties{"gc.enabled": "false"}), commit(t.Context(), c, transaction)); err != nil {
				t.Fatal(err)
			}
		}, "gc.enabled is false"},
		"another engine": {func(t *testing.T, c catalog.Catalog, loaded *table.Table) {
			path, _ := localPath(loaded.Location() + "/data/compacted.parquet")
			if err := os.WriteFile(path, []byte("rows of a user"), 0o600); err != nil {
				t.Fatal(err)
			}
			b, err := iceberg.NewDataFileBuilder(*iceberg.UnpartitionedSpec, iceberg.EntryContentData, loaded.Location()+"/data/compacted.parquet", iceberg.ParquetFile, nil, nil, nil, 1, 14)
			if err != nil {
				t.Fatal(err)
			}
			all, err := readTable(t.Context(), loaded)
			if err != nil {
				t.Fatal(err)
			}
			transaction := loaded.NewTransaction()
			if err := errors.Join(transaction.ReplaceDataFilesWithDataFiles(t.Context(), slices.Collect(maps.Values(all.files)), []iceberg.DataFile{b.Build()}, nil), commit(t.Context(), c, transaction)); err != nil {
				t.Fatal(err)
			}
		}, "another engine has rewritten files of this store"},
		"a manifest that cannot be read": {func(t *testing.T, _ catalog.Catalog, loaded *table.Table) {
			fs, err := loaded.FS(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			manifests, err := loaded.Metadata().Snapshots()[0].Manifests(fs)
			if err != nil {
				t.Fatal(err)
			}
			path, _ := localPath(manifests[0].FilePath())
			if err := os.Truncate(path, 100); err != nil {
				t.Fatal(err)
			}
		}, "read manifest"},
	} {
		t.Run(name, func(t *testing.T) {
			settings := catalogs(t)["sqlite"]
			folder := t.TempDir()
			// The first snapshot has a file that retention drops; the next ones do not.
			o := orderOf(settings, 1, writeFile(t, folder, 1, 0, 9))
			if r := publish(t.Context(), o); r.Error != "" {
				t.Fatal(r.Error)
			}
			o = orderOf(settings, 2)
			if r := publish(t.Context(), o); r.Error != "" {
				t.Fatal(r.Error)
			}
			o = orderOf(settings, 3, writeFile(t, folder, 2, 20, 31))
			if r := publish(t.Context(), o); r.Error != "" {
				t.Fatal(r.Error)
			}
			c, loaded := load(t, o)
			test.change(t, c, loaded)
			without := writeFile(t, folder, 3, 22, 31)
			without.Replaces = o.Files
			o = orderOf(settings, 4, without)
			if r := publish(t.Context(), o); r.Error != "" {
				t.Fatal(r.Error)
			}
			before := readObjects(t, loaded.Location())
			time.Sleep(20 * time.Millisecond)
			o.Tidy = quickTidy(lake.Purge{Number: 3, At: time.Now()})
			o.Tidy.Grace = 10 * time.Millisecond
			r := publish(t.Context(), record(t, o))
			if r.Error != "" || r.Tidied == nil {
				t.Fatalf("%+v", r)
			}
			waits := r.Tidied.Error
			for _, p := range r.Tidied.Purged {
				waits += p.Waits
			}
			if !strings.Contains(waits, test.want) {
				t.Errorf("waits for %q, want %q", waits, test.want)
			}
			after := readObjects(t, loaded.Location())
			if isRefused := r.Tidied.Error != ""; isRefused && len(after) < len(before) {
				t.Errorf("%d of %d objects are left", len(after), len(before))
			} else if !isRefused && r.Tidied.Objects == 0 {
				t.Errorf("nothing was removed: %+v", r.Tidied)
			}
		})
	}
}

// publishSnapshots publishes a table with n snapshots, and returns the last order.
func publishSnapshots(t *testing.T, settings lake.Settings, n int) *lake.TableOrder {
	t.Helper()
	folder := t.TempDir()
	var files []lake.File
	var o *lake.TableOrder
	for step := 1; step <= n; step++ {
		files = append(files, writeFile(t, folder, step, 2*step, 2*step+2))
		o = orderOf(settings, step, files...)
		files = o.Files
		if r := publish(t.Context(), o); r.Error != "" {
			t.Fatal(r.Error)
		}
	}
	return record(t, o)
}

// TestMaxAge expires snapshots by limits of the table and of its branch. Long ones must not wrap.
func TestMaxAge(t *testing.T) {
	const n = expiredMin + 4
	settings := catalogs(t)["sqlite"]
	o := publishSnapshots(t, settings, n)
	o.Tidy = &lake.Tidy{Age: time.Millisecond, Keep: 2, Grace: time.Millisecond, ForeignGrace: time.Hour}
	setAge := func(ms string) { setProperties(t, o, iceberg.Properties{table.MaxSnapshotAgeMsKey: ms}) }
	setBranch := func(ms int64) {
		c, loaded := load(t, o)
		update := table.NewSetSnapshotRefUpdate(table.MainBranch, loaded.CurrentSnapshot().SnapshotID, table.BranchRef, 0, ms, 0)
		if _, _, err := c.CommitTable(t.Context(), loaded.Identifier(), nil, []table.Update{update}); err != nil {
			t.Fatal(err)
		}
	}
	tidied := func(what string, want int) {
		t.Helper()
		time.Sleep(10 * time.Millisecond)
		r := publish(t.Context(), o)
		if r.Tidied == nil || r.Tidied.Error != "" || r.Tidied.Expired != want {
			t.Fatalf("%s: tidied %+v, want %d snapshots expired", what, r.Tidied, want)
		}
	}
	for _, ms := range []string{"9223372036854775807", "99999999999999999999", "31536000000000", "9223372036855", "9000000000000"} {
		setAge(ms)
		tidied("the table's limit is "+ms, 0)
	}
	setAge("1")
	for _, ms := range []int64{9223372036854775807, 31536000000000} {
		setBranch(ms)
		tidied(fmt.Sprintf("the branch's limit is %d", ms), 0)
	}
	setBranch(2)
	tidied("the branch's limit is 2", n-2)
}

// TestTagWhileExpiring tags a snapshot that is about to expire.
func TestTagWhileExpiring(t *testing.T) {
	for name, settings := range catalogs(t) {
		t.Run(name, func(t *testing.T) {
			o := publishSnapshots(t, settings, expiredMin+4)
			o.Tidy = &lake.Tidy{Age: time.Millisecond, Keep: 2, Grace: time.Millisecond, ForeignGrace: time.Hour}
			time.Sleep(10 * time.Millisecond)
			defer func(real func(string)) { onPoint = real }(onPoint)
			tagged := int64(0)
			onPoint = func(at string) {
				if at != "expiring" || tagged != 0 {
					return
				}
				c, loaded := load(t, o)
				tagged = loaded.Metadata().Snapshots()[3].SnapshotID
				if _, _, err := c.CommitTable(t.Context(), loaded.Identifier(), nil, []table.Update{table.NewSetSnapshotRefUpdate("audit", tagged, table.TagRef, 0, 0, 0)}); err != nil {
					t.Fatal(err)
				}
			}
			r := publish(t.Context(), o)
			if r.Tidied == nil || r.Tidied.Error != "" || r.Tidied.Expired == 0 {
				t.Errorf("tidied %+v, want snapshots expired", r.Tidied)
			}
			_, loaded := load(t, o)
			if got := loaded.SnapshotByName("audit"); got == nil || got.SnapshotID != tagged {
				t.Errorf("the tag has snapshot %v, want %d", got, tagged)
			}
		})
	}
}

// TestManyManifests tidies a table whose manifests have become many.
func TestManyManifests(t *testing.T) {
	o := publishSnapshots(t, catalogs(t)["folder"], manifestsMax+2)
	sequences := func() map[string]int64 {
		_, loaded := load(t, o)
		fs, err := loaded.FS(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		manifests, err := loaded.CurrentSnapshot().Manifests(fs)
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]int64{"manifests": int64(len(manifests))}
		for _, m := range manifests {
			entries, err := m.FetchEntries(fs, false)
			if err != nil {
				t.Fatal(err)
			}
			for _, entry := range entries {
				all[entry.DataFile().FilePath()] = entry.SequenceNum()
			}
		}
		return all
	}
	before := sequences()
	o.Tidy = quickTidy()
	if r := publish(t.Context(), o); r.Error != "" || r.Tidied.Error != "" || r.Tidied.Kept < manifestsMax {
		t.Fatalf("%+v %+v", r, r.Tidied)
	}
	after := sequences()
	if before["manifests"] != manifestsMax+2 || after["manifests"] != 1 {
		t.Errorf("%d manifests became %d", before["manifests"], after["manifests"])
	}
	before["manifests"] = 1
	if !maps.Equal(before, after) {
		t.Errorf("sequence numbers became %v", after)
	}
	if got := sums(t, o); got != sumsOf(2, 2*manifestsMax+6) {
		t.Errorf("the table has %s", got)
	}
}
