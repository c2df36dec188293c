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

// TestFullPart fills a part of a set to its limit, which leaves room for fast lookups.
func TestFullPart(t *testing.T) {
	for _, test := range []struct{ partMax, want int }{{16, 14}, {64, 56}, {640, 560}} {
		set, added := &Set{partMax: test.partMax}, 0
		for i := range uint32(test.partMax) {
			if e := set.Add(&manifest.KeyHash{0, i << 22, i}, 10, 1000); e != nil {
				e.Time = 1000
				added++
			}
		}
		if keys, memory := set.Size(); added != test.want || keys != test.want || memory != int64(test.partMax)*entrySize {
			t.Errorf("of %d entries %d are used: %d keys in %d bytes", test.partMax, added, keys, memory)
		}
	}
}

// TestKeySetMemory checks the memory that keys take against the limit.
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
			t.Fatalf("%d keys take %d bytes", keys, memory)
		}
	}
	if keys, memory := set.Size(); keys != added || memory > limit || int64(added) < limit*4/5/entrySize {
		t.Errorf("%d keys were added, %d are there and take %d bytes", added, keys, memory)
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
		t.Errorf("after the window %d keys were added; %d are there and take %d bytes", again, keys, memory)
	}
}
