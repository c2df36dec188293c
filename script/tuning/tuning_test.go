package tuning

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/leaktest"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/passthrough"
	"github.com/perigeedb/perigee/script/pool"
)

func TestHistogramIsClose(t *testing.T) {
	var h histogram
	for d := time.Duration(1); d <= 100_000; d++ {
		h.record(d)
	}
	for _, test := range []struct {
		share float64
		want  time.Duration
	}{{0, 1}, {.0001, 11}, {.5, 50_000}, {.99, 99_000}, {1, 100_000}} {
		got := h.quantile(test.share)
		if off := max(got-test.want, test.want-got); float64(off) > .03*float64(test.want) {
			t.Errorf("quantile %v is %d, want %d", test.share, got, test.want)
		}
	}
	var twice histogram
	twice.merge(&h)
	twice.merge(&h)
	if twice.count != 200_000 || twice.quantile(.5) != h.quantile(.5) || twice.max != h.max {
		t.Errorf("merged: %d durations, median %d", twice.count, twice.quantile(.5))
	}
	if new(histogram).quantile(.5) != 0 {
		t.Error("nothing has a median")
	}
}

func TestBucketsHoldTheirMiddle(t *testing.T) {
	for i := range 1800 {
		if got := bucketOf(bucketMiddle(i)); got != i {
			t.Fatalf("the middle of bucket %d, %d, falls into bucket %d", i, bucketMiddle(i), got)
		}
	}
	if bucketOf(1<<62) >= 64*steps || bucketOf(-1) != 0 {
		t.Error("a duration has no bucket")
	}
}

// A phasedScript begins a phase with each run, the last one for good.
type phasedScript struct {
	script.Script
	c      *loadGenerator
	phases []int32
}

func (p *phasedScript) Run(ctx context.Context, in *event.Batch, res *event.Result) error {
	p.c.phase.Store(p.phases[0])
	if len(p.phases) > 1 {
		p.phases = p.phases[1:]
	}
	return p.Script.Run(ctx, in, res)
}

// TestWhatCountsOfARound: events count if their batch completes in the window, and latencies also
// after it. Events that complete during the warm-up do not count.
func TestWhatCountsOfARound(t *testing.T) {
	loaded, err := passthrough.Language().Load(t.Context(), script.Code{}, script.Options{Sinks: []script.Sink{{}}})
	if err != nil {
		t.Fatal(err)
	}
	defer loaded.Close()
	s, err := ReadSample("x", strings.NewReader("{}\n{}\n{}"))
	if err != nil {
		t.Fatal(err)
	}
	c := newLoadGenerator(loaded, nil, s.batches(3), 1, 1)
	c.script = &phasedScript{loaded, c, []int32{phaseWarmUp, phaseWarmUp, phaseMeasure, phaseMeasure, phaseMeasure, phaseStop}}
	m := &c.workers[0]
	m.run(t.Context(), c)
	if m.err != nil || m.runs != 3 || m.events != 9 || m.latency.count != 4 {
		t.Errorf("%d runs of %d events, %d latencies, %v; want 3 runs of 9 events, 4 latencies", m.runs, m.events, m.latency.count, m.err)
	}
}

func TestReadSample(t *testing.T) {
	s, err := ReadSample("x", strings.NewReader("\n {\"a\":1} \n\n{\"a\":2}\n{}"))
	if err != nil {
		t.Fatal(err)
	}
	if s.Events != 3 || s.lines[1] != 4 || s.Cut {
		t.Errorf("%+v", s)
	}
	batches := s.batches(2)
	if len(batches) != 2 || string(batches[1].Doc(1)) != `{"a":1}` || batches[1].Range.First != 2 {
		t.Errorf("the second batch is not filled up: %+v", batches)
	}
	if _, err := ReadSample("x", strings.NewReader("\n\n")); err == nil {
		t.Error("no event is a sample")
	}
}

func TestStandIns(t *testing.T) {
	modules, err := standInModules(map[string]time.Duration{"cache.get": time.Millisecond, "cache.put": 0, "geo.find": 0})
	if err != nil || len(modules) != 2 || modules[0].Name != "cache" || len(modules[0].Functions) != 2 {
		t.Fatal(modules, err)
	}
	began := time.Now()
	got, err := modules[0].Functions["get"](context.Background(), []any{"key", 1.})
	if err != nil || len(got) != 2 || got[0] != "key" || time.Since(began) < time.Millisecond {
		t.Error(got, err)
	}
	for _, name := range []string{"get", ".get", "cache."} {
		if _, err := standInModules(map[string]time.Duration{name: 0}); err == nil {
			t.Errorf("%q is a function", name)
		}
	}
}

