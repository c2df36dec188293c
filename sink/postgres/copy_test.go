package postgres

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink/internal/sqlsink"
	"github.com/perigeedb/perigee/sink/sinktest"
)

// kinds are what columns of the types of every() are in a table that is made.
var kinds = []string{"bool", "int4", "int8", "float8", "text", "timestamptz", "jsonb"}

// formats returns the binary and the text format of every() without decimals.
func formats() (columns []sqlsink.Column, both [2]format) {
	columns = every()[:len(kinds)]
	target := &sqlsink.Target{Dialect: newDialect("public"), Columns: columns}
	var found []sqlsink.TableColumn
	for i, c := range columns {
		found = append(found, sqlsink.TableColumn{Name: c.Name, Type: kinds[i], Scale: -1})
	}
	return columns, [2]format{newFormat(target, found), newTextFormat(target, found)}
}

// FuzzEncode reads back what the encoders make of odd values, in either format.
func FuzzEncode(f *testing.F) {
	f.Add("", int64(0), 0.0, uint8(0))
	f.Add("a\tb\nc\rd\\e\\N\\.\x00", int64(math.MaxInt64), math.NaN(), uint8(1))
	f.Add("☾\xff", int64(-62135596800000000), math.Inf(-1), uint8(0xff))
	f.Add("\\", int64(253402300799999999), 1e300, uint8(0x55))
	f.Fuzz(func(t *testing.T, text string, whole int64, float float64, nulls uint8) {
		columns, both := formats()
		r := sinktest.NewOutputBuilder(sqlsink.Spec(columns))
		row := []any{whole & 1, whole, whole, float, text, whole, text}
		for c := range row {
			if nulls>>c&1 == 1 {
				row[c] = nil
			}
		}
		for range 3 {
			r.Add(row...)
		}
		want := expected(row)
		for i, decode := range []func([]byte) ([][]string, error){decodeBinary, decodeText} {
			data, err := both[i].append(nil, r.Output(0).Columns, []int{0, 2}, true)
			if misfit, ok := errors.AsType[*sqlsink.Misfit](err); ok != sendable(row, both[i].binary) {
				if ok && misfit.Row != 0 {
					t.Errorf("row %d is rejected before the first", misfit.Row)
				}
				if ok {
					continue
				}
			} else {
				t.Fatalf("binary %v: %v for %q", both[i].binary, err, row)
			}
			got, err := decode(data)
			if err != nil || len(got) != 2 {
				t.Fatalf("binary %v: %d rows, %v: %q", both[i].binary, len(got), err, data)
			}
			for ordinal, cells := range got {
				if full := fmt.Sprintf("%q", append(want[:len(want):len(want)], strconv.Itoa(ordinal))); fmt.Sprintf("%q", cells) != full {
					t.Fatalf("binary %v: row %d became\n%q\nwant\n%s", both[i].binary, ordinal, cells, full)
				}
			}
		}
	})
}

// sendable tells whether every value has a form.
func sendable(row []any, inBinary bool) bool {
	for c, value := range row {
		switch value := value.(type) {
		case string:
			if strings.ContainsRune(value, 0) {
				return false
			}
		case int64:
			if c == 5 && sqlsink.CheckTime(value) != nil || inBinary && c == 1 && value != int64(int32(value)) {
				return false
			}
		}
	}
	return true
}

// expected is a row as both decoders write it.
func expected(row []any) []string {
	all := make([]string, len(row))
	for c, value := range row {
		switch value := value.(type) {
		case nil:
			all[c] = "NULL"
		case string:
			all[c] = "=" + value
		case float64:
			all[c] = strconv.FormatFloat(value, 'g', -1, 64)
		case int64:
			all[c] = strconv.FormatInt(value, 10)
			if c == 0 {
				all[c] = strconv.FormatBool(value == 1)
			} else if c == 5 && sqlsink.CheckTime(value) == nil {
				all[c] = string(sqlsink.AppendTime(nil, value))
			}
		}
	}
	return all
}

var errData = errors.New("not what COPY takes")

// decodeBinary is the inverse of the binary format, for columns of kinds and the ordinal.
func decodeBinary(data []byte) (rows [][]string, err error) {
	defer func() {
		if recover() != nil {
			err = errData
		}
	}()
	if !bytes.HasPrefix(data, []byte(header)) {
		return nil, errData
	}
	for data = data[len(header):]; ; {
		fields := int16(binary.BigEndian.Uint16(data))
		if data = data[2:]; fields == -1 && len(data) == 0 {
			return rows, nil
		}
		if int(fields) != len(kinds)+1 {
			return nil, errData
		}
		var row []string
		for c := range fields {
			length := int32(binary.BigEndian.Uint32(data))
			if data = data[4:]; length == -1 {
				row = append(row, "NULL")
				continue
			}
			row = append(row, decodeValue(int(c), data[:length]))
			data = data[length:]
		}
		rows = append(rows, row)
	}
}

