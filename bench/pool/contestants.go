package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"

	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/luajit"
	"github.com/perigeedb/perigee/script/pool"
)

// A contestant is a pool to measure.
type contestant struct {
	name   string
	ours   bool
	always bool // measured with any number of goroutines, not only with the largest
	open   func(b body) func() error
}

const adaptive = "perigee, adaptive"

func contestants() []contestant {
	all := append(theirs(), ours()...)
	return all
}

func theirs() []contestant {
	their := func(name string, always bool, open func(m *maker) statePool) contestant {
		return contestant{name: "gopher-lua, " + name, always: always, open: func(b body) func() error {
			m := newMaker(b)
			return m.invoker(open(m))
		}}
	}
	all := []contestant{
		their("none", true, func(m *maker) statePool { return newEachCall{m} }),
		their("sync.Pool", true, func(m *maker) statePool { return newSyncPool(m) }),
	}
	for _, n := range []int{1000, 2000} {
		all = append(all, their(fmt.Sprint("unlimited ", n), false, func(m *maker) statePool {
			return &unboundedPool{m, make(chan *state, n)}
		}))
	}
	for _, n := range [][2]int{{2, 2}, {4, 4}, {16, 16}, {1000, 1000}, {2000, 2000}, {1000, 3000}} {
		name := fmt.Sprint("block ", n[0])
		if n[1] > n[0] {
			name += fmt.Sprint("/", n[1])
		}
		all = append(all, their(name, false, func(m *maker) statePool { return newBoundedPool(m, n[0], n[1]) }))
	}
	for _, n := range []int{2, 4, 16, 1000} {
		all = append(all, their(fmt.Sprint("lifo ", n), false, func(m *maker) statePool { return newLIFOPool(m, n) }))
	}
	for _, n := range []int{2, 4, 16, 64, 256, 1000} {
		all = append(all, their(fmt.Sprint("fixed ", n), n <= 16, func(m *maker) statePool { return newFixedPool(m, n) }))
	}
	return all
}

func ours() []contestant {
	settings := []pool.Settings{}
	for _, n := range sizes() {
		settings = append(settings, pool.Settings{Core: n, Max: n})
	}
	settings = append(settings, pool.Settings{Core: 2, Max: 16, Eager: true}, pool.Settings{})
	var all []contestant
	for _, s := range settings {
		all = append(all, contestant{name: "perigee, " + s.String(), ours: true, always: true, open: func(b body) func() error { return open(b, s) }})
	}
	return all
}

// sizes returns the sizes of our fixed pools, including the number of cores.
func sizes() []int {
	all := []int{2, 4, 16, runtime.NumCPU()}
	slices.Sort(all)
	return slices.Compact(all)
}

// open loads the script into a pool of ours.
func open(b body, settings pool.Settings) func() error {
	hello := func(context.Context, []any) ([]any, error) {
		b.hello()
		return nil, nil
	}
	host := script.Module{Name: "host"}
	functions := map[string]script.Func{"goSayHello": hello}
	if b.waits {
		host.Functions = functions
	} else {
		host.Pure = functions
	}
	loaded, err := luajit.LoadCallable(context.Background(), script.Code{
		Name: "report.lua", Text: []byte("local goSayHello = require('host').goSayHello\n" + scriptText),
	}, script.Options{Modules: []script.Module{host}, Pool: pool.New(settings)})
	must(err)
	function, err := loaded.Function(functionName)
	must(err)
	return b.wrapCall(func(ctx context.Context) error {
		_, err := function.Invoke(ctx)
		return err
	})
}
