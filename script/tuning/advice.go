package tuning

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/perigeedb/perigee/script/pool"
)

// Advice says how to configure a pipeline, by the figures.
type Advice struct {
	Words []string // a sentence or two each
	YAML  string   // lines for the configuration of a pipeline
}

// goodEnough is the share of the best rate that counts as equal: rounds differ by as much.
const goodEnough = .95

func advise(r *Report) Advice {
	a := &adviser{report: r}
	a.adviseFailures()
	a.adviseLanes()
	a.advisePools()
	a.adviseBatch()
	a.adviseCompilation()
	a.writeYAML()
	return a.Advice
}

type adviser struct {
	Advice
	report *Report
	lines  []string
	pool   string
}

func (a *adviser) addf(format string, args ...any) {
	a.Words = append(a.Words, fmt.Sprintf(format, args...))
}

func (a *adviser) adviseFailures() {
	s := a.report.Sample
	switch {
	case s.Failed == s.Tried:
		a.addf("Every event of the sample fails (line %d: %s), so the figures measure failures: repair the script or choose another sample first.", s.Line, s.Fault)
	case s.Failed > 0:
		a.addf("%s of %s events fail and would become dead letters. The first is on line %d: %s.",
			Whole(float64(s.Failed)), Whole(float64(s.Tried)), s.Line, s.Fault)
	}
}

// The defaults of the engine.
const (
	lanesDefault = 4
	batchDefault = 1000
)

