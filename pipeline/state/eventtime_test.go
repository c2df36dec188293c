//go:build cgo

package state

import (
	"fmt"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
)

// TestEventClock follows the clock of a unit of two partitions. Times are seconds.
func TestEventClock(t *testing.T) {
	now, hadClock := time.Unix(5000, 0), false
	c := newEventClock(EventTime{Field: []string{"at", "s"}, Lateness: 10 * time.Second, Idle: time.Minute})
	expect := func(what string, want int64) {
		t.Helper()
		got := int64(0)
		if at := c.at(now, hadClock); !at.IsZero() {
			got = at.Unix()
		}
		if got != want {
			t.Errorf("%s: the clock shows %d, want %d", what, got, want)
		}
	}
	observe := func(partition string, clock int64, times ...int) (late uint64) {
		t.Helper()
		b := &event.Batch{Partition: partition}
		for _, at := range times {
			b.Append(fmt.Appendf(nil, `{"at":{"s":%d}}`, at))
		}
		b.Append([]byte(`{"at":{"s":"soon"}}`))
		b.Append([]byte(`{"at":7}`))
		late, err := c.observe(b, time.Unix(clock, 0), now, time.Unix(9000, 0))
		if err != nil {
			t.Fatal(err)
		}
		return late
	}
	expect("without partitions", 0)
	c.setPartitions([]string{"a", "b"}, now)
	if err := c.preview(&event.Batch{Partition: "a", Data: []byte(`{}{"at":{"s":1000}}`), Ends: []uint32{2, 19}}, now, time.Unix(9000, 0)); err != nil {
		t.Fatal(err)
	}
	expect("before the first batch", 990)
	observe("a", 0, 1000, 1200, 1100)
	expect("while b has no event, in a new unit", 1190)
	hadClock = true
	expect("while b has no event", 0)
	observe("b", 0, 1100)
	expect("the least of both", 1090)
	if late := observe("b", 1090, 1300, 1050, 1090, 1089); late != 2 {
		t.Errorf("%d events are late, want 2", late)
	}
	expect("a is behind", 1190)
	observe("b", 1190, 20_000)
	expect("a time far ahead does not count", 1190)
	observe("c", 1190, 1)
	expect("a partition that is not listed", 1190)
	now = now.Add(50 * time.Second)
	observe("b", 1190, 1400)
	expect("a is not idle yet", 1190)
	now = now.Add(15 * time.Second)
	expect("a is idle", 1390)
	now = now.Add(time.Hour)
	expect("all are idle", 1390)
	c.setPartitions([]string{"a"}, now)
	observe("a", 1390, 1250)
	expect("only a is left", 1240) // the unit's clock does not go back
}
