package pure_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/document/pure"
	"github.com/perigeedb/perigee/internal/document/report"
)

// A reader reads documents: in Go, or in C with cgo. The tables below have inputs around the limits
// of either, and both must give the same results.
type reader struct {
	check        func(doc []byte) error
	newExtractor func(spec []event.Column) extractor
}

type extractor interface {
	Extract(data []byte, ends []uint32, cols *event.Columns) (report.Report, error)
}

// readers returns the readers to test, by name; reader_cgo_test.go adds the one in C.
func readers() map[string]reader {
	all := map[string]reader{"Go": {
		check:        func(doc []byte) error { return pure.Check(doc) },
		newExtractor: func(spec []event.Column) extractor { return pure.NewExtractor(spec) },
	}}
	addNative(all)
	return all
}

// eachReader runs a test with every reader.
func eachReader(t *testing.T, test func(t *testing.T, r reader)) {
	for name, r := range readers() {
		t.Run(name, func(t *testing.T) { test(t, r) })
	}
}

// TestTooLarge rejects a text of 2 GiB by its length alone, without reading it.
func TestTooLarge(t *testing.T) {
	text := make([]byte, 1<<31)
	want := &report.SyntaxError{Code: report.TooLarge}
	eachReader(t, func(t *testing.T, r reader) {
		if err := r.check(text); err == nil || err.Error() != want.Error() {
			t.Errorf("got %v, want %v", err, want)
		}
	})
	if _, err := pure.Parse(text); !reflect.DeepEqual(err, error(want)) {
		t.Errorf("a value: got %v", err)
	}
}

// extract returns the cells of documents that one extractor reads in one run, one row per document:
// nothing for a null, and "!" and the reason for a rejected value.
func (r reader) extract(t *testing.T, spec []event.Column, docs ...string) (rows [][]string) {
	t.Helper()
	var b event.Batch
	for _, doc := range docs {
		b.Append([]byte(doc))
	}
	var cols event.Columns
	found, err := r.newExtractor(spec).Extract(b.Data, b.Ends, &cols)
	if err != nil {
		t.Fatal(err)
	}
	for row := range docs {
		cells := make([]string, len(spec))
		for i := range spec {
			cells[i] = cellText(&cols.Vectors[i], spec[i].Type, row)
		}
		rows = append(rows, cells)
	}
	for _, bad := range found.Rejected {
		if bad.Column < 0 {
			t.Fatalf("document %.60q: %s", docs[bad.Row], bad.Reason)
		}
		rows[bad.Row][bad.Column] = "!" + bad.Reason
	}
	return rows
}

func cellText(v *event.Vector, typ event.Type, row int) string {
	if v.Null[row] == 1 {
		return ""
	}
	switch typ {
	case event.Float64:
		return fmt.Sprint(v.Floats[row])
	case event.Decimal, event.String, event.JSON:
		return string(v.Text(row))
	}
	return fmt.Sprint(v.Ints[row])
}

func column(typ event.Type, path ...string) event.Column {
	return event.Column{Name: strings.Join(path, "."), Path: path, Type: typ}
}

// counts are close to the sizes of structures in the readers: words of 64 bits, blocks of 16, and
// arrays that double.
var counts = []int{1, 2, 15, 16, 17, 31, 32, 33, 62, 63, 64, 65, 66, 127, 128, 129, 255, 256, 257}