func decodeValue(c int, value []byte) string {
	kind := "int4"
	if c < len(kinds) {
		kind = kinds[c]
	}
	switch kind {
	case "bool":
		return strconv.FormatBool([1]byte(value) == [1]byte{1})
	case "int4":
		return strconv.FormatInt(int64(int32(binary.BigEndian.Uint32((*[4]byte)(value)[:]))), 10)
	case "int8":
		return strconv.FormatInt(int64(binary.BigEndian.Uint64((*[8]byte)(value)[:])), 10)
	case "float8":
		return strconv.FormatFloat(math.Float64frombits(binary.BigEndian.Uint64((*[8]byte)(value)[:])), 'g', -1, 64)
	case "timestamptz":
		return string(sqlsink.AppendTime(nil, int64(binary.BigEndian.Uint64((*[8]byte)(value)[:]))+epoch))
	case "jsonb":
		if value[0] != 1 {
			return "version of jsonb"
		}
		value = value[1:]
	}
	return "=" + string(value)
}

// decodeText is the inverse of the text format, as PostgreSQL's manual has it.
func decodeText(data []byte) (rows [][]string, err error) {
	for len(data) > 0 {
		line, rest, found := bytes.Cut(data, []byte{'\n'})
		if !found || bytes.ContainsRune(line, '\r') || string(line) == `\.` {
			return nil, errData
		}
		data = rest
		var row []string
		for c, field := range bytes.Split(line, []byte{'\t'}) {
			if string(field) == `\N` {
				row = append(row, "NULL")
				continue
			}
			value := unescape(field)
			switch c {
			case 4, 6:
				value = "=" + value
			case 5:
				value = strings.TrimSuffix(value, "+00")
			}
			row = append(row, value)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func unescape(field []byte) string {
	var value []byte
	for i := 0; i < len(field); i++ {
		c := field[i]
		if c == '\\' {
			i++
			if at := strings.IndexByte("bfnrtv", field[i]); at >= 0 {
				c = "\b\f\n\r\t\v"[at]
			} else {
				c = field[i]
			}
		}
		value = append(value, c)
	}
	return string(value)
}

// TestTextSurvivesTheServer writes every byte that a text may hold, in every
// column that holds text, in either format.
func TestTextSurvivesTheServer(t *testing.T) {
	var texts []string
	for c := 1; c < 0x180; c++ {
		texts = append(texts, string(rune(c)), "a"+string(rune(c))+"b", strings.Repeat(string(rune(c)), 3))
	}
	texts = append(texts, "", `\N`, `\.`, "\\.\n", `\\`, `\x41`, `\101`, "NULL", `"`, "🚀 漢字", " spaces ", strings.Repeat("long ", 50_000))
	for _, kind := range []string{"int8", "numeric"} { // numeric has no binary form
		g := newPlace(t, column("id", event.Int64), column("s", event.String), column("v", event.String))
		g.text("CREATE TABLE events (id " + kind + ", s text, v varchar)")
		w := g.open()
		r := sinktest.NewOutputBuilder(w.sink.columns)
		for i, text := range texts {
			r.Add(int64(i), text, text)
		}
		g.write(w, r.Output(0))
		rows, err := g.conn.Query(t.Context(), "SELECT id, s, v FROM events ORDER BY id")
		if err != nil || len(rows) != len(texts) {
			t.Fatalf("%d rows, %v", len(rows), err)
		}
		for i, row := range rows {
			if string(row[1]) != texts[i] || string(row[2]) != texts[i] {
				t.Errorf("%q became %q and %q", texts[i], row[1], row[2])
			}
		}
	}
}

func TestEncodingAllocatesNothing(t *testing.T) {
	columns, both := formats()
	r := sinktest.NewOutputBuilder(sqlsink.Spec(columns))
	for range 100 {
		for _, row := range everyRow {
			r.Add(row[:len(columns)]...)
		}
	}
	rows := upTo(r.Output(0).Columns.Rows)
	for _, format := range both {
		var buf []byte
		encode := func() {
			var err error
			if buf, err = format.append(buf[:0], r.Output(0).Columns, rows, false); err != nil {
				t.Fatal(err)
			}
		}
		encode()
		if n := testing.AllocsPerRun(10, encode); n != 0 {
			t.Errorf("binary %v: %v allocations for %d rows", format.binary, n, len(rows))
		}
	}
}
