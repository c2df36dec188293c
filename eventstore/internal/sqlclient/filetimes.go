//go:build linux

package sqlclient

import (
	"context"
	"fmt"

	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/tablesql"
	"github.com/perigeedb/perigee/internal/sqltext"
)

// FileTimes describes the times of a file's rows in its table's time column.
type FileTimes struct {
	Least, Greatest int64 // microseconds since 1970
	Missing         int64 // rows without a time in years 1 to 9999
}

// FileTimes returns the times of a file's rows in the time column of t. The manifest may
// still have another time column than t.
func (c *Client) FileTimes(ctx context.Context, t *manifest.Table, f *manifest.File) (times FileTimes, err error) {
	name, _ := tablesql.TimeColumn(t)
	at, perMicro := tablesql.Time(t)
	valid := fmt.Sprintf("%s IS NOT NULL AND year(%[1]s) BETWEEN 1 AND 9999", sqltext.QuoteName(name))
	rows, err := c.Read(ctx, fmt.Sprintf("SELECT count(*) FILTER (NOT (%s)), coalesce(CAST(min(%s) FILTER (%[1]s) AS BIGINT), 0), coalesce(CAST(max(%[2]s) FILTER (%[1]s) AS BIGINT), 0) FROM (%[3]s)",
		valid, at, tablesql.File(c.options.Folder, t, f)))
	if err != nil {
		return times, err
	}
	defer rows.Close()
	if rows.Next() {
		row := rows.Row()
		times.Missing = row[0].(int64)
		times.Least, times.Greatest = tablesql.Micros(row[1].(int64), perMicro), tablesql.Micros(row[2].(int64), perMicro)
	}
	return times, rows.Err()
}