// adviseLanes finds the smallest number of goroutines with the highest rate. Fewer lanes
// than the default would save nothing: they also wait for sources and sinks.
func (a *adviser) adviseLanes() {
	all := a.report.byPool(a.report.poolNames()[0])
	best := fastest(all)
	for _, m := range all {
		if m.Summary.Rate.Median < goodEnough*best.Summary.Rate.Median {
			continue
		}
		a.addf("The adaptive pool reaches %s events/s with %s on %s. Batches of %d events take %s in the median and %s at the 99th percentile.",
			Short(m.Summary.Rate.Median), plural(m.Goroutines, "goroutine"), plural(m.Cores, "core"), m.Batch, Time(m.Summary.P50), Time(m.Summary.P99))
		if m.Goroutines > lanesDefault {
			a.lines = append(a.lines, fmt.Sprintf("lanes: %d", m.Goroutines))
			if m.Goroutines == all[len(all)-1].Goroutines {
				a.addf("Fewer than %d lanes are slower; more were not measured.", m.Goroutines)
			} else {
				a.addf("Fewer than %d lanes are slower; more only add latency.", m.Goroutines)
			}
		} else {
			a.addf("The default of %d lanes is enough; more only add latency.", lanesDefault)
		}
		return
	}
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// advisePools compares the adaptive pool with the best of the others at each concurrency.
func (a *adviser) advisePools() {
	adaptive := a.report.poolNames()[0]
	worst, at, other := 1., 0, ""
	for _, goroutines := range a.report.Plan.Goroutines {
		var own Measurement
		var rest []Measurement
		for _, m := range a.report.Pools {
			switch {
			case m.Goroutines != goroutines || m.Settings.Idle < 0: // per call is never worth it
			case m.Pool == adaptive:
				own = m
			default:
				rest = append(rest, m)
			}
		}
		best := fastest(rest)
		share := own.Summary.Rate.Median / max(best.Summary.Rate.Median, 1e-9)
		if share < worst && len(own.Rounds) > 1 && own.Summary.Rate.Max < best.Summary.Rate.Min {
			worst, at, other = share, goroutines, best.Pool
		}
	}
	if worst >= .9 {
		a.addf("No other pool is clearly faster than the adaptive one at any concurrency: keep the default.")
		return
	}
	a.addf("With %d goroutines the pool %q is %.2f times as fast as the adaptive one, in every round. Compare their memory before you choose it.", at, other, 1/worst)
	a.pool = poolLine(a.report.Plan, other)
}

// poolLine returns the line of a configuration that sets the pool.
func poolLine(p Plan, name string) string {
	for _, s := range p.pools() {
		if s.String() == name {
			return "pool: " + poolYAML(s)
		}
	}
	return ""
}

func poolYAML(s pool.Settings) string {
	parts := []string{fmt.Sprint("core: ", s.Core), fmt.Sprint("max: ", s.Max)}
	if s.Eager {
		parts = append(parts, "eager: true")
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// adviseBatch compares the default batch size with the fastest one.
func (a *adviser) adviseBatch() {
	all := a.report.Batches
	best := fastest(all)
	if times := best.Summary.Rate.Median / max(all[0].Summary.Rate.Median, 1e-9); times > 1.1 {
		a.addf("Batches of %d events are %.1f times as fast as batches of %d.", best.Batch, times, all[0].Batch)
	}
	for _, m := range all {
		if m.Batch == batchDefault && m.Summary.Rate.Median < .9*best.Summary.Rate.Median && m.Summary.Rate.Max < best.Summary.Rate.Min && len(m.Rounds) > 1 {
			a.lines = append(a.lines, fmt.Sprintf("batch: {events: %d}", best.Batch))
			return
		}
	}
	if all[len(all)-1].Batch < batchDefault {
		a.addf("Batches of %d events, the default, take longer than %s and were not measured.", batchDefault, Time(batchTime))
		return
	}
	a.addf("Keep the default of %d events in a batch: no other size is clearly faster, and sinks gain from large batches.", batchDefault)
}

func (a *adviser) adviseCompilation() {
	c := a.report.Compilation
	if c == nil {
		return
	}
	lines := c.Lines(false)
	switch {
	case len(lines) == 0:
		a.addf("LuaJIT compiles all code that runs often.")
	default:
		a.addf("LuaJIT cannot compile %s of the script; the first, %s:%d, %s.", plural(len(lines), "line"), lines[0].File, lines[0].Line, lines[0].Plain)
	}
}

func (a *adviser) writeYAML() {
	const indent = "    "
	name := filepath.Base(a.report.Script)
	var text strings.Builder
	text.WriteString("pipelines:\n  NAME:\n")
	if a.pool == "" {
		fmt.Fprintf(&text, "%sscript: %s\n", indent, name)
	} else {
		fmt.Fprintf(&text, "%sscript:\n%s  lua: %s\n%s  %s\n", indent, indent, name, indent, a.pool)
	}
	for _, line := range a.lines {
		text.WriteString(indent + line + "\n")
	}
	a.YAML = text.String()
}

// fastest returns the measurement with the highest rate.
func fastest(all []Measurement) (best Measurement) {
	for _, m := range all {
		if best.Rounds == nil || m.Summary.Rate.Median > best.Summary.Rate.Median {
			best = m
		}
	}
	return best
}

// Whole formats a number as 1,234,567.
func Whole(x float64) string {
	text := fmt.Sprintf("%.0f", x)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// Short formats a number with three digits, as in 1.23 M.
func Short(x float64) string {
	switch {
	case x >= 999.5e3:
		return formatDigits(x/1e6) + " M"
	case x >= 9995:
		return formatDigits(x/1e3) + " k"
	case x >= 100:
		return Whole(x)
	}
	return formatDigits(x)
}

// Time formats a duration with three digits.
func Time(d time.Duration) string {
	switch {
	case d < time.Microsecond:
		return fmt.Sprintf("%d ns", d)
	case d < time.Millisecond:
		return formatDigits(float64(d)/1e3) + " µs"
	case d < time.Second:
		return formatDigits(float64(d)/1e6) + " ms"
	}
	return formatDigits(d.Seconds()) + " s"
}

// Memory formats bytes as megabytes.
func Memory(bytes uint64) string { return formatDigits(float64(bytes)/1e6) + " MB" }

// formatDigits formats a number with three digits.
func formatDigits(x float64) string {
	switch {
	case x >= 99.95:
		return fmt.Sprintf("%.0f", x)
	case x >= 9.995:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.2f", x)
}