// TestCountsOfFields reads each field of objects with these counts of fields, in a first document,
// and in ones that follow it with the same keys, with others, and with one of them twice.
func TestCountsOfFields(t *testing.T) {
	eachReader(t, func(t *testing.T, r reader) {
		for _, n := range counts {
			var spec []event.Column
			for i := range n {
				spec = append(spec, column(event.Int64, fmt.Sprint("k", i)))
			}
			spec = append(spec, column(event.Int64, "absent"))
			object := func(first int, change func(fields []string) []string) string {
				var fields []string
				for i := range n {
					fields = append(fields, fmt.Sprintf(`"k%d":%d`, i, first+i))
				}
				if change != nil {
					fields = change(fields)
				}
				return "{" + strings.Join(fields, ",") + "}"
			}
			last := func(fields []string) []string { return append(fields, fmt.Sprintf(`"k%d":-7`, n-1)) }
			without := func(fields []string) []string { return fields[:n-1] }
			renamed := func(fields []string) []string {
				return append(fields[:n-1:n-1], strings.Replace(fields[n-1], "k", "K", 1))
			}
			docs := []string{
				object(0, nil), object(1000, nil), object(2000, nil), object(0, last), object(0, last), object(3000, nil),
				object(0, without), object(0, renamed), object(0, renamed), object(4000, nil),
			}
			firsts := []int{0, 1000, 2000, 0, 0, 3000, 0, 0, 0, 4000}
			for row, cells := range r.extract(t, spec, docs...) {
				for i := range n {
					want := fmt.Sprint(firsts[row] + i)
					if i == n-1 && (row == 3 || row == 4) {
						want = "-7"
					} else if i == n-1 && row >= 6 && row <= 8 {
						want = ""
					}
					if cells[i] != want {
						t.Errorf("%d fields, document %d: field %d is %q, want %q", n, row, i, cells[i], want)
					}
				}
				if cells[n] != "" {
					t.Errorf("%d fields, document %d: a field that is not there is %q", n, row, cells[n])
				}
			}
		}
	})
}

// TestCountsOfNodes has fields after, and above, these counts of other values.
func TestCountsOfNodes(t *testing.T) {
	spec := []event.Column{column(event.Int64, "k"), column(event.String, "o", "s"), column(event.JSON, "list"), column(event.Int64, "o", "list")}
	eachReader(t, func(t *testing.T, r reader) {
		for _, n := range counts {
			list := "[" + strings.TrimSuffix(strings.Repeat("0,", n), ",") + "]"
			doc := `{"list":` + list + `,"k":7,"o":{"list":3,"s":"x"}}`
			for row, cells := range r.extract(t, spec, doc, doc, doc, `{"o":{"s":"y"},"list":[],"k":8}`, doc) {
				want := []string{"7", "x", list, "3"}
				if row == 3 {
					want = []string{"8", "y", "[]", ""}
				}
				if fmt.Sprint(cells) != fmt.Sprint(want) {
					t.Errorf("%d values, document %d: %q, want %q", n, row, cells, want)
				}
			}
		}
	})
}

// TestSizesOfDocuments moves quotes, escapes and multi-byte letters across each boundary of 16 and
// 64 bytes, and of 16 and 32 KiB.
func TestSizesOfDocuments(t *testing.T) {
	spec := []event.Column{column(event.String, "text"), column(event.Int64, "n"), column(event.String, "é\"")}
	eachReader(t, func(t *testing.T, r reader) {
		for _, size := range []int{0, 64, 128, 256, 1 << 10, 4 << 10, 16 << 10, 32 << 10, 64 << 10} {
			for extra := -70; extra <= 70; extra++ {
				if size+extra < 0 || size >= 1<<10 && extra%3 != 0 && extra != -1 && extra != 1 {
					continue
				}
				pad := strings.Repeat("p", size+extra)
				doc := `{"` + pad + `":"\\","text":"` + pad + `é\"\\\n\ud83d\ude00z","n":-12,"\u00e9\"":"` + pad + `"}`
				want := []string{pad + "é\"\\\n😀z", "-12", pad}
				for i, cell := range r.extract(t, spec, doc)[0] {
					if cell != want[i] {
						t.Fatalf("%d bytes: column %d has %d bytes, want %d: %.80q", len(doc), i, len(cell), len(want[i]), cell)
					}
				}
				for _, broken := range []string{doc[:len(doc)-1], doc + "}", strings.Replace(doc, "é", "\xc3", 1), strings.Replace(doc, "z", "\x01", 1)} {
					if r.check([]byte(broken)) == nil {
						t.Fatalf("%d bytes: %.20q…%.40q is taken", len(broken), broken, broken[max(0, len(broken)-40):])
					}
				}
			}
		}
	})
}

