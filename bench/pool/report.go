package main

import (
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/perigeedb/perigee/bench/rounds"
)

// printColumn prints the results of one column of the matrix.
func printColumn(title string, results []result) {
	best := fastest(results, func(c contestant) bool { return !c.ours })
	t := table.NewWriter()
	t.SetOutputMirror(os.Stdout)
	t.SetStyle(table.StyleLight)
	t.SetTitle("%s", title)
	t.AppendHeader(table.Row{"pool", "ns/call", "min", "max", "CPU ns/call", "B/call", "allocs", "peak MB", "speed, best of gopher-lua = 1"})
	ours := !slices.ContainsFunc(results, func(r result) bool { return !r.contestant.ours })
	for _, r := range results {
		if r.contestant.ours && !ours {
			t.AppendSeparator()
			ours = true
		}
		t.AppendRow(table.Row{r.contestant.name, whole(r.median()), whole(slices.Min(r.times())), whole(slices.Max(r.times())), whole(r.cpu()),
			fmt.Sprintf("%.1f", r.bytes()), fmt.Sprintf("%.2f", r.allocs()), fmt.Sprintf("%.0f", r.peakMB()), fmt.Sprintf("%.2f", ratio(r, best))})
	}
	t.Render()
	fmt.Println()
}

func whole(x float64) string { return fmt.Sprintf("%.0f", x) }

// fastest returns the fastest of the contestants that some selects.
func fastest(results []result, some func(contestant) bool) result {
	var best result
	for _, r := range results {
		if some(r.contestant) && (best.readings == nil || r.median() < best.median()) {
			best = r
		}
	}
	return best
}

// ratio returns how many times faster a is than b, as the median over the rounds.
func ratio(a, b result) float64 {
	as, bs := a.times(), b.times()
	if len(bs) == 0 {
		return 0
	}
	for i := range as {
		as[i] = bs[i] / as[i]
	}
	return rounds.Median(as)
}

// figures collects the figures of the run.
type figures struct {
	vsBest map[string]float64 // by body
	bytes  float64
	worst  float64
	peak   float64
}

func (f *figures) add(b body, goroutines int, results []result) {
	chosen := fastest(results, func(c contestant) bool { return c.name == adaptive })
	f.peak = max(f.peak, chosen.peakMB())
	if goroutines != maxGoroutines {
		return
	}
	if f.vsBest == nil {
		f.vsBest = make(map[string]float64)
	}
	f.vsBest[b.name] = ratio(chosen, fastest(results, func(c contestant) bool { return !c.ours }))
	f.worst = max(f.worst, 1/ratio(chosen, fastest(results, func(c contestant) bool { return c.ours && c.name != adaptive })))
	if b.name == "silent" {
		f.bytes = chosen.bytes()
	}
}

func (f *figures) print() {
	figure := func(name string, value float64) { fmt.Printf("figure %s %.2f\n", name, value) }
	figure("pool_silent_vs_best", f.vsBest["silent"])
	figure("pool_silent_bytes_per_op", f.bytes)
	figure("pool_print_vs_best", f.vsBest["printing"])
	figure("pool_wait_vs_best", f.vsBest["waiting 1 ms"])
	figure("pool_adaptive_worst_column", f.worst)
	figure("pool_peak_mb", f.peak)
}

// A progress prints how far the run is.
type progress struct {
	began       time.Time
	done, total int
}

func newProgress(bodies int, pools []contestant, columns []int, count int) *progress {
	p := &progress{began: time.Now()}
	for _, goroutines := range columns {
		for _, c := range pools {
			switch {
			case goroutines == maxGoroutines:
				p.total += bodies * (count + 1)
			case c.always:
				p.total += bodies * ((count+1)/2 + 1)
			}
		}
	}
	return p
}

func (p *progress) step(title string) {
	p.done++
	left := time.Since(p.began) / time.Duration(p.done) * time.Duration(p.total-p.done)
	fmt.Fprintf(os.Stderr, "\r\x1b[K%s: %d %%, %v left", title, 100*p.done/p.total, left.Round(time.Second))
}

func (p *progress) clear() { fmt.Fprint(os.Stderr, "\r\x1b[K") }
