package pool_test

import (
	"context"
	"fmt"
	"log"

	"github.com/perigeedb/perigee/script/pool"
)

// A counter is the simplest of VMs.
type counter struct{ calls int }

func (*counter) Close()                   {}
func (*counter) Broken() bool             { return false }
func (*counter) Memory() int              { return 8 }
func (*counter) Progress() (uint32, bool) { return 0, false }

type counters struct{}

func (counters) Open(context.Context) (pool.VM, error) { return &counter{}, nil }
func (counters) Close()                                {}

// Keep VMs of one's own in a pool. Two that ask by the same key share them.
func ExamplePool() {
	p := pool.New(pool.Settings{Core: 2, Max: 2})
	mine := p.Join("the hash of a script", func() pool.Maker { return counters{} })
	defer mine.Leave()
	yours := p.Join("the hash of a script", func() pool.Maker { return counters{} })
	defer yours.Leave()

	for _, g := range []*pool.Group{mine, yours, mine} {
		m, err := g.Acquire(context.Background())
		if err != nil {
			log.Fatal(err)
		}
		m.VM.(*counter).calls++
		fmt.Println("call", m.VM.(*counter).calls)
		m.Release()
	}
	fmt.Println("made:", p.Stats().Made)
	// Output:
	// call 1
	// call 2
	// call 3
	// made: 1
}

// One set of numbers stands for every kind of pool.
func ExampleSettings() {
	for _, s := range []pool.Settings{
		{},
		{Core: 16, Max: 16},
		{Core: 4, Max: 64, Eager: true},
		{Core: 4, Max: -1, Eager: true},
		{Core: -1, Max: -1, Eager: true},
		{Core: -1, Max: -1, Eager: true, Idle: -1},
	} {
		fmt.Println(s)
	}
	// Output:
	// adaptive
	// fixed 16
	// scaling 4 to 64
	// scaling from 4
	// cached
	// per call
}
