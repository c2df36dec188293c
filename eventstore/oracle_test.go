//go:build linux && cgo

package eventstore

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/internal/testseed"
)

// An oracle compares the answers of a store with those of DuckDB over the same rows in plain
// tables, without files, filters or bounds.
type oracle struct {
	t      *testing.T
	seed   uint64
	data   *rand.Rand // source of rows and deletes
	folder string
	store  *Store
	plain  *plainDuck
	each   int // queries per moment

	events, others *Partition
	next           [2]uint64 // positions of events and others
	id             int
	version        int  // of the function that computes column c
	wider, nested  bool // contents of the fields without a declared column
	inferred       []inferred
	whole          map[string]int // by column: the last row that was stored as a whole number

	moment              int
	queries, wrong, odd int
}

// TestOracle runs random queries at each stage of the life of rows. make test-oracle runs
// more. PERIGEE_SEED replays the queries of a seed.
func TestOracle(t *testing.T) {
	if testing.Short() {
		t.Skip("it is about what SQL means, one query after another")
	}
	seeds, queries := countFrom(t, "PERIGEE_ORACLE_SEEDS", 1), countFrom(t, "PERIGEE_ORACLE_QUERIES", 60)
	first, total, wrong := testseed.Seed(t), 0, 0
	for i := range uint64(seeds) {
		o := &oracle{t: t, seed: first + i, each: queries/oracleMoments + 1}
		o.run()
		t.Logf("seed %d: %d queries, %d wrong; DuckDB refuses %d more", o.seed, o.queries, o.wrong, o.odd)
		total, wrong = total+o.queries, wrong+o.wrong
		if o.queries*2 < queries {
			t.Errorf("seed %d: DuckDB answers only %d of %d queries", o.seed, o.queries, queries)
		}
	}
	fmt.Printf("figure sql_oracle_queries %d\nfigure sql_oracle_wrong %d\n", total, wrong)
}

// oracleMoments is the number of times that run asks queries.
const oracleMoments = 10

func (o *oracle) run() {
	o.data, o.whole = rand.New(rand.NewPCG(o.seed, 1)), map[string]int{}
	o.folder, o.plain = o.t.TempDir(), openPlain(o.t)
	defer o.plain.close()
	o.open()
	o.plain.exec("CREATE TABLE events (" + o.columnsSQL() + "); CREATE TABLE other (k BIGINT, v VARCHAR, ts TIMESTAMP, w DOUBLE)")

	o.append(120)
	o.ask("hot")
	seal(o.t, o.store)
	o.append(30)
	o.ask("sealed")
	o.wider = true
	o.append(60)
	o.ask("wider schema")
	o.nested = true
	o.append(60)
	o.ask("JSON beside doubles")
	o.merge()
	o.ask("merged")
	o.restart()
	o.append(20)
	o.ask("restarted")
	o.killed()
	o.ask("killed")
	o.recompute()
	o.ask("recomputed")
	deleted := o.delete()
	o.ask("deleted")
	o.append(20)
	for _, d := range deleted {
		if err := waitDeleted(o.t, o.store, d); err != nil {
			o.t.Fatal(err)
		}
	}
	o.retain()
	o.ask("deleted from files")
	if err := o.store.Close(); err != nil {
		o.t.Error(err)
	}
}

func (o *oracle) config() TableConfig {
	c := TableConfig{Time: "tm", Event: "s", Bloom: []string{"i", "n"}}
	if o.seed%3 == 0 {
		c.Sort = []string{"f", "x"}
	}
	for _, one := range oracleColumns {
		c.Columns = append(c.Columns, event.Column{Name: one.name, Path: []string{one.name}, Type: o.typeOf(one), Digits: one.digits})
	}
	return c
}

// typeOf returns the type of a column. The type of the time column depends on the seed.
func (o *oracle) typeOf(c oracleColumn) event.Type {
	if c.name == "tm" && o.seed%2 == 1 {
		return event.TimestampNS
	}
	return c.kind
}

func (o *oracle) columnsSQL() string {
	var list []string
	for _, c := range o.config().Columns {
		list = append(list, c.Name+" "+plainTypes[c.Type]+c.Digits.String())
	}
	return strings.Join(list, ", ")
}

func (o *oracle) names() string {
	var list []string
	for _, c := range oracleColumns {
		list = append(list, c.name)
	}
	return strings.Join(list, ", ")
}

