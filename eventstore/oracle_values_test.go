//go:build linux && cgo

package eventstore

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/perigeedb/perigee/event"
)

// A cell is a value as JSON and as SQL.
type cell struct{ doc, sql string }

// An oracleColumn is a column of the table events, with the values that it may have.
type oracleColumn struct {
	name   string
	kind   event.Type
	digits event.Digits
	values []cell
}

var plainTypes = map[event.Type]string{
	event.Bool: "BOOLEAN", event.Int32: "INTEGER", event.Int64: "BIGINT", event.Float64: "DOUBLE", event.Decimal: "DECIMAL", event.String: "VARCHAR",
	event.Timestamp: "TIMESTAMP", event.TimestampNS: "TIMESTAMP_NS", event.JSON: "JSON", event.Bytes: "BLOB",
}

var (
	oracleInts   = numbers("", "0", "-1", "7", "42", "1000000")
	oracleFloats = append(numbers("::DOUBLE", "0.0", "5.5", "-7.25", "0.1", "1e308", "-1e308", "5e-324", "9007199254740992.0", "3.0"), cell{"-0.0", "'-0.0'::DOUBLE"}, cell{"-0.0", "'-0.0'::DOUBLE"})
	oracleTexts  = texts("", "\x00", "\x00\x00", "a", "a\x00", "ab", "A", "b", "null", "1", "☃", "\U0010ffff", "it's", "quo\"te, x", strings.Repeat("long ", 800), strings.Repeat("long ", 800)+"!", "a text of more than twelve bytes")
	oracleJSON   = documents(`1`, `1.0`, `-0.0`, `"a"`, `"1"`, `{"a":1,"b":[1,2,{"c":null}]}`, `{"a":"x"}`, `[]`, `{}`, `[null]`, `true`, `12345678901234567890123`, `"☃"`)
	oracleBytes  = blobs("", "\x00", "\x00\x00", "\x01", "a", "a\x00", "\xff", "\xff\xff", "\\x", "'", "ab")
	oracleTimes  = timesOf("1969-12-31 23:59:59.999999", "1970-01-01 00:00:00", "1969-12-30 12:00:00.5", "2026-01-05 18:30:00", "2026-01-05 18:29:59.999999", "2026-01-06 00:00:00",
		"2026-01-06 05:30:00", "2026-01-06 12:34:56.789012", "2026-01-04 23:00:00", "1700-02-28 00:00:01", "2200-01-01 00:00:00")
	oracleNanos = timesOf("1969-12-31 23:59:59.999999999", "1970-01-01 00:00:00.000000001", "2026-01-05 18:30:00", "2026-01-05 18:29:59.999999999", "2026-01-06 00:00:00.0000005", "2026-01-06 00:00:00",
		"1678-01-01 00:00:00", "2261-12-31 23:59:59.999999999")
)

var oracleColumns = []oracleColumn{
	{name: "id", kind: event.Int64, values: oracleInts},
	{name: "b", kind: event.Bool, values: numbers("", "true", "false")},
	{name: "i", kind: event.Int32, values: append(numbers("", "2147483647", "-2147483648"), oracleInts...)},
	{name: "n", kind: event.Int64, values: append(numbers("", "9223372036854775807", "-9223372036854775807", "9007199254740993"), oracleInts...)},
	{name: "f", kind: event.Float64, values: oracleFloats},
	{name: "d", kind: event.Decimal, digits: event.Digits{Precision: 18, Scale: 4}, values: numbers("", "0", "0.0000", "1.5", "1.5000", "-1.5", "99999999999999.9999", "-99999999999999.9999", "7")},
	{name: "e", kind: event.Decimal, digits: event.Digits{Precision: 38, Scale: 10}, values: numbers("", "0.0", "1.5", "-1.5", "9999999999999999999999999999.9999999999", "-9999999999999999999999999999.9999999999", "0.0000000001")},
	{name: "s", kind: event.String, values: oracleTexts},
	{name: "tm", kind: event.Timestamp, values: oracleTimes},
	{name: "us", kind: event.Timestamp, values: append(timesOf("0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"), oracleTimes...)},
	{name: "ns", kind: event.TimestampNS, values: oracleNanos},
	{name: "j", kind: event.JSON, values: oracleJSON},
	{name: "x", kind: event.Bytes, values: oracleBytes},
	{name: "c", kind: event.Int64, values: oracleInts},
}

// numbers returns cells with the same text in JSON and SQL, except for a cast.
func numbers(cast string, all ...string) (cells []cell) {
	for _, one := range all {
		cells = append(cells, cell{one, "(" + one + ")" + cast})
	}
	return cells
}

// texts writes zero bytes, which an SQL literal cannot hold, as chr(0).
func texts(all ...string) (cells []cell) {
	for _, one := range all {
		doc, _ := json.Marshal(one)
		var parts []string
		for i, part := range strings.Split(one, "\x00") {
			if i > 0 {
				parts = append(parts, "chr(0)")
			}
			if part != "" || !strings.Contains(one, "\x00") {
				parts = append(parts, quoteSQL(part))
			}
		}
		sql := strings.Join(parts, " || ")
		if len(parts) > 1 {
			sql = "(" + sql + ")"
		}
		cells = append(cells, cell{string(doc), sql})
	}
	return cells
}

func documents(all ...string) (cells []cell) {
	for _, one := range all {
		cells = append(cells, cell{one, quoteSQL(one) + "::JSON"})
	}
	return cells
}

func blobs(all ...string) (cells []cell) {
	for _, one := range all {
		cells = append(cells, cell{fmt.Sprintf("%q", base64.StdEncoding.EncodeToString([]byte(one))), quoteSQL(blobText([]byte(one))) + "::BLOB"})
	}
	return cells
}

// blobText formats bytes as DuckDB does.
func blobText(bytes []byte) string {
	var b strings.Builder
	for _, c := range bytes {
		if c >= 32 && c <= 126 && c != '\\' && c != '\'' && c != '"' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, `\x%02X`, c)
		}
	}
	return b.String()
}

// timesOf formats times for a column; predicates use more formats.
func timesOf(all ...string) (cells []cell) {
	for _, one := range all {
		cells = append(cells, cell{fmt.Sprintf("%q", strings.Replace(one, " ", "T", 1)+"Z"), quoteSQL(one)})
	}
	return cells
}
