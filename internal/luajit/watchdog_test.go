//go:build cgo && luajit

package luajit

import (
	"testing"
	"time"
)

func TestLateCountsProcessorTime(t *testing.T) {
	const limit = 100 * time.Millisecond
	began := instant{time.Unix(1000, 0), time.Second}
	after := func(clock, spent time.Duration) instant {
		return instant{began.clock.Add(clock), began.spent + spent}
	}
	for _, test := range []struct {
		name string
		now  instant
		want bool
	}{
		{"within the limit", after(99*time.Millisecond, 99*time.Millisecond), false},
		{"used up", after(101*time.Millisecond, 100*time.Millisecond), true},
		{"hardly ran", after(900*time.Millisecond, 30*time.Millisecond), false},
		{"starved for too long", after(starvedFactor*limit, 30*time.Millisecond), true},
		{"unknown, within", instant{began.clock.Add(99 * time.Millisecond), -1}, false},
		{"unknown, used up", instant{began.clock.Add(limit), -1}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := test.now.exceeds(began, limit); got != test.want {
				t.Errorf("late is %v", got)
			}
		})
	}
}
