//go:build linux && cgo

package eventstore

import (
	"fmt"
	"strings"
	"testing"
)

// TestTableShowsBothEnds writes results as tables that show only so many rows.
func TestTableShowsBothEnds(t *testing.T) {
	s := openStore(t, t.TempDir())
	for _, test := range []struct {
		rows, shown int
		limit       int64
		want        string
	}{
		{100, 4, 0, "0 1 · 98 99 (100 rows, 4 shown)"},
		{100, 5, 0, "0 1 2 · 98 99 (100 rows, 5 shown)"},
		{101, 5, 0, "0 1 2 · 99 100 (101 rows, 5 shown)"},
		{5, 4, 0, "0 1 · 3 4 (5 rows, 4 shown)"},
		{4, 4, 0, "0 1 2 3 (4 rows)"},
		{3, 4, 0, "0 1 2 (3 rows)"},
		{1, 4, 0, "0 (1 row)"},
		{0, 4, 0, "(0 rows)"},
		{100, 4, 10, "0 1 · 8 9 (first 10 rows, of which 4 are shown, and there are more)"},
		{100, 4, 3, "0 1 2 (3 rows, and there are more)"},
		{countedRows, 2, 0, "0 · 999999 (1000000 rows, 2 shown)"},
		{countedRows + 1, 2, 0, "0 · 999999 (first 1000000 rows, of which 2 are shown, and there are more)"},
	} {
		rows, err := s.Execute(t.Context(), Statement{
			SQL: fmt.Sprintf("SELECT i FROM range(%d) t(i)", test.rows), Format: FormatTable, Shown: test.shown, Limits: Limits{Rows: test.limit},
		})
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		err = Encode(&out, rows)
		rows.Close()
		_, cells, _ := strings.Cut(out.String(), "┤")
		got := strings.Join(strings.FieldsFunc(strings.ReplaceAll(cells, "\n", " "), func(r rune) bool { return strings.ContainsRune(" │└─┘", r) }), " ")
		if err != nil || got != test.want {
			t.Errorf("%d of %d rows: %s (%v), want %s", test.shown, test.rows, got, err, test.want)
		}
	}
}