// TestEdgesOfNumbers converts numbers around the limits of each type of column.
func TestEdgesOfNumbers(t *testing.T) {
	const outOfRange, notWhole = "out of range", "not a whole number"
	for _, c := range []struct {
		number              string
		whole, small, float string // as int64, int32 and float64; or part of the reason for rejection
	}{
		{"2147483647", "2147483647", "2147483647", "2.147483647e+09"},
		{"2147483648", "2147483648", outOfRange, "2.147483648e+09"},
		{"-2147483648", "-2147483648", "-2147483648", "-2.147483648e+09"},
		{"-2147483649", "-2147483649", outOfRange, "-2.147483649e+09"},
		{"999999999999999999", "999999999999999999", outOfRange, "1e+18"}, // 18 digits
		{"-99999999999999999", "-99999999999999999", outOfRange, "-1e+17"},
		{"1000000000000000000", "1000000000000000000", outOfRange, "1e+18"},
		{"9223372036854775806", "9223372036854775806", outOfRange, "9.223372036854775807e+18"},
		{"9223372036854775807", "9223372036854775807", outOfRange, "9.223372036854775807e+18"},
		{"9223372036854775808", outOfRange, outOfRange, "9.223372036854775808e+18"},
		{"-9223372036854775808", "-9223372036854775808", outOfRange, "-9.223372036854775808e+18"},
		{"-9223372036854775809", outOfRange, outOfRange, "-9.223372036854775808e+18"},
		{"9223372036854775807.0", "9223372036854775807", outOfRange, "9.223372036854775807e+18"},
		{"922337203685477580.7e1", "9223372036854775807", outOfRange, "9.223372036854775807e+18"},
		{"0.9223372036854775807e19", "9223372036854775807", outOfRange, "9.223372036854775807e+18"},
		{"92233720368547758070e-1", "9223372036854775807", outOfRange, "9.223372036854775807e+18"},
		{"92233720368547758080e-1", outOfRange, outOfRange, "9.223372036854775808e+18"},
		{"9999999999999999999", outOfRange, outOfRange, "1e+19"},
		{"10000000000000000000", outOfRange, outOfRange, "1e+19"},
		{"18446744073709551615", outOfRange, outOfRange, "1.8446744073709551615e+19"},
		{"18446744073709551616", outOfRange, outOfRange, "1.8446744073709551616e+19"},
		{"1e18", "1000000000000000000", outOfRange, "1e+18"},
		{"1e19", outOfRange, outOfRange, "1e+19"},
		{"1e20", outOfRange, outOfRange, "1e+20"},
		{"1e21", outOfRange, outOfRange, "1e+21"},
		{"1e22", outOfRange, outOfRange, "1e+22"},
		{"1e23", outOfRange, outOfRange, "1e+23"},
		{"1e24", outOfRange, outOfRange, "1e+24"},
		{"9007199254740993e22", outOfRange, outOfRange, "9.007199254740993e+37"},
		{"9007199254740993e23", outOfRange, outOfRange, "9.007199254740993e+38"},
		{"9007199254740992e-22", notWhole, notWhole, "9.007199254740992e-07"},
		{"9007199254740993e-23", notWhole, notWhole, "9.007199254740993e-08"},
		{"1e-22", notWhole, notWhole, "1e-22"},
		{"1e-23", notWhole, notWhole, "1e-23"},
		{"1e308", outOfRange, outOfRange, "1e+308"},
		{"1.7976931348623158e308", outOfRange, outOfRange, "1.7976931348623157e+308"},
		{"1.7976931348623159e308", outOfRange, outOfRange, outOfRange},
		{"-1.7976931348623159e308", outOfRange, outOfRange, outOfRange},
		{"5e-324", notWhole, notWhole, "5e-324"},
		{"2e-324", notWhole, notWhole, "0"},
		{"0e400", "0", "0", "0"},
		{"-0.0", "0", "0", "-0"},
		{"1e99999", outOfRange, outOfRange, outOfRange},
		{"1e100000", outOfRange, outOfRange, outOfRange},
		{"1e2147483648", outOfRange, outOfRange, outOfRange},
		{"1e-99999", notWhole, notWhole, "0"},
		{"1e-2147483649", notWhole, notWhole, "0"},
		{"1" + strings.Repeat("0", 130) + "e-130", "1", "1", "1"},
		{"0." + strings.Repeat("0", 130) + "1e131", "1", "1", "1"},
	} {
		spec := []event.Column{column(event.Int64, "v"), column(event.Int32, "v"), column(event.Float64, "v"), column(event.Decimal, "v")}
		eachReader(t, func(t *testing.T, r reader) {
			cells := r.extract(t, spec, `{"v":`+c.number+`}`)[0]
			for i, want := range []string{c.whole, c.small, c.float, c.number} {
				reason, rejected := strings.CutPrefix(cells[i], "!")
				if same := cells[i] == want || i == 2 && !rejected && sameFloat(cells[i], want); !same && !(rejected && strings.Contains(reason, want)) {
					t.Errorf("%s as %s is %q, want %q", c.number, spec[i].Type, cells[i], want)
				}
			}
		})
	}
}

