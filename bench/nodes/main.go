// Command nodes compares the node database with M on the same data: traversal of millions of
// siblings, get, set and increment on deep nodes, autocommitted sets, bulk loads. M is GT.M
// with a cache that holds all nodes; ours runs from LuaJIT and from Lua 5.4. Each job runs in
// a process of its own, and each round runs every job of every contestant on fresh databases.
// A ratio is the median over the rounds.
//
// With -growth it measures ours alone, with 1, 10 and 100 million nodes, and draws a plot.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

func main() {
	var b bench
	flag.IntVar(&b.siblings, "siblings", 5_000_000, "siblings to load and walk")
	flag.IntVar(&b.operations, "operations", 1_000_000, "gets, sets and increments of each job")
	flag.IntVar(&b.children, "children", 3_000_000, "new children of the memory test")
	flag.IntVar(&b.rounds, "rounds", 5, "rounds")
	flag.StringVar(&b.modules.lua, "lua", "../nodedb/lua", "the folder of the Lua modules")
	flag.StringVar(&b.modules.native, "native", "../.build/nodedb-lua", "the folder that make nodedb-lua fills")
	quick := flag.Bool("quick", false, "small sizes and one round, to see that everything runs")
	growth := flag.Bool("growth", false, "measure how cost grows from 1 to 100 million nodes")
	maxNodes := flag.Int("max-nodes", 100_000_000, "with -growth: nodes of the largest store")
	plot := flag.String("plot", "", "with -growth: write the plot to this SVG file")
	flag.Parse()
	if *quick {
		b.siblings, b.operations, b.children, b.rounds = 100_000, 100_000, 100_000, 1
		*maxNodes = min(*maxNodes, 1_000_000)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := withFolder(func(folder string) error {
		if *growth {
			return measureGrowth(ctx, folder, b.modules, *maxNodes, *plot)
		}
		return b.run(ctx, folder)
	})
	if err != nil {
		fmt.Fprintf(os.Stderr, "nodes: error: %v\n", err)
		os.Exit(1)
	}
}

// withFolder calls use with a temporary folder that it removes afterwards.
func withFolder(use func(folder string) error) error {
	folder, err := os.MkdirTemp("", "perigee-nodes-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	return use(folder)
}

// writeProgram writes the Lua program to folder and returns its path.
func writeProgram(folder string) (string, error) {
	program := filepath.Join(folder, "bench.lua")
	return program, os.WriteFile(program, luaProgram, 0o600)
}
