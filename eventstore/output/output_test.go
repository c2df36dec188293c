package output

import (
	"io"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
)

// numbers is a result of the numbers below count, truncated by a limit.
type numbers struct {
	count, limit, shown int
	next                int
}

func (n *numbers) Columns() []catalog.Column { return []catalog.Column{{Name: "i", Type: "BIGINT"}} }
func (n *numbers) Next() bool {
	if n.next == n.count || n.limit > 0 && n.next == n.limit {
		return false
	}
	n.next++
	return true
}
func (n *numbers) Row() []any                    { return []any{int64(n.next - 1)} }
func (n *numbers) Err() error                    { return nil }
func (n *numbers) Truncated() bool               { return n.limit > 0 && n.next == n.limit && n.count > n.limit }
func (n *numbers) Format() protocol.Format       { return protocol.FormatTable }
func (n *numbers) Shown() int                    { return n.shown }
func (n *numbers) WriteStream(w io.Writer) error { return io.ErrClosedPipe }

// TestTableShowsBothEnds writes tables with a limited number of rows.
func TestTableShowsBothEnds(t *testing.T) {
	for _, test := range []struct {
		rows, shown, limit int
		want               string
	}{
		{100, 4, 0, "0 1 · 98 99 (100 rows, 4 shown)"},
		{100, 5, 0, "0 1 2 · 98 99 (100 rows, 5 shown)"},
		{101, 5, 0, "0 1 2 · 99 100 (101 rows, 5 shown)"},
		{5, 4, 0, "0 1 · 3 4 (5 rows, 4 shown)"},
		{4, 4, 0, "0 1 2 3 (4 rows)"},
		{3, 4, 0, "0 1 2 (3 rows)"},
		{1, 4, 0, "0 (1 row)"},
		{0, 4, 0, "(0 rows)"},
		{100, 4, 10, "0 1 · 8 9 (first 10 rows, 4 shown, and there are more)"},
		{100, 4, 3, "0 1 2 (3 rows, and there are more)"},
		{1_000_000, 2, 0, "0 · 999999 (1000000 rows, 2 shown)"},
		{1_000_001, 2, 0, "0 · 999999 (first 1000000 rows, 2 shown, and there are more)"},
	} {
		var out strings.Builder
		err := Write(&out, &numbers{count: test.rows, shown: test.shown, limit: test.limit})
		_, cells, _ := strings.Cut(out.String(), "┤")
		got := strings.Join(strings.FieldsFunc(strings.ReplaceAll(cells, "\n", " "), func(r rune) bool { return strings.ContainsRune(" │└─┘", r) }), " ")
		if err != nil || got != test.want {
			t.Errorf("%d of %d rows: got %s (%v), want %s", test.shown, test.rows, got, err, test.want)
		}
	}
}

// TestLongCells truncates text that is too long for a cell.
func TestLongCells(t *testing.T) {
	for length, want := range map[int]int{tableWidth: tableWidth, tableWidth + 1: tableWidth + 1} {
		got := []rune(clean(strings.Repeat("é", length)))
		if len(got) != want || (got[len(got)-1] == '…') != (length > tableWidth) {
			t.Errorf("got a cell of %d letters for a text of %d, want %d", len(got), length, want)
		}
	}
	if got := clean("a\x1b[31mb"); strings.Contains(got, "\x1b") {
		t.Errorf("got %q, want the escape character escaped", got)
	}
}
