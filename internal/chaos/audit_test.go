package chaos

import (
	"strings"
	"testing"
	"time"
)

// testTestbed returns a testbed in which events 1 to 3 were pushed, and 4 and 5 pushed and
// forgotten. Of each three events the first becomes a row in both sinks, the second two
// rows in one, the third a dead letter.
func testTestbed(t *testing.T) *testbed {
	t.Helper()
	events, err := NewEvents([][]byte{[]byte(`{}`), []byte(`{}`), []byte(`{}`)}, "id")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	return &testbed{
		Runner:   &Runner{config: Config{Events: events}},
		round:    Round{Pipeline: &Pipeline{Field: "id", Sinks: []Sink{{Name: "a"}, {Name: "b"}}}},
		expected: []Expected{{Rows: []uint8{1, 1}}, {Rows: []uint8{2, 0}}, {Rows: []uint8{0, 0}, Dead: true}},
		producer: &producer{next: 6, pushes: []push{{1, 3, "k", now}}, forgotten: []push{{4, 2, "k", now}}},
		events:   []historyEntry{{now.Add(time.Millisecond), "a fault"}},
	}
}

func TestCompare(t *testing.T) {
	tests := []struct {
		name                  string
		a, b, dead            []uint64
		lost, double, unknown uint64
		says                  string
	}{
		{"right", []uint64{1, 2, 2}, []uint64{1}, []uint64{3}, 0, 0, 0, ""},
		{"forgotten events delivered", []uint64{1, 2, 2, 4, 5, 5}, []uint64{1, 4}, []uint64{3}, 0, 0, 0, ""},
		{"half of a forgotten event", []uint64{1, 2, 2, 5}, []uint64{1, 4}, []uint64{3}, 0, 0, 0, ""},
		{"nothing", nil, nil, nil, 5, 0, 0, "event 1 has 0 rows in a, not 1"},
		{"missing in one sink", []uint64{1, 2, 2}, nil, []uint64{3}, 1, 0, 0, "event 1 has 0 rows in b, not 1"},
		{"half of two rows", []uint64{1, 2}, []uint64{1}, []uint64{3}, 1, 0, 0, "event 2 has 1 rows in a, not 2"},
		{"a row twice", []uint64{1, 1, 2, 2}, []uint64{1}, []uint64{3}, 0, 1, 0, "event 1 has 2 rows in a, not 1"},
		{"in the wrong sink", []uint64{1, 2, 2}, []uint64{1, 2}, []uint64{3}, 0, 1, 0, "event 2 has 1 rows in b, not 0"},
		{"a dead letter twice", []uint64{1, 2, 2}, []uint64{1}, []uint64{3, 3}, 0, 1, 0, "event 3 has 2 dead letters, not 1"},
		{"a dead letter of a good event", []uint64{1, 2, 2}, []uint64{1}, []uint64{1, 3}, 0, 1, 0, "event 1 has 1 dead letters, not 0"},
		{"a forgotten event twice", []uint64{1, 2, 2, 4, 4}, []uint64{1}, []uint64{3}, 0, 1, 0, "event 4 has 2 rows in a, not 1"},
		{"never pushed", []uint64{1, 2, 2, 6}, []uint64{1}, []uint64{3, 0}, 0, 0, 2, "event 6 was never pushed"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := &deliveries{sinks: make([]counts, 2)}
			for c, numbers := range map[*counts][]uint64{&f.sinks[0]: test.a, &f.sinks[1]: test.b, &f.dead: test.dead} {
				for _, n := range numbers {
					c.add(n)
				}
			}
			var r Report
			testTestbed(t).compareAll(f, &r)
			if r.Events != 3 || r.Forgotten != 2 || r.Lost != test.lost || r.Duplicated != test.double || r.Unknown != test.unknown {
				t.Errorf("%v, %d unknown", r, r.Unknown)
			}
			err := r.Err()
			if (err != nil) != (test.says != "") || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("error %v, want one with %q", err, test.says)
			}
			if err != nil && test.unknown == 0 && !strings.Contains(err.Error(), "a fault") {
				t.Errorf("the error does not show the faults: %v", err)
			}
		})
	}
}

// TestCompareState compares the changes of a state: one for each event that is no dead letter.
func TestCompareState(t *testing.T) {
	for _, test := range []struct {
		name                  string
		state                 []uint64
		lost, double, unknown uint64
		says                  string
	}{
		{"right", []uint64{1, 2}, 0, 0, 0, ""},
		{"a forgotten event", []uint64{1, 2, 4}, 0, 0, 0, ""},
		{"a lost change", []uint64{1}, 1, 0, 0, "event 2 has 0 changes of the state, not 1"},
		{"a change twice", []uint64{1, 2, 2}, 0, 1, 0, "event 2 has 2 changes of the state, not 1"},
		{"a change of a failed event", []uint64{1, 2, 3}, 0, 1, 0, "event 3 has 1 changes of the state, not 0"},
		{"never pushed", []uint64{1, 2, 6}, 0, 0, 1, "event 6 was never pushed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := &deliveries{sinks: []counts{{0, 1, 2}, {0, 1}}, dead: counts{0, 0, 0, 1}, state: counts{}}
			for _, n := range test.state {
				f.state.add(n)
			}
			var r Report
			testTestbed(t).compareAll(f, &r)
			if r.Lost != test.lost || r.Duplicated != test.double || r.Unknown != test.unknown {
				t.Errorf("got %v, %d unknown, want %d lost, %d duplicated, %d unknown", r, r.Unknown, test.lost, test.double, test.unknown)
			}
			if err := r.Err(); (err != nil) != (test.says != "") || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("got error %v, want one with %q", err, test.says)
			}
		})
	}
}
