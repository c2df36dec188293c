package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/catalog"
	iceio "github.com/apache/iceberg-go/io"
	"github.com/apache/iceberg-go/table"

	"github.com/perigeedb/perigee/eventstore/lake"
)

// age makes all files of a folder older than any grace time.
func age(t *testing.T, folder string) {
	t.Helper()
	old := time.Now().Add(-100 * time.Hour)
	if err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Chtimes(path, old, old))
	}); err != nil {
		t.Fatal(err)
	}
}

// orderFor returns an order of another table, by a store of its own.
func orderFor(t *testing.T, settings lake.Settings, name string) *lake.TableOrder {
	t.Helper()
	settings.Table = name
	o := orderOf(settings, 1, writeFile(t, t.TempDir(), 7, 0, 9))
	o.Incarnations[0].ID = strings.Repeat("c", 16)
	o.Files[0].Name = strings.Replace(o.Files[0].Name, strings.Repeat("a", 16), strings.Repeat("c", 16), 1)
	return o
}

func setLocation(t *testing.T, o *lake.TableOrder, location string) {
	t.Helper()
	c, loaded := load(t, o)
	if _, _, err := c.CommitTable(t.Context(), loaded.Identifier(), nil, []table.Update{table.NewSetLocationUpdate(location)}); err != nil {
		t.Fatal(err)
	}
}

