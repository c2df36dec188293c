package nodedb_test

import (
	"maps"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/perigeedb/perigee/internal/testseed"
	"github.com/perigeedb/perigee/nodedb"
)

// TestManyWaitingNodes changes and kills thousands of nodes that wait for the disk, with deltas in
// flight, and compares them with a model: in deltas, in views before and after a commit, and once the
// changes are on disk.
func TestManyWaitingNodes(t *testing.T) {
	random := testseed.New(t)
	u := openUnit(t, t.TempDir(), lazy)
	committed := unitModel{}
	var flight []*modelDelta
	for round := range 60 {
		nodes := maps.Clone(committed)
		if len(flight) > 0 {
			nodes = maps.Clone(flight[len(flight)-1].nodes)
		}
		now := start.UnixMilli() + int64(round)
		d := freeze(t, u, time.UnixMilli(now), func(tx *nodedb.Tx) {
			for range 300 {
				check(t, randomChange(random).apply(tx, nodes, now))
			}
			for range 100 {
				key := randomKey(random)
				value, err := tx.Get(modelPath(key))
				check(t, err)
				if n, exists := nodes.get(key, now); value.Exists() != exists || exists && value != n.value {
					t.Fatalf("round %d: %s is %v, want %v", round, key, value, n.value)
				}
			}
		})
		flight = append(flight, &modelDelta{d, nodes, now})
		for len(flight) > random.IntN(4) {
			oldest := flight[0]
			flight = flight[1:]
			check(t, u.View(ctx, func(tx *nodedb.Tx) error {
				if err := compareTx(tx, committed, now); err != nil {
					return err
				}
				commit(t, u, oldest.delta)
				return compareTx(tx, committed, now) // it does not see the commit
			}))
			committed = oldest.nodes
			check(t, u.View(ctx, func(tx *nodedb.Tx) error { return compareTx(tx, committed, oldest.now, randomKey(random)) }))
		}
		if round%20 == 19 {
			check(t, u.Sync(ctx))
		}
	}
}

func randomKey(random *rand.Rand) string {
	return string(rune('a'+random.IntN(3))) + strconv.Itoa(1000 + random.IntN(9000))[:1+random.IntN(4)]
}

func randomChange(random *rand.Rand) change {
	kinds := []string{"set", "set text", "set text", "increment", "increment", "increment", "kill value", "kill"}
	c := change{kinds[random.IntN(len(kinds))], randomKey(random), 1 + random.IntN(40)}
	if c.kind == "kill" && len(c.key) < 3 && random.IntN(10) > 0 {
		c.kind = "increment" // most kills are of a few nodes
	}
	return c
}
