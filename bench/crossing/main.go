// Command crossing measures the cost of passing an event through user code: native Go with
// encoding/json and with sonic, pooled gopher-lua states, and our engines, event by event
// and in batches. Every round runs every contestant; figures are medians of the rounds'
// ratios.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/perigeedb/perigee/bench/rounds"
)

func main() {
	count := flag.Int("rounds", 20, "rounds of each job")
	slice := flag.Duration("slice", 15*time.Millisecond, "time of each contestant in each round")
	near := flag.Int("near", 25, "times as many rounds, a fifth as long, for two that are nearly the same")
	flag.Parse()

	trim := measure("trim: remove ten fields of thirteen", trimContestants(), *count, *slice)
	row := measure("row of 17 fields, one computed from two", rowContestants(), *count, *slice)
	plugin, remove := buildPlugin()
	defer remove()
	filter := rounds.MeasureEqually(keyFilterContestants(plugin), *count**near, *slice/5)
	rounds.Print(os.Stdout, "key filter on fresh rows: a plugin and a direct call", filter, direct)
	measure("remove five fields of nineteen: a plugin and Lua", pluginContestants(plugin), *count, *slice)
	for _, job := range otherJobs {
		measure(job.title, ours(job.script, events(job.event)), *count, *slice)
	}

	figure := func(name string, value float64) { fmt.Printf("figure %s %.2f\n", name, value) }
	figure("trim_batched_vs_native", rounds.Ratio(trim, batched, native))
	figure("trim_single_vs_native", rounds.Ratio(trim, single, native))
	figure("trim_vs_sonic", rounds.Ratio(trim, batched, "sonic"))
	figure("trim_vs_gopherlua", rounds.Ratio(trim, batched, "gopher-lua, through encoding/json"))
	figure("trim_vs_gopherlua_direct", rounds.Ratio(trim, batched, "gopher-lua, direct"))
	figure("row17_vs_native", rounds.Ratio(row, batched, native))
	figure("userdata_nojit_vs_native", rounds.Ratio(trim, "LuaJIT, compiler off, batches of 256", native))
	figure("plugin_vs_direct_call", rounds.Ratio(filter, throughHandler, direct))
	for _, r := range trim {
		if r.Name == batched {
			figure("trim_bytes_per_op", r.Bytes)
		}
	}
}

// Names of the contestants whose ratios are figures.
const (
	native  = "native, encoding/json"
	batched = "LuaJIT, batches of 256"
	single  = "LuaJIT, event by event"

	direct         = "direct call"
	directFlat     = "direct call, rows known to be flat"
	throughHandler = "plugin, through the handler"
)

// measure runs a job and prints a table with ratios to its first contestant.
func measure(title string, contestants []rounds.Contestant, count int, slice time.Duration) []rounds.Result {
	results := rounds.Measure(contestants, count, slice)
	rounds.Print(os.Stdout, title, results, contestants[0].Name)
	return results
}