// open opens the store and its two tables.
func (o *oracle) open() {
	o.store = openStore(o.t, o.folder)
	o.store.SetComputed([]ComputedColumn{o.computed()})
	events := openTable(o.t, o.store, o.config())
	o.openOther(0)
	o.events = take(o.t, events)
}

func (o *oracle) openOther(retention time.Duration) {
	other, err := o.store.Table("other", TableConfig{
		Time: "ts", Retention: retention, Unique: catalog.Unique{Key: []string{"k"}, Window: catalog.Duration(1000 * time.Hour)},
		Columns: []event.Column{{Name: "k", Path: []string{"k"}, Type: event.Int64}, {Name: "v", Path: []string{"v"}, Type: event.String}, {Name: "w", Path: []string{"w"}, Type: event.Float64}},
	})
	if err != nil {
		o.t.Fatal(err)
	}
	o.others = take(o.t, other)
}

// computed computes column c; DuckDB computes it by an UPDATE.
func (o *oracle) computed() ComputedColumn {
	version := int64(o.version)
	return computedBy("c", fmt.Sprint(version), func(r testRow) (any, error) {
		n, err := r.number("id")
		return n*3 + version, err
	})
}

func (o *oracle) recompute() {
	o.version++
	o.store.SetComputed([]ComputedColumn{o.computed()})
	startRecompute(o.t, o.store, "c")
	if r := recomputed(o.t, o.store, "c"); r.Failed > 0 || r.Error != "" {
		o.t.Errorf("PERIGEE_SEED=%d: %d rows have no recomputed value: %s", o.seed, r.Failed, r.Error)
	}
	o.plain.exec(fmt.Sprintf("UPDATE events SET c = id * 3 + %d", o.version))
}

// append appends rows to both tables, in several batches. Some keys of the other table
// repeat.
func (o *oracle) append(rows int) {
	for rows > 0 {
		n := min(1+o.data.IntN(40), rows)
		rows -= n
		var docs, values []string
		for range n {
			doc, value := o.row()
			docs, values = append(docs, doc), append(values, value)
		}
		appendDocs(o.t, o.events, o.next[0], docs...)
		o.next[0] += uint64(n)
		o.plain.exec("INSERT INTO events (" + o.names() + ") VALUES " + strings.Join(values, ", "))
		o.follow()

		docs, values = nil, nil
		for range n/4 + 1 {
			k, at := o.data.IntN(40), time.Now().UTC().Truncate(time.Hour).Add(time.Duration(o.data.IntN(48))*time.Hour)
			if k%3 == 0 { // retention removes these
				at = time.Date(2020, 1, 1+k, 0, 0, 0, 0, time.UTC)
			}
			v, w := pick(o.data, oracleTexts), pick(o.data, oracleFloats)
			docs = append(docs, fmt.Sprintf(`{"k":%d,"v":%s,"ts":%q,"w":%s}`, k, v.doc, at.Format(time.RFC3339), w.doc))
			values = append(values, fmt.Sprintf("(%d, %s, %s, %s)", k, v.sql, quoteSQL(at.Format(time.DateTime)), w.sql))
		}
		appendDocs(o.t, o.others, o.next[1], docs...)
		o.next[1] += uint64(len(docs))
		for _, value := range values { // the first row of a key counts
			o.plain.exec("INSERT INTO other SELECT * FROM (VALUES " + value + ") one(k, v, ts, w) WHERE k NOT IN (SELECT k FROM other)")
		}
	}
}

// row returns a row as a document and as SQL VALUES.
func (o *oracle) row() (doc, values string) {
	var fields, list []string
	for _, c := range oracleColumns {
		one := pick(o.data, c.values)
		switch {
		case c.name == "id":
			o.id++
			one = cell{fmt.Sprint(o.id), fmt.Sprint(o.id)}
		case c.name == "c":
			list = append(list, fmt.Sprint(o.id*3+o.version))
			continue
		case c.name != "tm" && o.data.IntN(8) == 0:
			one = cell{"null", "NULL"}
		case o.typeOf(c) == event.Timestamp && c.name == "tm":
			one = cell{one.doc, "(" + one.sql + ")::TIMESTAMP"}
		}
		list = append(list, one.sql)
		fields = append(fields, fmt.Sprintf("%q:%s", c.name, one.doc))
	}
	if o.wider {
		u, v := pick(o.data, oracleInts), pick(o.data, oracleFloats)
		if o.nested {
			u, v = pick(o.data, oracleFloats), pick(o.data, oracleJSON)
		}
		fields = append(fields, `"u":`+u.doc, `"v":`+v.doc)
		o.inferred = append(o.inferred, inferred{o.id, u, v})
	}
	return "{" + strings.Join(fields, ",") + "}", "(" + strings.Join(list, ", ") + ")"
}

