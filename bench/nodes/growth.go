package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/perigeedb/perigee/bench/rounds"
	"github.com/perigeedb/perigee/internal/plot"
)

const (
	growthGets   = 1_000_000
	growthSets   = 200_000
	growthRounds = 3
	// roomPerNode is what a node may need on the disk while it is measured, with the pages
	// that sets copy.
	roomPerNode = 120
)

// A size is what was measured on a store of some nodes.
type size struct {
	nodes          int
	get, set, walk float64 // nanoseconds
	bytesPerNode   float64
}

// measureGrowth measures get, set and walk on stores of 1 million nodes, of 10 times as many,
// and so on, and writes a plot.
func measureGrowth(ctx context.Context, folder string, m modules, maxNodes int, plotFile string) error {
	if err := checkRoom(folder, int64(maxNodes)*roomPerNode); err != nil {
		return err
	}
	program, err := writeProgram(folder)
	if err != nil {
		return err
	}
	var sizes []size
	for nodes := 1_000_000; nodes <= maxNodes; nodes *= 10 {
		store := filepath.Join(folder, fmt.Sprint("store", nodes))
		lua, err := newLuaSide(luaJIT, program, m, store)
		if err != nil {
			return err
		}
		measured, err := measureSize(ctx, lua, nodes)
		if err != nil {
			return err
		}
		sizes = append(sizes, measured)
		if err := os.RemoveAll(store); err != nil {
			return err
		}
	}
	clearProgress()
	printGrowth(os.Stdout, sizes)
	if plotFile == "" {
		return nil
	}
	return os.WriteFile(plotFile, growthPlot(sizes).File(), 0o644)
}

func checkRoom(folder string, needed int64) error {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(folder, &stat); err != nil {
		return fmt.Errorf("free space of %s: %w", folder, err)
	}
	if free := int64(stat.Bavail) * stat.Bsize; free < needed {
		return fmt.Errorf("%s has %d MB free, but the largest store may need %d MB: free some, set TMPDIR, or measure fewer nodes with -max-nodes",
			folder, free>>20, needed>>20)
	}
	return nil
}

func measureSize(ctx context.Context, lua *luaSide, nodes int) (size, error) {
	result := size{nodes: nodes}
	showProgress("load %d nodes", nodes)
	if _, err := lua.run(ctx, "growLoad", nodes, nodes, batchSize); err != nil {
		return result, err
	}
	bytes, err := diskUsage(lua.store)
	if err != nil {
		return result, err
	}
	result.bytesPerNode = float64(bytes) / float64(nodes)
	for _, job := range []struct {
		name   string
		count  int
		result *float64
	}{
		{"growGet", growthGets, &result.get},
		{"growWalk", nodes, &result.walk},
		{"growSet", growthSets, &result.set},
	} {
		var times []float64
		for round := range growthRounds {
			showProgress("%s of %d nodes, round %d of %d", job.name, nodes, round+1, growthRounds)
			m, err := lua.run(ctx, job.name, job.count, nodes, batchSize)
			if err != nil {
				return result, err
			}
			times = append(times, m.nanoseconds())
		}
		*job.result = rounds.Median(times)
	}
	return result, nil
}

// diskUsage returns the bytes that the files of a folder occupy.
func diskUsage(folder string) (bytes int64, err error) {
	err = filepath.WalkDir(folder, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		bytes += info.Sys().(*syscall.Stat_t).Blocks * 512
		return nil
	})
	return bytes, err
}

// growthPlot draws the nanoseconds of each operation over the number of nodes.
func growthPlot(sizes []size) plot.Plot {
	line := func(name string, class int, value func(size) float64) plot.Line {
		l := plot.Line{Name: name, Class: class}
		for _, s := range sizes {
			l.Points = append(l.Points, plot.Point{X: float64(s.nodes) / 1e6, Y: value(s)})
		}
		return l
	}
	return plot.Plot{
		Title: "Nanoseconds per operation, from LuaJIT", Across: "million nodes", Log: true,
		Format: func(ns float64) string { return fmt.Sprintf("%.0f", ns) },
		Lines: []plot.Line{
			line("get", 0, func(s size) float64 { return s.get }),
			line("set", 1, func(s size) float64 { return s.set }),
			line("step of a walk", 2, func(s size) float64 { return s.walk }),
		},
	}
}

func printGrowth(w io.Writer, sizes []size) {
	t := table.NewWriter()
	t.SetOutputMirror(w)
	t.SetStyle(table.StyleLight)
	t.SetTitle("ns per operation from LuaJIT, median of %d rounds", growthRounds)
	t.AppendHeader(table.Row{"nodes", "get", "set, in transactions", "step of a walk", "bytes per node"})
	for _, s := range sizes {
		t.AppendRow(table.Row{s.nodes, fmt.Sprintf("%.1f", s.get), fmt.Sprintf("%.1f", s.set), fmt.Sprintf("%.1f", s.walk), fmt.Sprintf("%.1f", s.bytesPerNode)})
	}
	t.Render()
	largest := sizes[len(sizes)-1]
	fmt.Fprintf(w, "figure nodes_bytes_per_node %.1f\n", largest.bytesPerNode)
	if largest.nodes == 100_000_000 {
		fmt.Fprintf(w, "figure nodes_100m_vs_1m_get %.2f\n", sizes[0].get/largest.get)
	}
}
