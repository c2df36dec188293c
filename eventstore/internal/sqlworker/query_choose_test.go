//go:build linux && cgo

package sqlworker

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/bloom"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/sqlclient"
	"github.com/perigeedb/perigee/eventstore/internal/storetest"
	"github.com/perigeedb/perigee/eventstore/internal/tableview"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
	"github.com/perigeedb/perigee/internal/sqltext"
	"github.com/perigeedb/perigee/internal/testseed"
	"github.com/perigeedb/perigee/internal/testsize"
)

// A chooser generates random rows and conditions.
type chooser struct{ *rand.Rand }

func (c chooser) one(of ...string) string { return of[c.IntN(len(of))] }

const (
	chooserDays = 5
	// Enough rows for several row groups in a file, of which some have none of a few values.
	chooserRows, chooserKeys, chooserNumbers = 400_000, 100_000, 25_000
)

// row returns a function that fills rows with ids from first on. Their times are spread over
// some days around day, so that some are late.
func (c chooser) row(first, day int) func(manifest.Column, *event.Vector, int) {
	return func(column manifest.Column, v *event.Vector, row int) {
		switch column.Name {
		case "id":
			v.Ints = append(v.Ints, int64(first+row))
		case "time":
			at := time.Duration(day)*24*time.Hour + time.Duration(c.IntN(86400))*time.Second
			if c.IntN(50) == 0 {
				at = time.Duration(c.IntN(chooserDays*86400)) * time.Second
			}
			v.Ints = append(v.Ints, storetest.Day.Add(at).UnixMicro())
		case "event":
			name := c.one("view", "click", "error", "")
			if c.IntN(300) == 0 {
				name = "rare event " + fmt.Sprint(c.IntN(3))
			}
			storetest.AddText(v, name)
		case "key":
			v.Null[row] = uint8(c.IntN(20) / 19)
			storetest.AddText(v, fmt.Sprint("key of a user ", c.IntN(chooserKeys)*int(1-v.Null[row])))
		case "n", "small":
			v.Null[row] = uint8(c.IntN(5) / 4)
			v.Ints = append(v.Ints, int64(c.IntN(chooserNumbers)-100)*int64(1-v.Null[row]))
		default:
			storetest.AddText(v, fmt.Sprintf(`{"x": %d}`, c.IntN(9)))
		}
	}
}

func (c chooser) time() string {
	at := storetest.Day.Add(time.Duration(c.IntN(chooserDays*86400)) * time.Second)
	return c.one("TIMESTAMP '"+at.Format(time.DateTime)+"'", "'"+at.Format("2006-01-02T15:04:05Z")+"'", "DATE '"+at.Format(time.DateOnly)+"'",
		"to_timestamp("+fmt.Sprint(at.Unix())+")", "TIMESTAMP '"+at.Format(time.DateTime)+"' - INTERVAL 7 HOUR", "date_trunc('day', TIMESTAMP '"+at.Format(time.DateTime)+"')")
}

// condition returns a condition on the rows of a table; prefix qualifies its columns.
func (c chooser) condition(prefix string, depth int) string {
	column := func(name string) string { return prefix + c.one(name, strings.ToUpper(name), `"`+name+`"`) }
	text := func(name string) string {
		if name == "event" {
			return "'" + c.one("view", "error", "", "nothing", "rare event 0", "rare event 2") + "'"
		}
		return fmt.Sprintf("'key of a user %d'", c.IntN(chooserKeys*11/10))
	}
	if depth > 0 && c.IntN(4) > 0 {
		left, right := c.condition(prefix, depth-1), c.condition(prefix, depth-1)
		switch c.IntN(6) {
		case 0:
			return "(" + left + " OR " + right + ")"
		case 1:
			return "NOT (" + left + ")"
		}
		return "(" + left + ") AND " + right
	}
	name := c.one("event", "key")
	number := c.one("id", "n", "small")
	switch c.IntN(12) {
	case 0, 1, 2:
		return column("time") + c.one(" >= ", " > ", " < ", " <= ", " = ") + c.time()
	case 3:
		return c.time() + c.one(" >= ", " > ", " < ", " <= ") + column("time")
	case 4:
		return column("time") + " BETWEEN " + c.time() + " AND " + c.time()
	case 5, 6:
		return column(name) + " = " + text(name)
	case 7:
		return text(name) + " = " + column(name)
	case 8:
		return column(name) + " IN (" + text(name) + ", " + text(name) + ")"
	case 9:
		return fmt.Sprintf("%s = %d", column(number), c.IntN(chooserRows)-200)
	case 10:
		return fmt.Sprintf("%s IN (%d, %d, 7)", column(number), c.IntN(chooserRows), c.IntN(chooserNumbers*6/5))
	}
	return c.one(column(name)+" <> "+text(name), fmt.Sprintf("%s > %d", column("n"), chooserNumbers*3/5), column("key")+" IS NULL", column("small")+" < 0", column("id")+" % 7 = 3")
}

