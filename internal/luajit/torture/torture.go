// Package torture contains hostile scripts, which try to hang or crash the process, and the allowed
// ends of each.
package torture

import (
	"context"
	_ "embed"
	"slices"
	"strings"
	"time"

	"github.com/perigeedb/perigee/nodedb"
)

// scripts are attacks on resources; library contains attacks on functions that take a count, a
// position or a length; vm on the sandbox, coroutines, errors, metamethods and the compiler; nodes
// on the node database.
//
//go:embed scripts.lua
var scripts string

//go:embed library.lua
var library string

//go:embed vm.lua
var vm string

//go:embed nodes.lua
var nodes string

// state attacks the state of a pipeline.
//
//go:embed state.lua
var state string

// Batch returns the events for each script: one that triggers the attack, between two that must not
// be affected.
var Batch = []string{`{"innocent":1}`, `{"a":1,"list":[3,1,2],"sub":{"x":"y"}}`, `{"innocent":2}`}

// A Script is one hostile script: the body of a main function.
type Script struct {
	Name        string
	AllowedEnds []string // the kinds of error that may end it; "ok" if it may just return
	Body        string
	State       bool // it needs the state of a pipeline, filled by FillState
	Nodes       bool // it needs a store filled by Fill, in which another session holds the lock of ^held
}

// LookUp replaces net.addr, which waits for a server, for ever if the server does not answer.
func LookUp(ctx context.Context, args []any) ([]any, error) {
	wait := 5 * time.Millisecond
	if name, _ := args[0].(string); strings.HasPrefix(name, "silent") {
		wait = time.Hour
	}
	select {
	case <-time.After(wait):
		return []any{"192.0.2.1"}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Fill sets n children of ^big and of ^kill, which scripts kill.
func Fill(store *nodedb.Store, n int) error {
	const perTransaction = 100_000
	for _, name := range []string{"^big", "^kill"} {
		p := nodedb.Name(name)
		for first := 0; first < n; first += perTransaction {
			err := store.Update(context.Background(), func(tx *nodedb.Tx) error {
				for i := first; i < min(n, first+perTransaction); i++ {
					if err := tx.Set(p.At(i), i); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// FillState sets n children of ^big and of ^kill in a delta, half of them in committed ones before it.
func FillState(u *nodedb.Unit, n int) (*nodedb.Delta, error) {
	const deltas = 4
	for number := range deltas {
		d, err := u.Begin(time.Now())
		if err != nil {
			return nil, err
		}
		for _, name := range []string{"^big", "^kill"} {
			for i := number * n / deltas; i < (number+1)*n/deltas; i++ {
				if err := d.Tx().Set(nodedb.Name(name).At(i), i); err != nil {
					return nil, err
				}
			}
		}
		if number == deltas-1 {
			return d, nil
		}
		if err := d.Freeze(); err != nil {
			return nil, err
		}
		if number < deltas/2 {
			if err := u.Commit(d, uint64(number)+1, 0); err != nil {
				return nil, err
			}
		}
	}
	return nil, nil
}

// Code returns the text of the script.
func (s Script) Code() string {
	text := ""
	if s.State {
		text = "local nodedb, timers, window = require 'nodedb', require 'timer', require 'window'\nfunction timer() end\n"
	}
	if s.Nodes {
		text = "local nodedb, log = require 'nodedb', require 'log'\n"
	}
	return text + "function main(event) if event.innocent then return event end do\n" + s.Body + "end return nil end\n"
}

// Scripts parses the collection. A header is "--- name: end, end". A script that exhausts memory or
// stack may also end at the time limit.
func Scripts() []Script {
	var all []Script
	for _, section := range strings.Split("\n"+scripts+"\n"+library+"\n"+vm+"\n"+nodes+"\n"+state, "\n--- ")[1:] {
		header, body, _ := strings.Cut(section, "\n")
		name, ends, _ := strings.Cut(header, ": ")
		script := Script{Name: name, AllowedEnds: strings.Split(ends, ", "), Body: body + "\n", Nodes: strings.HasPrefix(name, "nodes, "), State: strings.HasPrefix(name, "state, ")}
		if slices.Contains(script.AllowedEnds, "memory") || slices.Contains(script.AllowedEnds, "stack overflow") {
			script.AllowedEnds = append(script.AllowedEnds, "event time")
		}
		all = append(all, script)
	}
	return all
}
