package main

import (
	"errors"
	"slices"
	"testing"

	"github.com/perigeedb/perigee/eventstore/catalog"
)

func TestParseRow(t *testing.T) {
	names, cells, err := parseRow([]byte(`{"a":"x\n","b":null,"c":1.50,"d":{"e":[true]}}`))
	if want := []string{"a", "b", "c", "d"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("names %q, %v, want %q", names, err, want)
	}
	if want := []string{"x…", "", "1.50", `{"e":[true]}`}; !slices.Equal(cells, want) {
		t.Errorf("cells %q, want %q", cells, want)
	}
	for broken, want := range map[string]string{
		"":              "EOF",
		`{1:2}`:         "invalid character '1'",
		`{"a"`:          "EOF",
		`{"a":}`:        "invalid character '}' looking for beginning of value",
		`{"a":1 "b":2}`: "invalid character '\"' after object key:value pair",
	} {
		if names, cells, err := parseRow([]byte(broken)); err == nil || err.Error() != want {
			t.Errorf("%s is read as %q, %q, %v, want %s", broken, names, cells, err, want)
		}
	}
}

// TestPrintTail prints batches up to a number of rows, which may end inside one, and ends where
// nothing more can be printed.
func TestPrintTail(t *testing.T) {
	failed := errors.New("broken pipe")
	for _, test := range []struct {
		limit, fails int // the batch that cannot be printed, from 1
		batches      []string
		want         []string // all rows
		err          error
	}{
		{0, 0, []string{"1\n2\n", "", "3\n"}, []string{"1", "2", "3"}, nil},
		{4, 0, []string{"1\n2\n", "3\n"}, []string{"1", "2", "3"}, nil},
		{3, 0, []string{"1\n2\n", "3\n"}, []string{"1", "2", "3"}, errRowLimitReached},
		{3, 0, []string{"1\n2\n", "3\n4\n"}, []string{"1", "2", "3"}, errRowLimitReached},
		{1, 0, []string{"1\n2\n"}, []string{"1"}, errRowLimitReached},
		{0, 2, []string{"1\n", "2\n"}, []string{"1"}, failed},
		{2, 2, []string{"1\n", "2\n"}, []string{"1"}, failed},
	} {
		var got []string
		batch := 0
		p := rowPrinter{limit: test.limit, print: func(rows [][]byte) error {
			if batch == test.fails {
				return failed
			}
			for _, row := range rows {
				got = append(got, string(row))
			}
			return nil
		}}
		var err error
		for _, rows := range test.batches {
			if batch++; err == nil {
				err = p.add(t.Context(), &catalog.TailBatch{Rows: []byte(rows)})
			}
		}
		if err != test.err || !slices.Equal(got, test.want) {
			t.Errorf("%d rows of %q: printed %q, %v; want %q, %v", test.limit, test.batches, got, err, test.want, test.err)
		}
	}
}