// An inferred holds the values of the undeclared columns.
type inferred struct {
	id   int
	u, v cell
}

// follow adds the columns that the store has inferred to the plain table, with the same types
// and values.
func (o *oracle) follow() {
	for i, name := range []string{"u", "v"} {
		want := ask(o.t, o.store, "SELECT coalesce(max(column_type), '') FROM (DESCRIBE events) WHERE column_name = "+quoteSQL(name))
		switch have := o.plain.column("events", name); {
		case have == "" && want != "":
			o.plain.exec("ALTER TABLE events ADD COLUMN " + name + " " + want)
		case have != want && want == "JSON":
			// A double that was stored as a whole number is one again.
			o.plain.exec(fmt.Sprintf("ALTER TABLE events ALTER %[1]s TYPE JSON USING CASE WHEN id <= %[2]d THEN to_json(%[1]s::BIGINT) ELSE to_json(%[1]s) END", name, o.whole[name]))
		case have != want:
			o.plain.exec("ALTER TABLE events ALTER " + name + " TYPE " + want)
		}
		for _, one := range o.inferred {
			value := []cell{one.u, one.v}[i]
			sql := value.sql
			if want == "JSON" {
				sql = quoteSQL(value.doc)
			}
			o.plain.exec(fmt.Sprintf("UPDATE events SET %s = %s WHERE id = %d", name, sql, one.id))
		}
		if want == "BIGINT" {
			o.whole[name] = o.id
		}
	}
	o.inferred = nil
}

// merge creates enough small files per day to trigger a merge.
func (o *oracle) merge() {
	for range mergeMin + 1 {
		o.append(30)
		seal(o.t, o.store)
	}
	wake(o.store.compactor)
	waitUntil(o.t, o.store, func() bool {
		return o.store.nextMerge(o.store.current().Table("events"), time.Now()) == nil
	})
}

func (o *oracle) restart() {
	if err := o.store.Close(); err != nil {
		o.t.Fatal(err)
	}
	o.open()
}

// killed reopens a copy of the files of the open store, which is the state that a killed
// process leaves.
func (o *oracle) killed() {
	o.append(20)
	left := o.t.TempDir()
	if err := os.CopyFS(left, os.DirFS(o.folder)); err != nil {
		o.t.Fatal(err)
	}
	if err := o.store.Close(); err != nil {
		o.t.Fatal(err)
	}
	o.folder = left
	o.open()
}

func (o *oracle) delete() (all []catalog.Delete) {
	g := &generator{r: o.data, seed: o.seed}
	predicates := []string{`x = '\x00'::BLOB`, `f = 0 AND b`, `i IN (7, -1) AND s < 'b'`}
	for range 3 {
		predicates = append(predicates, "("+g.comparison("")+") AND id % 3 = 1")
	}
	for _, predicate := range predicates {
		d, err := o.store.Delete(o.t.Context(), "events", predicate)
		if err != nil {
			o.t.Errorf("seed %d: delete where %s: %v", o.seed, predicate, err)
			continue
		}
		all = append(all, d)
		// A row stays if the predicate fails for it.
		o.plain.exec("DELETE FROM events WHERE coalesce(TRY((" + predicate + ")), false)")
	}
	return all
}

// retain removes the other table's rows from 2020.
func (o *oracle) retain() {
	seal(o.t, o.store)
	o.openOther(365 * 24 * time.Hour)
	wake(o.store.compactor)
	waitUntil(o.t, o.store, func() bool {
		for _, f := range o.store.current().Table("other").Files {
			if strings.HasPrefix(f.Day, "2020") {
				wake(o.store.compactor)
				return false
			}
		}
		return true
	})
	o.plain.exec("DELETE FROM other WHERE ts < '2021-01-01'")
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

func quoteSQL(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
