package audit

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// In every test ids 1 to 10 go in, the script drops those that 5 divides, and 3
// is a dead letter.
func drops(id uint64) bool { return id%5 == 0 }

func TestReport(t *testing.T) {
	right := []uint64{1, 2, 4, 6, 7, 8, 9}
	tests := []struct {
		name       string
		rows, dead []uint64
		want       Report // without Events, Rows and Dead, which are counted from the test
		says       string
	}{
		{"right", right, []uint64{3}, Report{Dropped: 2}, ""},
		{"any order", []uint64{9, 1, 8, 2, 7, 4, 6}, []uint64{3}, Report{Dropped: 2}, ""},
		{"missing row", []uint64{1, 2, 4, 6, 7, 9}, []uint64{3}, Report{Dropped: 2, Lost: 1}, "id 8 is lost"},
		{"missing dead letter", right, nil, Report{Dropped: 2, Lost: 1}, "id 3 is lost"},
		{"double row", append(right, 9), []uint64{3}, Report{Dropped: 2, Duplicated: 1}, "id 9 is in 2 rows"},
		{"row three times", append(right, 9, 9), []uint64{3}, Report{Dropped: 2, Duplicated: 2}, "id 9 is in 3 rows"},
		{"double dead letter", right, []uint64{3, 3}, Report{Dropped: 2, Duplicated: 1}, "2 dead letters"},
		{"row and dead letter", append(right, 3), []uint64{3}, Report{Dropped: 2, Duplicated: 1}, "1 rows and 1 dead letters"},
		{"dropped and dead", right, []uint64{3, 5}, Report{Dropped: 1}, ""},
		{"dropped and a row", append(right, 10), []uint64{3}, Report{Dropped: 1, Unexpected: 1}, "id 10 is a row"},
		{"unknown row", append(right, 11), []uint64{3}, Report{Dropped: 2, Unexpected: 1}, "a row has id 11"},
		{"row without id", append(right, 0), []uint64{3}, Report{Dropped: 2, Unexpected: 1}, "a row has id 0"},
		{"unknown dead letter", right, []uint64{3, 99}, Report{Dropped: 2, Unexpected: 1}, "a dead letter has id 99"},
		{"one lost, one double", []uint64{1, 1, 4, 6, 7, 8, 9}, []uint64{3}, Report{Dropped: 2, Lost: 1, Duplicated: 1}, "id 2 is lost"},
		{"nothing", nil, nil, Report{Dropped: 2, Lost: 8}, "id 1 is lost"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			l := New(10)
			for _, id := range test.rows {
				l.AddRow(id)
			}
			for _, id := range test.dead {
				l.AddDead(id)
			}
			got := l.Report(drops)
			test.want.Events, test.want.Rows, test.want.Dead = 10, uint64(len(test.rows)), uint64(len(test.dead))
			test.want.Examples = got.Examples
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			said := ""
			if err := got.Err(); err != nil {
				said = err.Error()
			}
			if (test.says == "") != (said == "") || !strings.Contains(said, test.says) {
				t.Errorf("it says %q, want it to name %q", said, test.says)
			}
		})
	}
}

func TestManyOfOneID(t *testing.T) {
	l := New(1)
	for range 1000 {
		l.AddRow(1)
		l.AddDead(1)
	}
	r := l.Report(drops)
	if r.Rows != 1000 || r.Dead != 1000 || r.Duplicated == 0 || r.Err() == nil {
		t.Errorf("a thousand of one id report %+v", r)
	}
}

func TestString(t *testing.T) {
	const want = "7 in, 4 rows, 2 dropped by script, 1 dead letters, 0 lost, 0 duplicated"
	if got := (Report{Events: 7, Rows: 4, Dropped: 2, Dead: 1}).String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