// TestNothingWantedIsLeftOut checks that the frames, rows and files excluded before DuckDB
// reads them have no row that the query selects: each query returns the same rows as when
// everything is read. The table has late rows, schema versions, deletes, merged files and
// rows in the log.
func TestNothingWantedIsLeftOut(t *testing.T) {
	c := chooser{testseed.New(t)}
	f := newFolder(t, sqlclient.Options{})
	table := f.AddTable("events", storetest.Column(5, "key", event.String), storetest.Column(6, "n", event.Int64))
	table.Bloom = []string{"key", "n", "id", "small"}
	first := 0
	write := func(log uint64, frames, day int) {
		for range frames {
			rows := 1 + c.IntN(40_000)
			f.AppendFrame(log, storetest.FrameOf(table, rows, c.row(first, day)))
			first += rows
		}
	}
	remove := func(predicate string, log uint64) {
		f.M.NextDelete++
		table.Deletes = append(table.Deletes, &manifest.Delete{Number: f.M.NextDelete - 1, Predicate: predicate, Before: wal.Position{File: log, Offset: f.Ends[len(f.Ends)-1].End}})
		f.Save()
	}
	for log := uint64(1); log <= 5; log++ {
		write(log, 4, int(log)-1)
		switch log {
		case 2:
			next := &manifest.Schema{Version: 2, Columns: append(append([]manifest.Column{}, table.Current().Columns...), storetest.Column(7, "small", event.Int32), storetest.Column(8, "data", event.JSON))}
			table.Schemas, table.NextColumn = append(table.Schemas, next), 9
			f.Save()
			write(log, 2, 1)
		case 3:
			remove("n % 10 = 3", log)
		case 4:
			remove("key = 'key of a user 7'", log)
		}
		if log < 4 {
			f.Seal(log)
		}
	}
	f.MergeAll(table)
	if len(table.Files) < 3 {
		t.Fatalf("got %d files, want at least 3", len(table.Files))
	}
	for _, id := range f.edgeRows(table) {
		f.Want("SELECT count(*) FROM events WHERE id = "+id, f.Ask("SELECT count(*) FROM (SELECT * FROM events) WHERE id = "+id))
	}
	const found = `SELECT count(*), sum(id), count(DISTINCT key), min(time), max(small)`
	for range testsize.Count(50, 150) {
		prefix := c.one("", "e.", "events.")
		from := map[string]string{"": "events", "e.": "events e", "events.": "events"}[prefix]
		all := map[string]string{"": "(SELECT * FROM events) AS x", "e.": "(SELECT * FROM events) AS e", "events.": "(SELECT * FROM events) AS events"}[prefix]
		where := " WHERE " + c.condition(prefix, 3)
		f.Want(found+" FROM "+from+where, f.Ask(found+" FROM "+all+where))
		order := fmt.Sprintf(" ORDER BY %stime DESC, id LIMIT %d OFFSET %d", prefix, 1+c.IntN(300), c.IntN(3)*c.IntN(100))
		f.Want("SELECT id, key FROM "+from+where+order, f.Ask("SELECT id, key FROM "+all+where+order))
		if prefix == "e." && c.IntN(3) == 0 { // of two bounds, the wider one applies
			const joined = "SELECT count(*), sum(e.id - o.id) FROM "
			where += " AND " + c.condition("o.", 1)
			f.Want(joined+from+" JOIN events o USING (key)"+where, f.Ask(joined+all+" JOIN (SELECT * FROM events) o USING (key)"+where))
		}
		if t.Failed() {
			return
		}
	}
}

