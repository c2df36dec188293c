package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/catalog"
	"github.com/apache/iceberg-go/table"

	"github.com/perigeedb/perigee/eventstore/lake"
)

var begun = time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)

// columns are those of the files that writeFile writes.
func columns() []lake.Column {
	return []lake.Column{
		{ID: 2, Name: "at", Type: lake.Timestamptz}, {ID: 3, Name: "amount", Type: lake.Double}, {ID: 4, Name: "name", Type: lake.String},
		{ID: 5, Name: "id", Type: lake.Long}, {ID: 6, Name: "at_ns", Type: lake.Long}, {ID: 7, Name: "later", Type: lake.Boolean},
	}
}

// writeFile writes a file as a store does, with the rows from first to before end. Columns
// alternate between values and null.
func writeFile(t *testing.T, folder string, number, first, end int) lake.File {
	t.Helper()
	return writeFileAs(t, folder, number, first, end, compress.Codecs.Zstd)
}

func writeFileAs(t *testing.T, folder string, number, first, end int, codec compress.Compression) lake.File {
	t.Helper()
	field := func(id int, name string, kind arrow.DataType) arrow.Field {
		return arrow.Field{Name: name, Type: kind, Nullable: true, Metadata: arrow.NewMetadata([]string{"PARQUET:field_id"}, []string{fmt.Sprint(id)})}
	}
	schema := arrow.NewSchema([]arrow.Field{
		field(99, "hidden", arrow.PrimitiveTypes.Int64), field(2, "AT", &arrow.TimestampType{Unit: arrow.Microsecond}), field(3, "amount", arrow.PrimitiveTypes.Float64),
		field(4, "label", arrow.BinaryTypes.String), field(5, "id", arrow.PrimitiveTypes.Int64), field(6, "nanos", &arrow.TimestampType{Unit: arrow.Nanosecond}),
	}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	for i := first; i < end; i++ {
		b.Field(0).(*array.Int64Builder).Append(7)
		b.Field(1).(*array.TimestampBuilder).Append(arrow.Timestamp(begun.Add(time.Duration(i) * time.Second).UnixMicro()))
		b.Field(4).(*array.Int64Builder).Append(int64(i))
		if i%2 == 1 {
			b.Field(2).AppendNull()
			b.Field(3).AppendNull()
			b.Field(5).AppendNull()
			continue
		}
		b.Field(2).(*array.Float64Builder).Append(float64(i) / 2)
		b.Field(3).(*array.StringBuilder).Append(fmt.Sprint("name ", i))
		b.Field(5).(*array.TimestampBuilder).Append(arrow.Timestamp(i))
	}
	record := b.NewRecordBatch()
	defer record.Release()
	f := lake.File{Name: lake.FileName(fmt.Sprintf("2026-11-29/%010d-0.parquet", number), strings.Repeat("a", 16)), Rows: int64(end - first)}
	f.Path = filepath.Join(folder, filepath.Base(f.Name))
	file, err := os.Create(f.Path)
	if err != nil {
		t.Fatal(err)
	}
	w, err := pqarrow.NewFileWriter(schema, file, parquet.NewWriterProperties(parquet.WithCompression(codec), parquet.WithMaxRowGroupLength(10)), pqarrow.DefaultWriterProps())
	if err == nil {
		err = errors.Join(w.Write(record), w.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func orderOf(s lake.Settings, step int, files ...lake.File) *lake.TableOrder {
	o := &lake.TableOrder{Settings: s, Incarnations: []lake.Incarnation{{ID: strings.Repeat("a", 16), Begun: begun, Step: 1}}, Step: uint64(step), Columns: columns(), Files: files}
	for i := range o.Files {
		if o.Files[i].Step == 0 {
			o.Files[i].Step = uint64(step)
		}
	}
	return o
}

// load loads the table of an order.
func load(t *testing.T, o *lake.TableOrder) (catalog.Catalog, *table.Table) {
	t.Helper()
	c, err := openCatalog(t.Context(), &o.Settings, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeCatalog(c) })
	loaded, err := loadTable(t.Context(), c, o)
	if err != nil {
		t.Fatal(err)
	}
	return c, loaded
}

// sums reads the table of an order and returns the sums of its rows: how many, of id, of amount,
// of at_ns, and the bytes of name.
func sums(t *testing.T, o *lake.TableOrder, options ...table.ScanOption) string {
	t.Helper()
	_, loaded := load(t, o)
	rows, err := loaded.Scan(options...).ToArrowTable(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Release()
	id, nanos, amount, bytes := int64(0), int64(0), 0.0, 0
	for i := range int(rows.NumCols()) {
		for _, chunk := range rows.Column(i).Data().Chunks() {
			for k := range chunk.Len() {
				if chunk.IsNull(k) {
					continue
				}
				switch name := rows.Column(i).Name(); name {
				case "id":
					id += chunk.(*array.Int64).Value(k)
				case "at_ns":
					nanos += chunk.(*array.Int64).Value(k)
				case "amount":
					amount += chunk.(*array.Float64).Value(k)
				case "name":
					bytes += len(chunk.ValueStr(k))
				case "at":
					if kind := chunk.DataType().(*arrow.TimestampType); kind.TimeZone != "UTC" {
						t.Errorf("times have the zone %q", kind.TimeZone)
					}
				default:
					t.Fatalf("column %s has the value %s", name, chunk.ValueStr(k))
				}
			}
		}
	}
	return fmt.Sprint(rows.NumRows(), id, amount, nanos, bytes)
}

// sumsOf returns what sums returns of the rows from first to before end.
func sumsOf(first, end int) string {
	id, nanos, amount, bytes := 0, 0, 0.0, 0
	for i := first; i < end; i++ {
		id += i
		if i%2 == 0 {
			amount, nanos, bytes = amount+float64(i)/2, nanos+i, bytes+len(fmt.Sprint("name ", i))
		}
	}
	return fmt.Sprint(end-first, id, amount, nanos, bytes)
}

func TestPublish(t *testing.T) {
	for name, settings := range catalogs(t) {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			a, b, both := writeFile(t, folder, 1, 0, 35), writeFile(t, folder, 2, 35, 50), writeFile(t, folder, 3, 0, 50)
			want := func(o *lake.TableOrder, added, removed int, sum string) {
				t.Helper()
				r := publish(t.Context(), o)
				if r.Error != "" || r.Covered != o.Step || r.Added != added || r.Removed != removed || r.UUID == "" || r.Columns[0].Lake == 0 {
					t.Fatalf("step %d: %+v", o.Step, r)
				}
				if got := sums(t, o); got != sum {
					t.Errorf("step %d: the table has %s, want %s", o.Step, got, sum)
				}
			}
			a.Misfits = 3
			want(orderOf(settings, 1, a), 1, 0, sumsOf(0, 35))
			if _, loaded := load(t, orderOf(settings, 1, a)); loaded.CurrentSnapshot().Summary.Properties[misfitsProperty] != "3" {
				t.Errorf("the summary is %v", loaded.CurrentSnapshot().Summary)
			}
			a.Step = 1
			want(orderOf(settings, 1, a), 0, 0, sumsOf(0, 35)) // its answer was lost
			if err := os.Remove(a.Path); err != nil {
				t.Fatal(err)
			}
			a.Path = "" // only the lake has it
			want(orderOf(settings, 2, a, b), 1, 0, sumsOf(0, 50))
			b.Step = 2
			both.Replaces = []lake.File{a, b}
			o := orderOf(settings, 3, both)
			want(o, 1, 2, sumsOf(0, 50))
			if got := sums(t, o, table.WithRowFilter(iceberg.GreaterThanEqual(iceberg.Reference("id"), int64(40)))); got != sumsOf(40, 50) {
				t.Errorf("with a condition: %s, want %s", got, sumsOf(40, 50))
			}
			// A new column, and then nothing.
			o = orderOf(settings, 4)
			o.Columns = append(o.Columns, lake.Column{ID: 12, Name: "new", Type: "decimal(18,2)"})
			want(o, 0, 1, sumsOf(0, 0))
			_, loaded := load(t, o)
			if f, found := loaded.Schema().FindFieldByName("new"); !found || f.Type.String() != "decimal(18, 2)" || f.Required {
				t.Errorf("the new column is %v", f)
			}
		})
	}
}

// TestPublishRefuses orders what cannot be carried out. The table must stay as it was.
func TestPublishRefuses(t *testing.T) {
	settings := catalogs(t)["sqlite"]
	folder := t.TempDir()
	a, b := writeFile(t, folder, 1, 0, 20), writeFile(t, folder, 2, 20, 30)
	if r := publish(t.Context(), orderOf(settings, 5, a)); r.Error != "" {
		t.Fatal(r.Error)
	}
	a.Step = 5
	for name, test := range map[string]struct {
		change func(o *lake.TableOrder)
		want   string
	}{
		"a step again":       {func(o *lake.TableOrder) { o.Step = 4 }, "assigned a step again"},
		"another type":       {func(o *lake.TableOrder) { o.Columns[1].Type = lake.Long }, "has type double, not long"},
		"a table made again": {func(o *lake.TableOrder) { o.Columns[1].Lake = 77 }, "the table was recreated"},
		"a wrong count":      {func(o *lake.TableOrder) { o.Files[1].Rows++ }, "has 10 rows, not 11"},
		"a wrong file type":  {func(o *lake.TableOrder) { o.Columns[1].ID = 4 }, "column label has type string, and the lake has double"},
		"a missing file":     {func(o *lake.TableOrder) { o.Files[1].Path += "x" }, "no such file"},
		"another catalog":    {func(o *lake.TableOrder) { o.Catalog = "ftp://x" }, "not an address"},
	} {
		o := orderOf(settings, 6, a, b)
		test.change(o)
		if r := publish(t.Context(), o); !strings.Contains(r.Error, test.want) || r.Covered != 0 || r.RolledBack != (name == "a step again") {
			t.Errorf("%s: %+v, want the error %q", name, r, test.want)
		}
	}
	lost := b
	lost.Path = ""
	if r := publish(t.Context(), orderOf(settings, 6, a, lost)); len(r.Lost) != 1 || r.Covered != 0 {
		t.Errorf("a file that nobody has: %+v", r)
	}
	if got := sums(t, orderOf(settings, 6)); got != sumsOf(0, 20) {
		t.Errorf("the table has %s", got)
	}
	// The name of a file belongs to another one.
	path := filepath.Join(settings.Warehouse, "sales.db", "mails", "data", filepath.FromSlash(b.Name))
	if err := os.WriteFile(path, []byte("something else"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := publish(t.Context(), orderOf(settings, 6, a, b)); !strings.Contains(r.Error, "another file has this name") {
		t.Errorf("a name that is taken: %+v", r)
	}
}

// TestTwoCommitters publishes a growing number of files by two committers at once.
func TestTwoCommitters(t *testing.T) {
	for name, settings := range catalogs(t) {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			var files []lake.File
			var o *lake.TableOrder
			for step := 1; step <= 6; step++ {
				files = append(files, writeFile(t, folder, step, 10*step, 10*step+10))
				o = orderOf(settings, step, files...)
				files = o.Files
				var both sync.WaitGroup
				for range 2 {
					own := *o
					own.Columns = columns()
					both.Go(func() {
						if r := publish(t.Context(), &own); r.Error != "" {
							t.Errorf("step %d: %+v", step, r)
						}
					})
				}
				both.Wait()
			}
			if got := sums(t, o); got != sumsOf(10, 70) {
				t.Errorf("the table has %s, want %s", got, sumsOf(10, 70))
			}
		})
	}
}

func TestBounds(t *testing.T) {
	long := strings.Repeat("x", boundMax)
	for _, test := range []struct {
		kind lake.Type
		a, b []byte
		want int
	}{
		{lake.Int, []byte{0xff, 0xff, 0xff, 0xff}, []byte{0, 0, 0, 0}, -1}, {lake.Long, []byte{0, 1, 0, 0, 0, 0, 0, 0}, []byte{2, 0, 0, 0, 0, 0, 0, 0}, 1},
		{lake.String, []byte("a"), []byte("b"), -1}, {lake.String, []byte("é"), []byte("z"), 1}, {lake.String, []byte(long), []byte(long), 0},
	} {
		if got := compare(test.kind, test.a, test.b); got != test.want {
			t.Errorf("%s: %x and %x compare as %d", test.kind, test.a, test.b, got)
		}
	}
	for _, refused := range []struct {
		kind  lake.Type
		bound []byte
	}{{lake.Double, []byte{0, 0, 0, 0, 0, 0, 0, 0}}, {lake.Double, []byte{0, 0, 0, 0, 0, 0, 0xf8, 0x7f}}, {lake.String, []byte{0xff}}, {lake.Long, []byte{1}}, {lake.Binary, []byte{1}}, {"decimal(9,2)", []byte{1, 0, 0, 0}}} {
		if comparable(refused.kind, refused.bound) {
			t.Errorf("%s: %x is a bound", refused.kind, refused.bound)
		}
	}
}

// TestSwap gives a column another type. Whatever happens between its commits, a table has either
// the old column or the new one.
func TestSwap(t *testing.T) {
	for name, settings := range catalogs(t) {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			a, b := writeFile(t, folder, 1, 0, 20), writeFile(t, folder, 2, 0, 20)
			// The file has longs as column 5; the lake has them as doubles of column 3 before.
			before := orderOf(settings, 1, a)
			before.Columns[1], before.Columns[3] = lake.Column{ID: 3, Name: "value", Type: lake.Double}, lake.Column{ID: 98, Name: "id", Type: lake.Long}
			if r := publish(t.Context(), before); r.Error != "" {
				t.Fatal(r.Error)
			}
			former := before.Columns[1].Lake
			a.Step, b.Step, b.Replaces = 1, 2, []lake.File{a}
			after := func() *lake.TableOrder {
				o := orderOf(settings, 2, b)
				o.Columns[1], o.Columns[3] = lake.Column{ID: 5, Name: "value", Type: lake.Long, Former: former}, lake.Column{ID: 98, Name: "id", Type: lake.Long}
				return o
			}
			// Killed before the commit of the files: the interim column is there, twice is once.
			for range 2 {
				o := after()
				_, loaded := load(t, o)
				if interim, found := loaded.Schema().FindFieldByName("value_widened"); !found || o.Columns[1].Lake != int32(interim.ID) {
					t.Fatalf("the interim column is %v, and the order has %d", interim, o.Columns[1].Lake)
				}
				if old, _ := loaded.Schema().FindFieldByName("value"); old.ID != int(former) {
					t.Fatalf("the column is %v", old)
				}
			}
			for range 2 { // the answer of the first one was lost
				o := after()
				if r := publish(t.Context(), o); r.Error != "" || r.Covered != 2 {
					t.Fatalf("%+v", r)
				}
				_, loaded := load(t, o)
				field, _ := loaded.Schema().FindFieldByName("value")
				if _, found := loaded.Schema().FindFieldByName("value_widened"); found || field.ID == int(former) || field.Type.String() != "long" || o.Columns[1].Lake != int32(field.ID) || len(loaded.Schema().Fields()) != 6 {
					t.Fatalf("the schema is %v", loaded.Schema())
				}
				if loaded.CurrentSnapshot().SchemaID == nil || *loaded.CurrentSnapshot().SchemaID != loaded.Schema().ID {
					t.Errorf("the snapshot has schema %v, and the table %d", loaded.CurrentSnapshot().SchemaID, loaded.Schema().ID)
				}
				rows, err := loaded.Scan(table.WithSelectedFields("value")).ToArrowTable(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				sum := int64(0)
				for _, chunk := range rows.Column(0).Data().Chunks() {
					for k := range chunk.Len() {
						sum += chunk.(*array.Int64).Value(k)
					}
				}
				rows.Release()
				if sum != 190 {
					t.Errorf("the values sum up to %d", sum)
				}
			}
			// Files of others would lose their values, and a column of others is in the way.
			o := after()
			_, loaded := load(t, after())
			field, _ := loaded.Schema().FindFieldByName("value")
			o.Step, o.Columns[1] = 3, lake.Column{ID: 3, Name: "value", Type: lake.Double, Former: int32(field.ID)}
			want := "other engines have written"
			if name == "folder" {
				o.Incarnations[0].ID = strings.Repeat("b", 16)
			} else {
				o.Columns[4].Name, want = "value_widened", "in the way of widening"
			}
			if r := publish(t.Context(), o); !strings.Contains(r.Error, want) {
				t.Errorf("%+v, want the error %q", r, want)
			}
		})
	}
}