// sameFloat reports whether two texts are the same double.
func sameFloat(a, b string) bool {
	var x, y float64
	n, _ := fmt.Sscan(a, &x)
	m, _ := fmt.Sscan(b, &y)
	return n == 1 && m == 1 && x == y
}

// TestEdgesOfTimes parses the first and the last value of each part of a time, and the values
// beyond.
func TestEdgesOfTimes(t *testing.T) {
	const bad = "RFC 3339"
	for value, want := range map[string]string{
		`"0001-01-01T00:00:00Z"`:                 "-62135596800000000",
		`"0001-01-01T00:00:00-00:01"`:            "-62135596740000000",
		`"0001-01-01T00:00:00+00:01"`:            bad,
		`"0000-12-31T23:59:59Z"`:                 bad,
		`"0000-01-01T00:00:00Z"`:                 bad,
		`"9999-12-31T23:59:59.999999Z"`:          "253402300799999999",
		`"9999-12-31T23:59:59.9999999Z"`:         "253402300799999999",
		`"9999-12-31T23:59:59-00:01"`:            bad,
		`"10000-01-01T00:00:00Z"`:                bad,
		`"99999-12-31T23:59:59Z"`:                bad,
		`"2026-11-23T23:59:59Z"`:                 "1795478399000000",
		`"2026-11-23T23:59:60Z"`:                 bad, // leap seconds are not supported
		`"2016-12-31T23:59:60Z"`:                 bad,
		`"2026-11-23T23:60:00Z"`:                 bad,
		`"2026-11-23T24:00:00Z"`:                 bad,
		`"2026-11-23T00:00:00+23:59"`:            "1795305660000000",
		`"2026-11-23T00:00:00-23:59"`:            "1795478340000000",
		`"2026-11-23T00:00:00+24:00"`:            bad,
		`"2026-11-23T00:00:00-24:00"`:            bad,
		`"2026-11-23T00:00:00+00:60"`:            bad,
		`"2026-11-23T00:00:00+0000"`:             bad,
		`"2026-11-23T00:00:00z"`:                 bad,
		`"2026-11-23t00:00:00Z"`:                 bad,
		`"2026-11-23T00:00:00"`:                  bad,
		`"2026-11-23 00:00:00"`:                  "1795392000000000",
		`"2026-11-23 00:00:00Z"`:                 bad,
		`"2026-11-23 00:00:60"`:                  bad,
		`"2026-11-23T00:00:00.Z"`:                bad,
		`"2026-11-23T00:00:00,5Z"`:               bad,
		`"2026-11-23T00:00:00.000001Z"`:          "1795392000000001",
		`"2026-11-23T00:00:00.0000009Z"`:         "1795392000000000",
		`"1969-12-31T23:59:59.999999Z"`:          "-1",
		`"2026-02-28T00:00:00Z"`:                 "1772236800000000",
		`"2026-02-29T00:00:00Z"`:                 bad,
		`"2024-02-29T00:00:00Z"`:                 "1709164800000000",
		`"2024-02-30T00:00:00Z"`:                 bad,
		`"2100-02-29T00:00:00Z"`:                 bad,
		`"2000-02-29T00:00:00Z"`:                 "951782400000000",
		`"2026-04-31T00:00:00Z"`:                 bad,
		`"2026-00-01T00:00:00Z"`:                 bad,
		`"2026-13-01T00:00:00Z"`:                 bad,
		`"2026-01-00T00:00:00Z"`:                 bad,
		`"2026-01-32T00:00:00Z"`:                 bad,
		`"2026-1-01T00:00:00Z"`:                  bad,
		`"2026-11-23\u002000:00:00"`:             "1795392000000000",
		`""`:                                     bad,
		`-62135596800`:                           "-62135596800000000",
		`-62135596800.000001`:                    "milliseconds",
		`-62135596801`:                           "milliseconds",
		`253402300799.999999`:                    "253402300799999999",
		`253402300799.9999999`:                   "253402300799999999",
		`253402300800`:                           "milliseconds",
		`253402300800000`:                        "milliseconds",
		`9223372036854`:                          "milliseconds",
		`9223372036855`:                          "milliseconds",
		`1e400`:                                  "milliseconds",
		`0.000001`:                               "1",
		`0.0000009`:                              "0",
		`-0.000001`:                              "-1",
		`-0.0000009`:                             "0",
		`1.000000000000000000000000000000000001`: "1000000",
	} {
		eachReader(t, func(t *testing.T, r reader) {
			cell := r.extract(t, []event.Column{column(event.Timestamp, "v")}, `{"v":`+value+`}`)[0][0]
			reason, rejected := strings.CutPrefix(cell, "!")
			if cell != want && !(rejected && strings.Contains(reason, want)) {
				t.Errorf("%s is %q, want %q", value, cell, want)
			}
		})
	}
}

