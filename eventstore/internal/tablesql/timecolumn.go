package tablesql

import (
	"fmt"
	"strings"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/internal/sqltext"
)

// TimeColumn returns the name and type of the time column, or "" if the table has none.
func TimeColumn(t *manifest.Table) (name string, kind event.Type) {
	for _, c := range t.Current().Columns {
		if t.Time != "" && strings.EqualFold(c.Name, t.Time) && (c.Type == event.Timestamp || c.Type == event.TimestampNS) {
			return c.Name, c.Type
		}
	}
	return "", 0
}

// TimeType returns the type of the time column, or 0 without one.
func TimeType(t *manifest.Table) event.Type {
	_, kind := TimeColumn(t)
	return kind
}

// Time returns SQL for the event time of a row and the number of its units per
// microsecond, which is 0 for a table without a time column.
func Time(t *manifest.Table) (sql string, perMicro int64) {
	switch name, kind := TimeColumn(t); kind {
	case event.Timestamp:
		return "epoch_us(" + sqltext.QuoteName(name) + ")", 1
	case event.TimestampNS:
		return "epoch_ns(" + sqltext.QuoteName(name) + ")", 1000
	}
	return "CAST(0 AS BIGINT)", 0
}

// DayMicros is the number of microseconds in a day.
const DayMicros = int64(24 * time.Hour / time.Microsecond)

// Micros converts a time to microseconds; perMicro is the number of its units per
// microsecond.
func Micros(time, perMicro int64) int64 { return FloorDiv(time, max(perMicro, 1)) }

// FloorDiv divides and rounds towards negative infinity.
func FloorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// Day returns SQL for the day of a row, equivalent to dayOf.
func Day(t *manifest.Table) string {
	sql, perMicro := Time(t)
	perDay := perMicro * DayMicros
	return fmt.Sprintf("coalesce(DATE '1970-01-01' + CAST((%[1]s // %[2]d - CAST(%[1]s %% %[2]d < 0 AS BIGINT)) AS INTEGER), DATE '1970-01-01')", sql, perDay)
}
