package statement

import (
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
)

const (
	dropsTime  = ": the comparison with column time would drop the offset of '2026-01-06T00:00:00+05:30'"
	dropsNanos = ": the comparison with column ns would drop the offset of '2026-01-06T00:00:00+05:30'"
)

// offsetSamples are statements with the error of CheckOffsets for a table with the columns time
// (in microseconds), ns (in nanoseconds) and name (a text).
var offsetSamples = []sample{
	{`SELECT 1 FROM events WHERE time > '2026-01-05T18:30:00Z' AND time < '2026-01-06T00:00:00+00:00'`, ""},
	{`SELECT 1 FROM events WHERE time > TIMESTAMPTZ '2026-01-06T00:00:00+05:30'`, ""},
	{`SELECT 1 FROM events WHERE name > '2026-01-06T00:00:00+05:30' AND ns > '2026-01-06T00:00:00+05:30'`, ""},
	{`SELECT 1 FROM events WHERE other.column > '2026-01-06T00:00:00+05:30'`, ""},

	{`SELECT 1 FROM events WHERE time > '2026-01-06T00:00:00+05:30'`, "line 1, column 35" + dropsTime},
	{`SELECT 1 FROM events e WHERE '2026-01-06T00:00:00+05:30' = e.time`, "line 1, column 30" + dropsTime},
	{`SELECT 1 FROM events WHERE time BETWEEN '2026-01-01' AND '2026-01-06T00:00:00+05:30'`, "line 1, column 58" + dropsTime},
	{`SELECT 1 FROM events WHERE time NOT IN ('2026-01-01', '2026-01-06T00:00:00+05:30')`, "line 1, column 55" + dropsTime},
	{`SELECT 1 FROM events WHERE coalesce(time, now()) < '2026-01-06T00:00:00+05:30'`, "line 1, column 52" + dropsTime},
	{`SELECT 1 FROM events WHERE date_trunc('hour', ns) < '2026-01-06T00:00:00+05:30'`, "line 1, column 53" + dropsNanos},
	{`SELECT 1 FROM events WHERE time > $from`, "the comparison with column time would drop the offset of parameter from"},
}

func TestCheckOffsets(t *testing.T) {
	table := &manifest.Table{Name: "events", Schemas: []*manifest.Schema{{Version: 1, Columns: []manifest.Column{
		{ID: 2, Name: "time", Type: event.Timestamp}, {ID: 3, Name: "ns", Type: event.TimestampNS}, {ID: 4, Name: "name", Type: event.String},
	}}}}
	params := []protocol.Param{{Name: "from", Value: "2026-01-06T00:00:00+05:30"}}
	parser := newRecordedParser(t)
	for _, test := range offsetSamples {
		s := parse(t, parser, test.sql)
		if s == nil {
			continue
		}
		got := ""
		err := s.CheckOffsets([]*manifest.Table{table}, params)
		if err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s\ngot error  %q\nwant error %q", test.sql, got, test.want)
		}
		want := "write the time in UTC, '2026-01-05T18:30:00Z', or as TIMESTAMPTZ '2026-01-06T00:00:00+05:30'"
		if hint := event.HintOf(err); err != nil && hint != want {
			t.Errorf("%s\ngot hint  %q\nwant hint %q", test.sql, hint, want)
		}
	}
}
