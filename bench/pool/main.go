// Command pool repeats the report on pools of Lua VMs: thousands of goroutines call its
// script concurrently, silently, printing, and waiting a millisecond, on pools of
// gopher-lua states and on ours. Each pool runs in its own process, so that its memory can
// be measured. Every round runs every pool; figures are medians over the rounds.
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"time"
)

func main() {
	count := flag.Int("rounds", 7, "rounds with the most goroutines")
	slice := flag.Duration("slice", 200*time.Millisecond, "time of each pool in each round")
	only := flag.String("only", "", "measure pools whose name matches this regular expression")
	short := flag.Bool("short", false, "a quick look: three rounds, and only the most goroutines")
	name := flag.String("child", "", "the pool that this process measures for its parent")
	job := flag.String("body", "", "measure this body only")
	goroutines := flag.Int("goroutines", maxGoroutines, "of the child")
	flag.Parse()
	if *name != "" {
		serveParent(*name, *job, *goroutines, *slice)
		return
	}
	columns := []int{1000, 2000, maxGoroutines}
	if *short {
		columns, *count, *slice = []int{maxGoroutines}, 3, 100*time.Millisecond
	}
	matrix(selectBodies(*job), selectContestants(*only), columns, *count, *slice)
}

func selectContestants(pattern string) []contestant {
	match, err := regexp.Compile(pattern)
	must(err)
	return slices.DeleteFunc(contestants(), func(c contestant) bool { return !match.MatchString(c.name) })
}

// maxGoroutines is the number of goroutines of the figures.
const maxGoroutines = 4000

// selectBodies returns all bodies, or the one with a name.
func selectBodies(name string) []body {
	if name == "" {
		return bodies()
	}
	return []body{bodyOf(name)}
}

func matrix(jobs []body, pools []contestant, columns []int, count int, slice time.Duration) {
	var f figures
	whole := len(pools) == len(contestants()) && len(jobs) == len(bodies())
	progress := newProgress(len(jobs), pools, columns, count)
	for _, b := range jobs {
		for _, goroutines := range columns {
			all, rounds := pools, count
			if goroutines != maxGoroutines {
				all = slices.DeleteFunc(slices.Clone(all), func(c contestant) bool { return !c.always })
				rounds = (count + 1) / 2
			}
			title := fmt.Sprintf("%s, %d goroutines", b.name, goroutines)
			results := measureColumn(all, b, goroutines, rounds, slice, func() { progress.step(title) })
			progress.clear()
			printColumn(title, results)
			if whole {
				f.add(b, goroutines, results)
			}
		}
	}
	if whole {
		f.print()
	}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "pool:", err)
		os.Exit(1)
	}
}
