// Command pool repeats the report on pools of Lua VMs: its script, called from
// thousands of goroutines at the same time, silently, printing, and waiting a
// millisecond, over pools of gopher-lua states and over ours. Each pool has a
// process of its own, so that its memory can be told; all take their turn in every
// round of one run; figures are of medians.
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
	goroutines := flag.Int("goroutines", most, "of the child")
	flag.Parse()
	if *name != "" {
		child(*name, *job, *goroutines, *slice)
		return
	}
	columns := []int{1000, 2000, most}
	if *short {
		columns, *count, *slice = []int{most}, 3, 100*time.Millisecond
	}
	matrix(chosen(*job), selected(*only), columns, *count, *slice)
}

func selected(pattern string) []contestant {
	match, err := regexp.Compile(pattern)
	must(err)
	return slices.DeleteFunc(contestants(), func(c contestant) bool { return !match.MatchString(c.name) })
}

// most is the number of goroutines that figures are made with.
const most = 4000

// chosen are all bodies, or the one of that name.
func chosen(name string) []body {
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
			if goroutines != most {
				all = slices.DeleteFunc(slices.Clone(all), func(c contestant) bool { return !c.always })
				rounds = (count + 1) / 2
			}
			title := fmt.Sprintf("%s, %d goroutines", b.name, goroutines)
			results := column(all, b, goroutines, rounds, slice, func() { progress.step(title) })
			progress.clear()
			show(title, results)
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