// TestTidyPlace tidies tables whose location has files of others. All of these must stay, however
// often the store looks.
func TestTidyPlace(t *testing.T) {
	// Each function returns the folder with files of others.
	for name, test := range map[string]struct {
		change       func(t *testing.T, o *lake.TableOrder) string
		want, action string
	}{
		"a folder of others": {func(t *testing.T, o *lake.TableOrder) string {
			folder := t.TempDir()
			for _, name := range []string{"data/orders.db", "metadata/notes.txt"} {
				path := filepath.Join(folder, name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("precious"), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			setLocation(t, o, "file://"+folder)
			return folder
		}, "was given the location", "set the property perigee.location of the table to file://"},
		"the location of another table": {func(t *testing.T, o *lake.TableOrder) string {
			other := orderFor(t, o.Settings, "sales.other")
			if r := publish(t.Context(), other); r.Error != "" {
				t.Fatal(r.Error)
			}
			_, loaded := load(t, other)
			setLocation(t, o, loaded.Location())
			path, _ := localPath(loaded.Location())
			return path
		}, "was given the location", "set the location back"},
		"the location of another table, accepted": {func(t *testing.T, o *lake.TableOrder) string {
			other := orderFor(t, o.Settings, "sales.other")
			if r := publish(t.Context(), other); r.Error != "" {
				t.Fatal(r.Error)
			}
			_, loaded := load(t, other)
			setLocation(t, o, loaded.Location())
			setProperties(t, o, iceberg.Properties{lake.LocationProperty: loaded.Location()})
			path, _ := localPath(loaded.Location())
			return path
		}, ".metadata.json is metadata of another table", "let one of the two tables have another location"},
	} {
		t.Run(name, func(t *testing.T) {
			o := orderOf(catalogs(t)["sqlite"], 1, writeFile(t, t.TempDir(), 1, 0, 9))
			o.Tidy = lake.DefaultTidy()
			if r := publish(t.Context(), o); r.Error != "" || r.Tidied != nil {
				t.Fatalf("the first order: %+v, tidied %+v, want nothing to tidy", r, r.Tidied)
			}
			others := test.change(t, o)
			age(t, others)
			before := readObjects(t, others)
			for step := 2; step <= 4; step++ {
				o = orderOf(o.Settings, step, o.Files[0])
				o.Tidy = lake.DefaultTidy()
				r := publish(t.Context(), record(t, o))
				if r.Tidied == nil || !strings.Contains(r.Tidied.Error, test.want) || !strings.Contains(r.Tidied.Hint, test.action) {
					t.Errorf("step %d: tidied %+v, want the error %q and the hint %q", step, r.Tidied, test.want, test.action)
				}
			}
			after := readObjects(t, others)
			for name := range before {
				if _, found := after[name]; !found {
					t.Errorf("%s was removed", name)
				}
			}
		})
	}
}

func setProperties(t *testing.T, o *lake.TableOrder, properties iceberg.Properties) {
	t.Helper()
	c, loaded := load(t, o)
	transaction := loaded.NewTransaction()
	if err := errors.Join(transaction.SetProperties(properties), commit(t.Context(), c, transaction)); err != nil {
		t.Fatal(err)
	}
}

// TestTidyUnrecorded orders to tidy a table that is not the one that the store has recorded.
func TestTidyUnrecorded(t *testing.T) {
	for name, test := range map[string]struct {
		change func(o *lake.TableOrder)
		purges []lake.Purge
		want   string
	}{
		"the first order":              {func(*lake.TableOrder) {}, nil, ""},
		"the first order, and a purge": {func(*lake.TableOrder) {}, []lake.Purge{{Number: 1}}, errUnrecorded.Error()},
		"another UUID": {func(o *lake.TableOrder) {
			record(t, o).UUID = "f79c3e09-677c-4bbd-a479-512f87f8ee4a"
		}, []lake.Purge{{Number: 1}}, errUnrecorded.Error()},
		"another location": {func(o *lake.TableOrder) {
			record(t, o).Location += "-2"
		}, []lake.Purge{{Number: 1}}, errUnrecorded.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			o := orderOf(catalogs(t)["sqlite"], 1, writeFile(t, t.TempDir(), 1, 0, 9))
			o.Tidy = quickTidy(test.purges...)
			test.change(o)
			r := publish(t.Context(), o)
			got := ""
			if r.Tidied != nil {
				got = r.Tidied.Error
			}
			if r.Error != "" || got != test.want {
				t.Errorf("tidying failed with %q, want %q; %+v", got, test.want, r)
			}
		})
	}
}

// TestAcceptLocation gives a table another location, and then accepts it by its property.
func TestAcceptLocation(t *testing.T) {
	o := orderOf(catalogs(t)["sqlite"], 1, writeFile(t, t.TempDir(), 1, 0, 9))
	o.Tidy = lake.DefaultTidy()
	if r := publish(t.Context(), o); r.Error != "" {
		t.Fatal(r.Error)
	}
	folder := t.TempDir()
	orphan := filepath.Join(folder, "data", "orphan.parquet")
	if err := errors.Join(os.MkdirAll(filepath.Dir(orphan), 0o755), os.WriteFile(orphan, []byte("of a failed commit"), 0o600)); err != nil {
		t.Fatal(err)
	}
	age(t, folder)
	setLocation(t, o, "file://"+folder)
	setProperties(t, o, iceberg.Properties{lake.LocationProperty: "file://" + folder + "/"})
	o = orderOf(o.Settings, 2, o.Files[0])
	o.Tidy = lake.DefaultTidy()
	if r := publish(t.Context(), record(t, o)); r.Error != "" || r.Tidied == nil || r.Tidied.Error != "" || r.Tidied.Objects != 1 {
		t.Errorf("%+v, tidied %+v, want an object removed", r, r.Tidied)
	}
	if _, err := os.Stat(orphan); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the orphan: %v, want it removed", err)
	}
}

// TestCreateBeside renames a table in the catalog. The store makes a new one beside its files, and
// tidies that.
func TestCreateBeside(t *testing.T) {
	for name, settings := range catalogs(t) {
		if settings.Catalog == "" {
			continue // a table in a folder cannot be renamed
		}
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			o := orderOf(settings, 1, writeFile(t, folder, 1, 0, 9))
			if r := publish(t.Context(), o); r.Error != "" {
				t.Fatal(r.Error)
			}
			kept := *o
			c, loaded := load(t, o)
			kept.Table = "sales.kept" + strings.TrimPrefix(settings.Table, "sales.mails")
			if _, err := c.RenameTable(t.Context(), loaded.Identifier(), catalog.ToIdentifier(strings.Split(kept.Table, ".")...)); err != nil {
				t.Skip(err)
			}
			o = orderOf(settings, 2, writeFile(t, folder, 2, 10, 19))
			if r := publish(t.Context(), o); r.Error != "" {
				t.Fatal(r.Error)
			}
			if path, isLocal := localPath(loaded.Location()); isLocal {
				age(t, path)
			}
			o.Tidy = lake.DefaultTidy()
			o.Tidy.Grace, o.Tidy.ForeignGrace = time.Millisecond, time.Millisecond
			r := publish(t.Context(), record(t, o))
			if r.Tidied == nil || r.Tidied.Error != "" {
				t.Errorf("%+v, tidied %+v", r, r.Tidied)
			}
			if o.Location == loaded.Location() {
				t.Errorf("both tables are at %s", o.Location)
			}
			for of, want := range map[*lake.TableOrder]string{&kept: sumsOf(0, 9), o: sumsOf(10, 19)} {
				if got := sums(t, of); got != want {
					t.Errorf("table %s has %s, want %s", of.Table, got, want)
				}
			}
		})
	}
}

