//go:build cgo

package pure_test

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/document"
	"github.com/perigeedb/perigee/internal/document/pure"
)

// everyColumn requests the same few fields in all types.
var everyColumn = func() []event.Column {
	var spec []event.Column
	for typ := event.Bool; typ <= event.JSON; typ++ {
		for _, path := range [][]string{{"a"}, {"n"}, {"time"}, {"a", "b"}} {
			spec = append(spec, event.Column{Name: "c", Path: path, Type: typ, Required: len(path) > 1})
		}
	}
	for unit := event.Seconds; unit <= event.TextOnly; unit++ {
		for _, typ := range []event.Type{event.Timestamp, event.TimestampNS} {
			spec = append(spec, event.Column{Name: "at", Path: []string{"time"}, Type: typ, Unit: unit})
		}
	}
	return spec
}()

// FuzzAgainstPure compares the reader in C with that in Go: both must reject the same documents
// with the same errors, and return the same columns and reports.
func FuzzAgainstPure(f *testing.F) {
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	for _, value := range []string{
		`1.5`, `-0`, `1e3`, `"2026-02-29T00:00:00Z"`, `"2026-02-28 00:00:00.5"`, `"2024-02-29T23:59:59.1234567-23:59"`, `1795305600.1234567`,
		`99999999999`, `-62135596800`, `"\ud83d\ude00\n"`, `9223372036854775808`, `1e-9`, `"0000-01-01T00:00:00Z"`, `"2026-11-22T1:00:00Z"`,
		`"1677-12-31T23:59:59.999999999Z"`, `"2262-01-01T00:00:00Z"`, `-9214560000.000000001`, `9214646399999999999`, `1795305600.123456789123`,
	} {
		f.Add([]byte(`{"a":` + value + `,"n":` + value + `,"time":` + value + `,"x\u0061":{"b":` + value + `}}`))
	}
	inGo, inC := pure.NewExtractor(everyColumn), document.NewExtractor(everyColumn)
	inGo.ReportUnknown()
	inC.ReportUnknown()
	checkGo, checkC := &pure.Checker{}, document.NewChecker()
	var wantColumns, gotColumns event.Columns
	f.Fuzz(func(t *testing.T, doc []byte) {
		data, ends := bytes.Repeat(doc, 2), []uint32{uint32(len(doc)), uint32(2 * len(doc))}
		wantRejected, _ := checkGo.Check(data, ends)
		gotRejected, err := checkC.Check(data, ends)
		if diff := cmp.Diff(wantRejected, gotRejected); diff != "" || err != nil {
			t.Errorf("%q: %v, rejected (-Go +C):\n%s", doc, err, diff)
		}
		wantColumns.Reset()
		gotColumns.Reset()
		want, err := inGo.Extract(data, ends, &wantColumns)
		if err != nil {
			t.Fatal(err)
		}
		got, err := inC.Extract(data, ends, &gotColumns)
		if err != nil {
			t.Fatal(err)
		}
		// The reader in C keeps names between documents, so their order differs.
		byName := cmpopts.SortSlices(func(a, b document.Field) bool { return a.Name < b.Name })
		if diff := cmp.Diff(want, got, byName, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%q: report (-Go +C):\n%s", doc, diff)
		}
		if reflect.DeepEqual(wantColumns, gotColumns) { // much faster than cmp
			return
		}
		if diff := cmp.Diff(wantColumns, gotColumns, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%q: columns (-Go +C):\n%s", doc, diff)
		}
	})
}