// edgeRows returns the ids of the first and the last row of each row group.
func (f *folder) edgeRows(t *manifest.Table) (ids []string) {
	f.T.Helper()
	c := storetest.OpenConn(f.T)
	const rowGroup = 16_384 // see segment
	for _, file := range t.Files {
		rows, err := c.Run(fmt.Sprintf("SELECT id FROM read_parquet(%s) WHERE file_row_number %% %d IN (0, %d) OR file_row_number = %d",
			sqltext.Literal(t.Path(f.Path, file.Name)), rowGroup, rowGroup-1, file.Rows-1))
		if err != nil {
			f.T.Fatal(err)
		}
		for _, row := range rows {
			ids = append(ids, protocol.Text(row[0]))
		}
	}
	if want := 3 * len(t.Files); len(ids) < want {
		f.T.Fatalf("got %d rows at the edges of row groups of %d files, want at least %d", len(ids), len(t.Files), want)
	}
	return ids
}

// TestChosenFilesHaveAllRows checks that queries return the same rows with and without a
// choice of files and frames.
func TestChosenFilesHaveAllRows(t *testing.T) {
	f := newFolder(t, sqlclient.Options{})
	table := f.AddTable("events")
	const day = 86400
	number := uint64(0)
	for _, first := range []int{0, 3 * day, day, 2 * day, day + 5000, 5 * day} { // some are late
		number++
		for i := range 3 {
			f.AppendFrame(number, storetest.FrameOf(table, 1000, storetest.Row(first+i*1000)))
		}
		if number < 5 {
			f.Seal(number)
		}
	}
	for _, where := range []string{
		`time >= '2026-11-23'`, `time < '2026-11-23 00:10:00'`, `time BETWEEN '2026-11-23 00:10:00' AND '2026-11-24 00:10:00'`, `time = '2026-11-25 00:00:07'`,
		`time > '2026-11-27'`, `time >= '2027-01-01'`, `event = 'event-xx-2'`, `event = 'nothing'`,
	} {
		chosen, all := `SELECT count(*), sum(id) FROM events WHERE `+where, `SELECT count(*), sum(id) FROM events WHERE (`+where+`) OR id = -1`
		f.Want(chosen, f.Ask(all))
		for _, limit := range []string{`LIMIT 5`, `LIMIT 700 OFFSET 400`, `LIMIT 9000`} {
			chosen, all := `SELECT id FROM events WHERE `+where+` ORDER BY time DESC `+limit, `SELECT id FROM (SELECT * FROM events WHERE (`+where+`) OR id = -1) ORDER BY time DESC `+limit
			f.Want(chosen, f.Ask(all))
		}
	}
}

// TestNewestRowsAcrossSteps checks that the newest rows are found in the first step that has
// enough of them.
func TestNewestRowsAcrossSteps(t *testing.T) {
	f := newFolder(t, sqlclient.Options{})
	table := f.AddTable("events", storetest.Column(5, "key", event.String), storetest.Column(6, "amount", event.Float64))
	f.AddFiles(table, 12, 40_000)
	f.AppendFrame(1, storetest.FrameOf(table, 1000, storetest.Row(470_000))) // among the newest rows of the files
	for _, where := range []string{`true`, `id < 300000`, `id = 7`, `id < 0`, `event = 'event-3'`} {
		for _, limit := range []string{`LIMIT 5`, `LIMIT 700 OFFSET 400`, `LIMIT 9000`} {
			chosen := `SELECT id, key FROM events WHERE ` + where + ` ORDER BY time DESC, key ` + limit
			f.Want(chosen, f.Ask(`SELECT id, key FROM (SELECT * FROM events) WHERE `+where+` ORDER BY time DESC, key `+limit))
		}
	}
}