// adviceFor makes a report with a rate for each pool and batch.
func adviceFor(rates map[string]float64, batches map[int]float64) Advice {
	plan := QuickPlan(2)
	r := &Report{Plan: plan, Script: "dir/x.lua", Sample: &Sample{Events: 9, Tried: 9}}
	measured := func(s Setup, rate float64) Measurement {
		m := Measurement{Setup: s}
		for _, more := range []float64{0, 1, 2} {
			m.Rounds = append(m.Rounds, Reading{Events: uint64(rate + more), Took: time.Second})
		}
		m.summarize()
		return m
	}
	columns := plan.columns()
	for _, column := range columns[:len(plan.Goroutines)] {
		for _, s := range column {
			rate := rates[s.Pool]
			if s.Goroutines == 1 {
				rate /= 2
			}
			r.Pools = append(r.Pools, measured(s, rate))
		}
	}
	for _, s := range columns[len(columns)-1] {
		r.Batches = append(r.Batches, measured(s, batches[s.Batch]))
	}
	return advise(r)
}

func TestAdvice(t *testing.T) {
	even := map[string]float64{"adaptive": 1000, "fixed 2": 990, "fixed 8": 1020, "scaling 2 to 8": 900, "per call": 10}
	flat := map[int]float64{1: 1000, 100: 1000, 1000: 1000}
	for _, test := range []struct {
		name    string
		rates   map[string]float64
		batches map[int]float64
		yaml    string
	}{
		{"all alike", even, flat, "pipelines:\n  NAME:\n    script: x.lua\n    lanes: 8\n"},
		{
			"one pool is better", map[string]float64{"adaptive": 1000, "fixed 8": 1500}, flat,
			"pipelines:\n  NAME:\n    script:\n      lua: x.lua\n      pool: {core: 8, max: 8}\n    lanes: 8\n",
		},
		{
			"one eager pool is better", map[string]float64{"adaptive": 1000, "scaling 2 to 8": 1500}, flat,
			"pipelines:\n  NAME:\n    script:\n      lua: x.lua\n      pool: {core: 2, max: 8, eager: true}\n    lanes: 8\n",
		},
		{"small batches are better", even, map[int]float64{1: 100, 100: 1000, 1000: 500}, "pipelines:\n  NAME:\n    script: x.lua\n    lanes: 8\n    batch: {events: 100}\n"},
	} {
		if got := adviceFor(test.rates, test.batches).YAML; got != test.yaml {
			t.Errorf("%s:\n%s", test.name, got)
		}
	}
}