// TestNanoseconds does the same for timestamps to the nanosecond.
func TestNanoseconds(t *testing.T) {
	const far = "beyond the years 1678 to 2261"
	for value, want := range map[string]string{
		`"1970-01-01T00:00:00Z"`:                  "0",
		`"1970-01-01T00:00:00.000000001Z"`:        "1",
		`"1970-01-01T00:00:00.0000000019Z"`:       "1",
		`"1969-12-31T23:59:59.999999999Z"`:        "-1",
		`"1969-12-31T23:59:59.9999999999Z"`:       "-1",
		`"2026-11-22T10:00:00.123456789+02:00"`:   "1795334400123456789",
		`"2026-11-22 08:00:00.12"`:                "1795334400120000000",
		`"1678-01-01T00:00:00Z"`:                  "-9214560000000000000",
		`"1677-12-31T23:59:59.999999999Z"`:        far,
		`"2261-12-31T23:59:59.999999999Z"`:        "9214646399999999999",
		`"2262-01-01T00:00:00Z"`:                  far,
		`"9999-12-31T23:59:59Z"`:                  far,
		`"0000-01-01T00:00:00Z"`:                  "RFC 3339",
		`"yesterday"`:                             "RFC 3339",
		`1.000000001`:                             "1000000001",
		`1.0000000019`:                            "1000000001",
		`-1.0000000019`:                           "-1000000001",
		`0.0000000009`:                            "0",
		`1795334400.123456789`:                    "1795334400123456789",
		`1795334400.1234567891234567891234567891`: "1795334400123456789",
		`9214646399.999999999`:                    "9214646399999999999",
		`9214646400`:                              far,
		`-9214560000`:                             "-9214560000000000000",
		`-9214560001`:                             far,
		`1e400`:                                   far,
		`true`:                                    "wants timestamp_ns",
	} {
		eachReader(t, func(t *testing.T, r reader) {
			cell := r.extract(t, []event.Column{column(event.TimestampNS, "v")}, `{"v":`+value+`}`)[0][0]
			reason, rejected := strings.CutPrefix(cell, "!")
			if cell != want && !(rejected && strings.Contains(reason, want)) {
				t.Errorf("%s is %q, want %q", value, cell, want)
			}
		})
	}
}
