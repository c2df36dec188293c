package keyset

import (
	"math/rand/v2"
	"testing"

	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/internal/testseed"
)

func randomHash(r *rand.Rand) manifest.KeyHash {
	return manifest.KeyHash{r.Uint32(), r.Uint32(), r.Uint32()}
}

// TestKeySet compares a set with a map while time advances and keys leave the window.
func TestKeySet(t *testing.T) {
	r := testseed.New(t)
	const window = 100
	set, want := New(64<<20), map[manifest.KeyHash]uint32{}
	var known []manifest.KeyHash
	now := uint32(1000)
	for range 200_000 {
		if r.IntN(50) == 0 {
			now++
		}
		hash := randomHash(r)
		if len(known) > 0 && r.IntN(2) == 0 {
			hash = known[r.IntN(len(known))]
		}
		known = append(known, hash)
		e := set.Add(&hash, now-window, now)
		if e == nil {
			t.Fatal("the set is full")
		}
		if got, want := e.Counts(now-window), want[hash] > now-window; got != want {
			t.Fatalf("the set has the key: %t; the map: %t", got, want)
		}
		switch {
		case e.Counts(now - window):
		case r.IntN(10) == 0:
			e.Time = Released
		default:
			e.Time, want[hash] = now, now
		}
	}
	for hash, at := range want {
		if e := set.Find(&hash); (e != nil && e.Counts(now-window)) != (at > now-window) {
			t.Fatalf("at the end the set has %+v for a key of %d", e, at)
		}
	}
}

// TestFullSet adds more keys to sets than fit: a set refuses some, still finds all others, and finds
// none of the refused ones.
func TestFullSet(t *testing.T) {
	const keys = 2000
	for _, limit := range []int64{1, 64 << 10, 640 << 10} { // the first is raised to the minimum
		set, added := New(limit), map[uint32]bool{}
		hash := func(i uint32) *manifest.KeyHash { return &manifest.KeyHash{0, i << 21, i} }
		for i := range uint32(keys) {
			if e := set.Add(hash(i), 10, 1000); e != nil {
				e.Time, added[i] = 1000, true
			}
		}
		if len(added) < 10 || len(added) == keys {
			t.Errorf("limit of %d bytes: got %d of %d keys, want at least 10 and not all", limit, len(added), keys)
		}
		for i := range uint32(keys) {
			if got := set.Find(hash(i)) != nil; got != added[i] {
				t.Errorf("limit of %d bytes: key %d is found: got %v, want %v", limit, i, got, added[i])
			}
		}
	}
}

// TestKeySetMemory checks the memory that keys take against the limit, and against the bytes per key
// that docs/reference/limits.md names.
func TestKeySetMemory(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const limit = 8 << 20
	set, now := New(limit), uint32(1000)
	add := func() bool {
		hash := randomHash(r)
		e := set.Add(&hash, now-10, now)
		if e != nil {
			e.Time = now
		}
		return e != nil
	}
	added := 0
	for ; add(); added++ {
		if keys, memory := set.Size(); added > 10_000 && (memory > 28*int64(keys) || memory > limit) {
			t.Fatalf("got %d bytes for %d keys, want at most 28 for each and %d in all", memory, keys, limit)
		}
	}
	if keys, memory := set.Size(); keys != added || memory > limit || int64(added) < limit/28 {
		t.Errorf("full: got %d keys in %d bytes, want the %d that were added, at least %d, in at most %d", keys, memory, added, limit/28, limit)
	}
	for range 1000 {
		add()
	}
	now += 10 // all keys leave the window
	again := 0
	for again < added*9/10 && add() {
		again++
	}
	if keys, memory := set.Size(); again < added*9/10 || memory > limit {
		t.Errorf("after the window: added %d keys, got %d in %d bytes, want at least %d added and at most %d bytes", again, keys, memory, added*9/10, limit)
	}
}
