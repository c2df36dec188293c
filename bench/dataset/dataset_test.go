package dataset

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
)

const testRows = 900

func openTest(t *testing.T, clock Clock) *Events {
	t.Helper()
	folder := t.TempDir()
	if err := Render(folder, testRows); err != nil {
		t.Fatal(err)
	}
	e, err := Open(folder, testRows, clock)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// value returns a value of a batch of columns as JSON has it.
func value(c *event.Columns, column, row int) any {
	v := &c.Vectors[column]
	switch c.Spec[column].Type {
	case event.Float64:
		return v.Floats[row]
	case event.Timestamp:
		return time.UnixMicro(v.Ints[row]).UTC().Format("2006-01-02T15:04:05.000000Z")
	case event.Int64:
		return float64(v.Ints[row])
	}
	return string(v.Text(row))
}

func TestFormsAgree(t *testing.T) {
	e := openTest(t, Clock{Step: 700_001})
	const first, n = testRows - 5, 12 // across the end of the distinct rows
	var out event.Output
	var columns event.Columns
	for range 2 { // the second time into memory that is reused
		e.Documents(&out, first, n)
		e.Columns(&columns, first, n)
	}
	lines := strings.Split(string(e.Lines(nil, first, n)), "\n")
	if out.Len() != n || columns.Rows != n || len(lines) != n+1 {
		t.Fatalf("%d documents, %d rows, %d lines; want %d", out.Len(), columns.Rows, len(lines)-1, n)
	}
	for row := range n {
		var document map[string]any
		if err := json.Unmarshal(out.Doc(row), &document); err != nil {
			t.Fatalf("%s: %v", out.Doc(row), err)
		}
		meta, err := json.Marshal(document["meta"])
		if err != nil {
			t.Fatal(err)
		}
		for c, column := range Columns {
			want := value(&columns, c, row)
			if got := document[column.Name]; column.Type != event.JSON && got != want {
				t.Errorf("row %d: the document has %s %v, the columns %v", row, column.Name, got, want)
			}
			if column.Type == event.JSON && len(want.(string)) != len(meta) {
				t.Errorf("row %d: the document has %s, the columns %s", row, meta, want)
			}
		}
		position := uint64(first + row)
		for _, part := range []string{
			fmt.Sprintf("events,event=%s,country=%s user_id=%d", document["event"], document["country"], int64(document["user_id"].(float64))),
			fmt.Sprintf(`url="%s",value=`, document["url"]),
			fmt.Sprintf(`",id=%di,hash="%s" %d`, ID(position), Hash(position), e.Time(position)),
		} {
			if !strings.Contains(lines[row], part) {
				t.Errorf("row %d: the line %s does not contain %s", row, lines[row], part)
			}
		}
	}
}

func TestOneRowIsFatal(t *testing.T) {
	e := openTest(t, Clock{Step: 1})
	var c event.Columns
	e.Columns(&c, 12_345, testRows)
	found := 0
	for row := range testRows {
		if string(c.Vectors[eventColumn].Text(row)) == Fatal {
			found++
		}
	}
	if found != 1 {
		t.Errorf("%d rows are fatal, want 1", found)
	}
}

func TestClock(t *testing.T) {
	c := Clock{SparseRows: 10, SparseStep: 1000, Step: 3}
	for position, want := range map[uint64]int64{0: 0, 9: 9000, 10: 10_000, 12: 10_006} {
		if got := c.Time(position) - Start; got != want {
			t.Errorf("position %d is at %d, want %d", position, got, want)
		}
	}
}