func TestReadUUID(t *testing.T) {
	zip := func(text string) string {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = io.WriteString(w, text)
		_ = w.Close()
		return b.String()
	}
	const metadata = `{"format-version":2,"properties":{"table-uuid":"no"},"table-uuid":"yes","location":"/lake"}`
	for name, test := range map[string]struct{ content, want string }{
		"metadata":                        {metadata, "yes"},
		"compressed":                      {zip(metadata), "yes"},
		"torn behind it":                  {metadata[:len(metadata)-10], "yes"},
		"torn before it":                  {metadata[:50], ""},
		"torn within it":                  {metadata[:strings.Index(metadata, "yes")+1], ""},
		"compressed and torn":             {zip(metadata)[:30], ""},
		"compressed and damaged":          {zip(metadata)[:12] + strings.Repeat("\xff", 40), ""},
		"the first bytes of a compressed": {"\x1f\x8b", ""},
		"without one":                     {`{"format-version":2}`, ""},
		"a number":                        {`{"table-uuid":7}`, ""},
		"a list":                          {`["table-uuid"]`, ""},
		"no JSON":                         {"PAR1", ""},
		"empty":                           {"", ""},
	} {
		path := filepath.Join(t.TempDir(), "v1.metadata.json")
		if err := os.WriteFile(path, []byte(test.content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := readUUID(iceio.LocalFS{}, path); got != test.want || err != nil {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, test.want)
		}
	}
}

// makeTable makes a table as another program does.
func makeTable(t *testing.T, s lake.Settings, location string, schema *iceberg.Schema, options ...catalog.CreateTableOpt) {
	t.Helper()
	c, err := openCatalog(t.Context(), &s, true)
	if err != nil {
		t.Fatal(err)
	}
	defer closeCatalog(c)
	identifier := catalog.ToIdentifier(strings.Split(s.Table, ".")...)
	err = c.CreateNamespace(t.Context(), catalog.NamespaceFromIdent(identifier), nil)
	if err == nil {
		_, err = c.CreateTable(t.Context(), identifier, schema, append(options, catalog.WithLocation(location))...)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestTidyUnclaimed publishes into an empty table of another program, at a location with files that
// no snapshot names. They must stay, until somebody tells that nobody needs them.
func TestTidyUnclaimed(t *testing.T) {
	settings, folder := catalogs(t)["sqlite"], t.TempDir()
	others := []string{"data/orders.db", "data/2026/part-1.parquet", "metadata/notes.txt"}
	for _, name := range others {
		path := filepath.Join(folder, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("precious"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	schema := iceberg.NewSchema(0, iceberg.NestedField{ID: 1, Name: "their", Type: iceberg.PrimitiveTypes.String})
	makeTable(t, settings, "file://"+folder, schema, catalog.WithProperties(iceberg.Properties{"format-version": "2"}))
	has := func(name string) bool {
		_, err := os.Stat(filepath.Join(folder, name))
		return err == nil
	}
	file, step := writeFile(t, t.TempDir(), 1, 0, 9), 0
	tidied := func() *lake.Tidied {
		t.Helper()
		step++
		o := orderOf(settings, step, file)
		o.Files[0].Step = 1
		if o.Tidy = lake.DefaultTidy(); step > 1 {
			record(t, o)
		}
		age(t, folder)
		r := publish(t.Context(), o)
		if r.Error != "" {
			t.Fatal(r.Error)
		}
		return r.Tidied
	}
	for range 3 {
		got := tidied()
		if got == nil || !strings.Contains(got.Error, "is a file of another table or program") || !strings.Contains(got.Hint, lake.LocationProperty) {
			t.Errorf("step %d: tidied %+v, want an error", step, got)
		}
	}
	for _, name := range others {
		if !has(name) {
			t.Errorf("%s was removed", name)
		}
	}
	setProperties(t, orderOf(settings, step, file), iceberg.Properties{lake.LocationProperty: "file://" + folder})
	for range 2 {
		if got := tidied(); got == nil || got.Error != "" {
			t.Errorf("step %d: tidied %+v", step, got)
		}
	}
	for name, want := range map[string]bool{others[0]: true, others[1]: false, others[2]: true} { // no writer of Iceberg gives the first and the last such names
		if has(name) != want {
			t.Errorf("after it was allowed, %s is there: %t, want %t", name, has(name), want)
		}
	}
}

// TestTablesOfOthers publishes into tables that another program has made. It must not change those that
// cannot have the store's rows, or have rows of that program.
func TestTablesOfOthers(t *testing.T) {
	text := iceberg.PrimitiveTypes.String
	for name, test := range map[string]struct {
		field   iceberg.NestedField
		options []catalog.CreateTableOpt
		rows    bool
		want    string
	}{
		"an empty one":       {iceberg.NestedField{ID: 1, Name: "their", Type: text}, nil, false, ""},
		"with rows":          {iceberg.NestedField{ID: 1, Name: "their", Type: text}, nil, true, "has rows of another program"},
		"a required column":  {iceberg.NestedField{ID: 1, Name: "their", Type: text, Required: true}, nil, false, "column their of table sales.mails is required"},
		"partitions":         {iceberg.NestedField{ID: 1, Name: "their", Type: text}, []catalog.CreateTableOpt{catalog.WithPartitionSpec(partitionedBy(1))}, false, "table sales.mails is partitioned"},
		"the case of a name": {iceberg.NestedField{ID: 1, Name: "AMOUNT", Type: iceberg.PrimitiveTypes.Float64}, nil, false, "the lake table has a column AMOUNT, and many engines cannot tell it from amount"},
	} {
		t.Run(name, func(t *testing.T) {
			settings := catalogs(t)["sqlite"]
			options := append(test.options, catalog.WithProperties(iceberg.Properties{"format-version": "2"}))
			makeTable(t, settings, "file://"+t.TempDir(), iceberg.NewSchema(0, test.field), options...)
			if test.rows {
				o := orderOf(settings, 1, writeFile(t, t.TempDir(), 1, 0, 9))
				(&otherEngine{t, o}).append("theirs.parquet", o.Files[0])
			}
			before := schemaOf(t, settings)
			o := orderOf(settings, 1, writeFile(t, t.TempDir(), 2, 0, 9))
			r := publish(t.Context(), o)
			if !strings.Contains(r.Error, test.want) || (r.Error == "") != (test.want == "") || r.Error != "" && !strings.Contains(r.Hint, "lake.table") {
				t.Errorf("got the error %q and the hint %q, want …%s…", r.Error, r.Hint, test.want)
			}
			if after := schemaOf(t, settings); test.want != "" && after != before {
				t.Errorf("the schema is %s, and was %s", after, before)
			}
		})
	}
}

func partitionedBy(field int) *iceberg.PartitionSpec {
	spec := iceberg.NewPartitionSpec(iceberg.PartitionField{SourceIDs: []int{field}, FieldID: 1000, Name: "part", Transform: iceberg.IdentityTransform{}})
	return &spec
}

func schemaOf(t *testing.T, s lake.Settings) string {
	t.Helper()
	_, loaded := loadUnchanged(t, s)
	return loaded.Schema().String()
}

// TestPurgeBesideOthers has files that no writer of Iceberg tables gives such names: a purge must not remove
// them, and say that a person must.
func TestPurgeBesideOthers(t *testing.T) {
	o := orderOf(catalogs(t)["sqlite"], 1, writeFile(t, t.TempDir(), 1, 0, 9))
	if r := publish(t.Context(), o); r.Error != "" {
		t.Fatal(r.Error)
	}
	_, loaded := load(t, o)
	folder, _ := localPath(loaded.Location())
	other := filepath.Join(folder, "data", "_SUCCESS")
	if err := os.WriteFile(other, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	age(t, folder)
	tidied := func(step int) lake.Purged {
		t.Helper()
		o = orderOf(o.Settings, step, writeFile(t, t.TempDir(), 9, 0, 5))
		o.Tidy = lake.DefaultTidy()
		o.Tidy.Grace, o.Tidy.Purges = time.Millisecond, []lake.Purge{{Number: 5, At: time.Now().Add(-time.Minute)}}
		r := publish(t.Context(), record(t, o))
		if r.Error != "" || r.Tidied == nil || r.Tidied.Error != "" {
			t.Fatalf("%+v, tidied %+v", r, r.Tidied)
		}
		time.Sleep(10 * time.Millisecond)
		return r.Tidied.Purged[0]
	}
	tidied(2)
	if got := tidied(3); !strings.Contains(got.Waits, other+" is a file of another program") || !got.Until.IsZero() {
		t.Errorf("the purge waits for %q until %v, want a person to remove %s", got.Waits, got.Until, other)
	}
	if err := os.Remove(other); err != nil {
		t.Fatal(err)
	}
	if got := tidied(4); got.Waits != "" {
		t.Errorf("the purge waits for %q after the file was removed", got.Waits)
	}
}

// TestLookPartitioned looks at a table that another engine has partitioned since, which changes no data.
func TestLookPartitioned(t *testing.T) {
	o := orderOf(catalogs(t)["sqlite"], 1, writeFile(t, t.TempDir(), 1, 0, 9))
	if r := publish(t.Context(), o); r.Error != "" {
		t.Fatal(r.Error)
	}
	c, loaded := load(t, o)
	transaction := loaded.NewTransaction()
	if err := errors.Join(transaction.UpdateSpec(true).AddField("id", iceberg.BucketTransform{NumBuckets: 4}, "b").Commit(), commit(t.Context(), c, transaction)); err != nil {
		t.Fatal(err)
	}
	for look, want := range map[bool]string{true: "", false: "is partitioned"} {
		next := *o
		next.Look, next.Files = look, []lake.File{{Name: o.Files[0].Name, Rows: o.Files[0].Rows, Step: 1}}
		if r := publish(t.Context(), &next); (r.Error == "") != (want == "") || !strings.Contains(r.Error, want) {
			t.Errorf("look %t: got the error %q, want %q", look, r.Error, want)
		}
	}
}

// TestTableEmptied publishes into a table whose rows another program has removed.
func TestTableEmptied(t *testing.T) {
	settings := catalogs(t)["sqlite"]
	schema := iceberg.NewSchema(0, iceberg.NestedField{ID: 1, Name: "their", Type: iceberg.PrimitiveTypes.String})
	makeTable(t, settings, "file://"+t.TempDir(), schema, catalog.WithProperties(iceberg.Properties{"format-version": "2"}))
	o := orderOf(settings, 1, writeFile(t, t.TempDir(), 1, 0, 9))
	(&otherEngine{t, o}).append("theirs.parquet", o.Files[0])
	c, loaded := loadUnchanged(t, settings)
	all, err := readTable(t.Context(), loaded)
	if err != nil {
		t.Fatal(err)
	}
	transaction := loaded.NewTransaction()
	if err := errors.Join(transaction.ReplaceDataFilesWithDataFiles(t.Context(), slices.Collect(maps.Values(all.files)), nil, nil), commit(t.Context(), c, transaction)); err != nil {
		t.Fatal(err)
	}
	if r := publish(t.Context(), orderOf(settings, 1, writeFile(t, t.TempDir(), 2, 0, 9))); r.Error != "" {
		t.Errorf("a table without rows: got the error %q", r.Error)
	}
}

// loadUnchanged loads a table without creating it or its columns.
func loadUnchanged(t *testing.T, s lake.Settings) (catalog.Catalog, *table.Table) {
	t.Helper()
	c, err := openCatalog(t.Context(), &s, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeCatalog(c) })
	loaded, err := c.LoadTable(t.Context(), catalog.ToIdentifier(strings.Split(s.Table, ".")...))
	if err != nil {
		t.Fatal(err)
	}
	return c, loaded
}