func TestBloomFiles(t *testing.T) {
	f := newFolder(t, sqlclient.Options{})
	table := f.AddTable("events", storetest.Column(5, "key", event.String), storetest.Column(6, "n", event.Int64))
	table.Bloom = []string{"KEY", "id", "nothing"}
	f.Save()
	for i := range uint64(4) {
		f.AppendFrame(i+1, storetest.FrameOf(table, 1000, storetest.Row(int(i)*1000)))
		f.Seal(i + 1)
	}
	var b bloom.Cache
	chosen := func(wanted map[string][]string) (n int) {
		return len(tableview.Selection{Files: table.Files, Equal: wanted}.Choose(&b, f.Path, table).Files)
	}
	for _, file := range table.Files {
		if file.Bloom != manifest.BloomName(file.Name) {
			t.Errorf("%s has the bloom file %q", file.Name, file.Bloom)
		}
	}
	for _, test := range []struct {
		column, value string
		want          int
	}{{"key", "text 2500", 1}, {"key", "text", 0}, {"id", "17", 1}, {"event", "event--0", 4}, {"event", "no", 0}, {"n", "5", 4}} {
		if got := chosen(map[string][]string{test.column: {test.value}}); got != test.want {
			t.Errorf("%s = %s: %d files, want %d", test.column, test.value, got, test.want)
		}
	}
	if got := chosen(map[string][]string{"key": {"text 1", "text 3999"}}); got != 2 {
		t.Errorf("two keys are in %d files", got)
	}
	f.Want(`SELECT id FROM events WHERE key = 'text 2500'`, "2500")
	f.Want(`SELECT id FROM events WHERE id = 17 AND event = 'event-xxxxxxx-7'`, "17")
	f.Want(`SELECT count(*) FROM events WHERE key IN ('text 1', 'text 3999', 'x')`, "2")
	f.Want(`SELECT count(*) FROM events WHERE key = 'nothing'`, "0")

	// A damaged bloom file excludes nothing.
	path := table.Path(f.Path, table.Files[2].Bloom)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)-1] ^= 1
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	b = bloom.Cache{}
	if got := chosen(map[string][]string{"key": {"text"}}); got != 1 {
		t.Errorf("%d files beside a damaged one, want that one", got)
	}
}

// TestRangesOfKeys checks that a query for a key reads only the row groups that may have it.
// For a list of many keys it reads whole files, because DuckDB needs memory for the list in
// each part.
func TestRangesOfKeys(t *testing.T) {
	const rowGroup, events, parts = 16_384, 10, 3 // see segment
	const listMax, rangesMaxOfList = 4, 8         // see tableview
	f := newFolder(t, sqlclient.Options{})
	table := f.AddTable("events", storetest.Column(5, "part", event.Int64), storetest.Column(6, "key", event.String))
	table.Bloom = []string{"part", "key"}
	f.Save()
	const rows = events * parts * rowGroup // sorted by event; each event has three row groups
	part := func(id int) int { return id * parts / rows }
	for first := 0; first < rows; first += rowGroup {
		f.AppendFrame(1, storetest.FrameOf(table, rowGroup, func(c manifest.Column, v *event.Vector, row int) {
			switch row += first; c.Name {
			case "part":
				v.Ints = append(v.Ints, int64(part(row)))
			case "time": // of one day, so that they are in one file
				v.Ints = append(v.Ints, storetest.Day.Add(time.Duration(row)*time.Millisecond).UnixMicro())
			default:
				storetest.Row(0)(c, v, row)
			}
		}))
	}
	f.Seal(1)
	keys := func(n int) (keys []string) { // never two in neighboring row groups
		for i := range n {
			group := 2 * i
			keys = append(keys, fmt.Sprint("text ", (rows/parts*(group%parts)+1000)/10*10+group/parts))
		}
		return keys
	}
	var b bloom.Cache
	for _, test := range []struct {
		name  string
		equal map[string][]string
		want  int // number of ranges
	}{
		{"one key", map[string][]string{"key": {"text 4711"}}, 1},
		{"no key", map[string][]string{"key": {"text"}}, 0},
		{"a part", map[string][]string{"part": {"1"}}, events},
		{"a part and a key", map[string][]string{"part": {"0"}, "key": {"text 4711"}}, 1},
		{"few keys", map[string][]string{"key": keys(listMax)}, listMax},
		{"as many keys as have parts", map[string][]string{"key": keys(rangesMaxOfList)}, rangesMaxOfList},
		{"many keys", map[string][]string{"key": keys(rangesMaxOfList + 1)}, 0},
	} {
		chosen := tableview.Selection{Files: table.Files, Equal: test.equal}.Choose(&b, f.Path, table)
		if n := len(chosen.Rows[table.Files[0]]); n != test.want {
			t.Errorf("%s: %d ranges, want %d", test.name, n, test.want)
		}
	}
	f.Want(`SELECT count(*), min(id), max(id) FROM events WHERE part = 1`, fmt.Sprintf("%d,%d,%d", rows/parts, rows/parts, rows/parts*2-1))
	f.Want(`SELECT id, part FROM events WHERE key = 'text 4711'`, "4711,0")
	for _, n := range []int{listMax, listMax + 1, rangesMaxOfList, rangesMaxOfList + 1} {
		f.Want(`SELECT count(*) FROM events WHERE key IN ('`+strings.Join(keys(n), "', '")+`')`, fmt.Sprint(n))
	}
}
