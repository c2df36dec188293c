package chaos

import (
	"maps"
	"testing"
)

// TestCountFaults checks that the counted faults kill as many processes as asked, and that a round
// has only faults that its pipeline and workers can have.
func TestCountFaults(t *testing.T) {
	plain := func() *Pipeline { return &Pipeline{pipeline: map[string]any{}} }
	isolated, stateful := plain(), plain()
	isolated.pipeline["script"] = map[string]any{"isolate": "process"}
	stateful.pipeline["state"] = map[string]any{"name": StateName}
	usual := faultCounts{
		KillWorker: 10, KillRedis: 7, KillDatabase: 8, RestoreRedis: 3, RestoreDatabase: 2,
		CutConnections: 2, CutInsidePacket: 2, DropReply: 2, StallConnections: 2, DelayConnections: 1,
	}
	for _, test := range []struct {
		name   string
		round  Round
		change func(faultCounts) // of usual
	}{
		{"one worker", Round{Pipeline: plain(), Workers: 1}, func(c faultCounts) { c[KillAtPoint] = 36 }},
		{"two workers", Round{Pipeline: plain(), Workers: 2}, func(c faultCounts) {
			c[KillUntilTakeover], c[SuspendInTransaction], c[KillAtPoint] = 4, 3, 32
		}},
		{"isolated", Round{Pipeline: isolated, Workers: 1}, func(c faultCounts) { c[KillChildren], c[KillAtPoint] = 10, 26 }},
		{"state", Round{Pipeline: stateful, Workers: 1}, func(c faultCounts) { delete(c, RestoreDatabase); c[KillAtPoint] = 42 }},
	} {
		want := maps.Clone(usual)
		test.change(want)
		if got := test.round.countFaults(usualKills); !maps.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", test.name, got, want)
		}
		for _, kills := range []int{20, 50, usualKills, 500} {
			test.round.ScheduleFaults(kills)
			var got int64
			for _, fault := range test.round.Faults {
				got += fault.Kind.killCount()
			}
			if got != int64(kills) {
				t.Errorf("%s: got %d kills, want %d", test.name, got, kills)
			}
		}
	}
	few := Round{Pipeline: plain(), Workers: 1}
	if got := few.countFaults(1)[KillAtPoint]; got != 1 {
		t.Errorf("of 1 kill: got %d at a point, want 1", got)
	}
}
