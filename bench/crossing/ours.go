package main

import (
	"context"
	"fmt"

	"github.com/perigeedb/perigee/bench/rounds"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/gopherlua"
	"github.com/perigeedb/perigee/script/luajit"
)

// engine is one of our engines with a batch size.
type engine struct {
	name     string
	language script.Language
	size     int
}

var engines = []engine{
	{batched, luajit.Language, 256},
	{single, luajit.Language, 1},
	{"LuaJIT, compiler off, batches of 256", luajit.Interpreted, 256},
	{"LuaJIT, compiler off, event by event", luajit.Interpreted, 1},
	{"our gopher-lua engine, batches of 256", gopherlua.Language(), 256},
}

// ours returns contestants that pass events through a script.
func ours(text string, events [][]byte) []rounds.Contestant {
	var contestants []rounds.Contestant
	for _, e := range engines {
		contestants = append(contestants, contestant(e, text, events, false))
	}
	return contestants
}

// values returns contestants that compute a column from each event.
func values(text string, events [][]byte) []rounds.Contestant {
	var contestants []rounds.Contestant
	for _, e := range engines {
		contestants = append(contestants, contestant(e, text, events, true))
	}
	return contestants
}

func contestant(e engine, text string, events [][]byte, value bool) rounds.Contestant {
	ctx := context.Background()
	loaded, err := e.language.Load(ctx, script.Code{Name: "bench.lua", Text: []byte(text)},
		script.Options{Sinks: []script.Sink{{}}, ReturnsValue: value})
	must(err)
	batches := make([]event.Batch, len(events)/e.size)
	for i := range batches {
		for _, doc := range events[i*e.size : (i+1)*e.size] {
			batches[i].Append(doc)
		}
		batches[i].Range = event.Range{First: uint64(i * e.size), Count: uint64(e.size)}
	}
	result := &event.Result{Outputs: make([]event.Output, 1)}
	return rounds.Contestant{Name: e.name, Run: func(n int) {
		for done := 0; done < n; done += e.size {
			batch := &batches[done/e.size%len(batches)]
			must(loaded.Run(ctx, batch, result))
			if len(result.Dead) > 0 {
				panic(fmt.Sprintf("%s: %v", e.name, &result.Dead[0]))
			}
		}
	}}
}
