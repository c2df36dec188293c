// Package dataset makes the events of the event store's benchmarks. A number of distinct rows
// (a million by default) repeats without end: id, time and hash move on with the position, and
// the other columns repeat. Distinct values among a million rows:
//
//	id       int64      all; the position
//	time     timestamp  all; ascending
//	event    string     12; one row in a hundred is "error", and one row is "fatal"
//	user_id  int64      100,000
//	hash     string     all; 16 hexadecimal digits
//	country  string     40
//	url      string     50,000
//	value    float64    100,000
//	status   int64      8
//	meta     JSON       1,200
//
// The rows are rendered once into files, as JSON documents, as lines of InfluxDB's protocol
// and as typed columns, which every process maps. So a batch costs a copy and three patched
// fields, and the mapped files do not count as memory of a contestant.
package dataset

import (
	"strconv"

	"github.com/perigeedb/perigee/event"
)

// Columns are the columns of the rows.
var Columns = []event.Column{
	{Name: "id", Path: []string{"id"}, Type: event.Int64},
	{Name: "time", Path: []string{"time"}, Type: event.Timestamp},
	{Name: "event", Path: []string{"event"}, Type: event.String},
	{Name: "user_id", Path: []string{"user_id"}, Type: event.Int64},
	{Name: "hash", Path: []string{"hash"}, Type: event.String},
	{Name: "country", Path: []string{"country"}, Type: event.String},
	{Name: "url", Path: []string{"url"}, Type: event.String},
	{Name: "value", Path: []string{"value"}, Type: event.Float64},
	{Name: "status", Path: []string{"status"}, Type: event.Int64},
	{Name: "meta", Path: []string{"meta"}, Type: event.JSON},
}

// Indexes in Columns.
const (
	idColumn = iota
	timeColumn
	eventColumn
	userColumn
	hashColumn
	countryColumn
	urlColumn
	valueColumn
	statusColumn
	metaColumn
)

// Table is the name of the table in every store.
const Table = "events"

// firstID is the id at position 0. All ids have as many digits.
const firstID = 100_000_000_000

// Start is a time for position 0: 2026-01-01T00:00:00Z in microseconds.
const Start int64 = 1_767_225_600_000_000

// A Clock gives each position its time. It advances by SparseStep microseconds a row for the
// first SparseRows rows, and by Step for the others.
type Clock struct {
	Step       int64
	SparseRows uint64
	SparseStep int64
}

// Time returns the time at a position, in microseconds since 1970.
func (c Clock) Time(position uint64) int64 {
	sparse := min(position, c.SparseRows)
	return Start + int64(sparse)*c.SparseStep + int64(position-sparse)*c.Step
}

// ID returns the id at a position.
func ID(position uint64) int64 { return firstID + int64(position) }

// Hash returns the hash at a position.
func Hash(position uint64) string { return string(appendHash(nil, position)) }

// A row is one of the distinct rows, without the fields that move.
type row struct {
	event, country, url, value, meta string
	cents                            uint64
	user, status                     int64
}

var (
	// events and their shares per hundred.
	events = [...]struct {
		name  string
		share uint64
	}{
		{"view", 40}, {"click", 20}, {"open", 12}, {"search", 8}, {"sent", 6}, {"login", 4},
		{"scroll", 3}, {"cart", 2}, {"bounce", 2}, {"order", 2}, {Error, 1},
	}
	sections = [...]string{"home", "search", "product", "cart", "checkout", "account", "help", "news", "offers", "video"}
	statuses = [...]int64{200, 201, 204, 301, 304, 400, 404, 500}
	devices  = [...]string{"desktop", "phone", "tablet", "unknown"}
)

// Events that queries look for.
const (
	Error = "error" // one row in a hundred
	Fatal = "fatal" // one of the distinct rows
)

const (
	users     = 100_000
	countries = 40
	items     = 5_000 // in each section
	valueMax  = 100_000
	lists     = 100
)

// makeRow returns distinct row i of rows.
func makeRow(i, rows uint64) row {
	d := dice{state: i * 0xd1342543de82ef95}
	r := row{event: chooseEvent(d.roll(100)), user: int64(d.roll(users)) + 1, cents: d.roll(valueMax), status: statuses[d.roll(uint64(len(statuses)))]}
	if i == rows*7/9 {
		r.event = Fatal
	}
	country := d.roll(countries)
	r.country = string([]byte{'A' + byte(country/8), 'A' + byte(country%8)})
	r.url = "https://shop.example.com/" + sections[d.roll(uint64(len(sections)))] + "/item-" + strconv.FormatUint(d.roll(items)+1, 10) + "?ref=mail"
	r.value = strconv.FormatFloat(float64(r.cents)/100, 'f', 2, 64)
	r.meta = `{"device":"` + devices[d.roll(uint64(len(devices)))] + `","attempt":` + strconv.FormatUint(d.roll(3)+1, 10) + `,"list":` + strconv.FormatUint(d.roll(lists), 10) + `}`
	return r
}

func chooseEvent(roll uint64) string {
	for _, e := range events {
		if roll < e.share {
			return e.name
		}
		roll -= e.share
	}
	panic("dataset: the shares do not add up to a hundred")
}

// dice is the splitmix64 generator.
type dice struct{ state uint64 }

func (d *dice) next() uint64 {
	d.state += 0x9e3779b97f4a7c15
	return mix(d.state)
}

// roll returns a number below n, which must be much less than 1<<32.
func (d *dice) roll(n uint64) uint64 { return d.next() >> 32 * n >> 32 }

func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