// TestSetups lists the setups of a plan: pools for each number of goroutines, then numbers of cores
// and sizes of batches, each varied alone.
func TestSetups(t *testing.T) {
	var got []string
	for _, column := range QuickPlan(2).columns() {
		for _, s := range column {
			got = append(got, fmt.Sprintf("%s, %d goroutines, %d cores, batches of %d", s.Pool, s.Goroutines, s.Cores, s.Batch))
		}
	}
	var want []string
	for _, goroutines := range []int{1, 8, 32} {
		for _, p := range []string{"adaptive", "fixed 2", "fixed 8", "scaling 2 to 8", "per call"} {
			want = append(want, fmt.Sprintf("%s, %d goroutines, 2 cores, batches of 100", p, goroutines))
		}
	}
	want = append(want,
		"adaptive, 8 goroutines, 1 cores, batches of 100", "adaptive, 8 goroutines, 2 cores, batches of 100",
		"adaptive, 8 goroutines, 2 cores, batches of 1", "adaptive, 8 goroutines, 2 cores, batches of 100", "adaptive, 8 goroutines, 2 cores, batches of 1000")
	if !slices.Equal(got, want) {
		t.Errorf("quick:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if full := FullPlan(8); !slices.Equal(full.Goroutines, []int{1, 8, 32, 128, 512}) || !slices.Equal(full.Cores, []int{1, 2, 4, 8}) || !slices.Equal(full.Batches, []int{1, 10, 100, 1000}) {
		t.Errorf("full: %+v", full)
	}
	if one := QuickPlan(1); !slices.Equal(one.Goroutines, []int{1, 4, 16}) || !slices.Equal(one.Cores, []int{1}) {
		t.Errorf("on one core: %+v", one)
	}
}

// TestProgress counts the steps of a run. Each is reported before it is done.
func TestProgress(t *testing.T) {
	var got []string
	r := trialRun{Trial: &Trial{Progress: func(done, total int, doing string) {
		got = append(got, fmt.Sprintf("%d of %d: %s", done, total, doing))
	}}, total: 2}
	r.reportProgress(Setup{Pool: "shared", Goroutines: 2, Cores: 1, Batch: 100})
	r.reportProgress(Setup{Pool: "shared", Goroutines: 4, Cores: 1, Batch: 100})
	want := []string{
		"0 of 2: pool shared, 2 goroutines, 1 cores, batches of 100",
		"1 of 2: pool shared, 4 goroutines, 1 cores, batches of 100",
	}
	if !slices.Equal(got, want) {
		t.Errorf("progress %q, want %q", got, want)
	}
}

func TestPlanFits(t *testing.T) {
	p := FullPlan(4)
	p.limitBatches(time.Millisecond)
	if p.Batch != 20 || len(p.Batches) != 3 || p.Batches[2] != 20 {
		t.Errorf("batches of %d and %v for events of a millisecond", p.Batch, p.Batches)
	}
	p.limitBatches(time.Second)
	if p.Batch != 1 || len(p.Batches) != 1 {
		t.Errorf("batches of %d and %v for events of a second", p.Batch, p.Batches)
	}
	for _, s := range p.pools() {
		if s.String() == (pool.Settings{}).String() && s != (pool.Settings{}) {
			t.Errorf("two pools are called %v", s)
		}
	}
}

func TestNumbers(t *testing.T) {
	for got, want := range map[string]string{
		Whole(1234567): "1,234,567", Whole(12): "12", Short(999.6e3): "1.00 M", Short(12345): "12.3 k", Short(1234): "1,234",
		Short(3.14159): "3.14", Time(999): "999 ns", Time(1500): "1.50 µs", Time(2 * time.Minute): "120 s", Memory(5e6): "5.00 MB",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestLinesOfTheScript: lines of the script get its short name and their text; those that it does
// not have, and those of other files, stay as they are.
func TestLinesOfTheScript(t *testing.T) {
	for _, test := range []struct {
		file   string
		line   int
		source string // "" if the line is not in the script
	}{
		{"/x/y/script.lua", 1, "first"}, {"...y/script.lua", 2, "second"}, {"/x/y/script.lua", 3, "third"},
		{"/x/y/script.lua", 0, ""}, {"/x/y/script.lua", 4, ""}, {"/x/y/other.lua", 1, ""},
	} {
		c := Compilation{Uncovered: []Uncovered{{File: test.file, Line: test.line}}}
		c.addSource("/x/y/script.lua", []byte("first\n\tsecond \nthird"))
		want := Uncovered{File: test.file, Line: test.line}
		if test.source != "" {
			want.File, want.Source = "script.lua", test.source
		}
		if got := c.Uncovered[0]; got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

// TestValuesOfMachine reads files as Linux has them: the first line with the key counts.
func TestValuesOfMachine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	const lines = "processor\t: 0\nmodel name\t: A: 3 GHz \nmodel\nflags\t:\n\nprocessor\t: 1\nmodel name\t: B\nNAME=\"x\"\nPRETTY_NAME=\"x 1=2\"\n"
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ file, key, separator, want string }{
		{file, "model name", ":", "A: 3 GHz"},
		{file, "processor", ":", "0"},
		{file, "model", ":", ""}, // has no separator
		{file, "flags", ":", ""},
		{file, "PRETTY_NAME", "=", `"x 1=2"`},
		{file, "none", ":", ""},
		{file + " that is not there", "processor", ":", ""},
	} {
		if got := value(test.file, test.key, test.separator); got != test.want {
			t.Errorf("%s of %s is %q, want %q", test.key, test.file, got, test.want)
		}
	}
}

// TestAdviceOnFailures says how many events of the sample fail, and where the first is.
func TestAdviceOnFailures(t *testing.T) {
	for _, test := range []struct {
		failed int
		want   string
	}{
		{0, ""},
		{2, "2 of 9 events fail and would become dead letters. The first is on line 7: boom."},
		{9, "Every event of the sample fails (line 7: boom)"},
	} {
		a := adviser{report: &Report{Sample: &Sample{Tried: 9, Failed: test.failed, Line: 7, Fault: "boom"}}}
		a.adviseFailures()
		if got := strings.Join(a.Words, " "); !strings.HasPrefix(got, test.want) || (test.want == "") != (got == "") {
			t.Errorf("%d of 9: %q", test.failed, got)
		}
	}
}

// TestSampleIsClosed: the file that the sample is written to does not stay open.
func TestSampleIsClosed(t *testing.T) {
	sample, err := ReadSample("x", strings.NewReader("{\"a\":1}\n{\"a\":2}\n"))
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	r := &trialRun{Trial: &Trial{Sample: sample}, sample: filepath.Join(folder, "sample.ndjson")}
	leaktest.Closed(t, folder, func() {
		if err := r.writeSample(); err != nil {
			t.Fatal(err)
		}
	})
	if text, err := os.ReadFile(r.sample); err != nil || string(text) != "{\"a\":1}\n{\"a\":2}\n" {
		t.Errorf("written: %q, %v", text, err)
	}
}
