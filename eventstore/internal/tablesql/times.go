package tablesql

import (
	"fmt"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/internal/sqltext"
)

// toTimeSQL converts a column that became a time column to times, with the rules for reading
// the field of new events. Invalid values become NULL.
func toTimeSQL(have event.Type, want manifest.Column) string {
	name, kind := sqltext.QuoteName(want.Name), want.SQLType()
	text := func(value string) string { return textTimeSQL(value, want) }
	switch have {
	case event.Int32, event.Int64:
		return numberTimeSQL("CAST("+name+" AS HUGEINT)", false, want)
	case event.Float64:
		return numberTimeSQL(name, true, want)
	case event.JSON: // some are texts, some are numbers
		value := "(" + name + " ->> '$')"
		return fmt.Sprintf("CASE json_type(%s) WHEN 'VARCHAR' THEN %s WHEN 'DOUBLE' THEN %s ELSE %s END", name, text(value),
			numberTimeSQL("TRY_CAST("+value+" AS DOUBLE)", true, want), numberTimeSQL("TRY_CAST("+value+" AS HUGEINT)", false, want))
	}
	if have == event.String {
		return text(name)
	}
	return fmt.Sprintf("TRY_CAST(%s AS %s)", name, kind)
}

// textTimeSQL parses text as a time. DuckDB's TIMESTAMP ignores an offset from UTC after the
// seconds, and its TIMESTAMPTZ drops nanoseconds.
func textTimeSQL(text string, want manifest.Column) string {
	seconds := "epoch_us(date_trunc('second', TRY_CAST(" + text + " AS TIMESTAMPTZ)))"
	fraction := "CAST(rpad(left(regexp_extract(" + text + ", '\\.([0-9]+)', 1), %[2]d), %[2]d, '0') AS BIGINT)"
	offset := fmt.Sprintf("TRY(make_timestamp(%s + "+fraction+"))", seconds, 6)
	if want.Type == event.TimestampNS {
		offset = fmt.Sprintf("TRY(make_timestamp_ns(%s * 1000 + "+fraction+"))", seconds, 9)
	}
	return fmt.Sprintf("CASE WHEN regexp_matches(%s, ':[0-9]{2}(\\.[0-9]+)?[+-][0-9]{2}:?[0-9]{2}$') THEN %s ELSE TRY_CAST(%[1]s AS %[3]s) END", text, offset, want.SQLType())
}

// numberTimeSQL converts a DOUBLE or a HUGEINT in the column's unit to a time.
func numberTimeSQL(value string, double bool, want manifest.Column) string {
	perSecond, known := map[event.Unit]int64{event.Seconds: 1, event.Milliseconds: 1e3, event.Microseconds: 1e6, event.Nanoseconds: 1e9}[want.Unit]
	if !known { // only text is a time
		return "CAST(NULL AS " + want.SQLType() + ")"
	}
	wanted, function := int64(1e6), "make_timestamp"
	if want.Type == event.TimestampNS {
		wanted, function = 1e9, "make_timestamp_ns"
	}
	switch divisor := perSecond / wanted; {
	case divisor <= 1:
		value = fmt.Sprintf("%s * %d", value, wanted/perSecond)
	case double:
		value = fmt.Sprintf("floor(%s / %d)", value, divisor)
	default: // rounded down
		value = fmt.Sprintf("(%s - (%[1]s %% %d + %[2]d) %% %[2]d) // %[2]d", value, divisor)
	}
	return fmt.Sprintf("TRY(%s(CAST(%s AS BIGINT)))", function, value)
}
