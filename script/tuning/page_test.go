package tuning

import (
	"encoding/json"
	"fmt"
	"html"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// reportOf makes up a report in which no two figures are alike.
func reportOf(t *testing.T, plan Plan) *Report {
	t.Helper()
	sample, err := ReadSample("<sample>.ndjson", strings.NewReader("{\"a\":1}\n\n{\"a\":2}\n"))
	if err != nil {
		t.Fatal(err)
	}
	sample.Tried, sample.Failed, sample.Fault, sample.Line = 2, 1, "script: x.lua:3: <nil> & co", 3
	r := &Report{
		Script: "/x/ex.lua", Version: "ex.lua@1", Command: "perigee bench ex.lua", Began: time.Unix(1.8e9, 0).UTC(),
		Sample: sample, Plan: plan, Slice: time.Second, Machine: Machine{Processor: "a processor", Cores: 2, Memory: 1 << 34},
		Compilation: &Compilation{Traces: 7, Uncovered: []Uncovered{{File: "ex.lua", Line: 4, Reason: "NYI: </script>", Plain: "makes <functions>", Count: 3}}},
	}
	n := 0
	columns := plan.columns()
	for i, column := range columns {
		for _, setup := range column {
			n++
			m := Measurement{Setup: setup, Rounds: []Reading{readingOf(n, 1), readingOf(n, 2), readingOf(n, 4)}}
			m.summarize()
			switch i {
			case len(columns) - 2:
				r.Cores = append(r.Cores, m)
			case len(columns) - 1:
				r.Batches = append(r.Batches, m)
			default:
				r.Pools = append(r.Pools, m)
			}
		}
	}
	r.Advice = advise(r)
	return r
}

func readingOf(n, round int) Reading {
	d := time.Duration(1000*n + round)
	return Reading{
		Events: uint64(1e6*n + 1000*round), Runs: 10, Took: time.Second, CPU: time.Second + d, Bytes: uint64(n * 777),
		Allocs: uint64(n * 33), Peak: uint64(n+round) << 20, Added: uint64(n+round) << 18, VMs: n, WaitTime: 10 * d,
		P50: 2 * d, P90: 3 * d, P99: 5 * d, Max: 7 * d,
	}
}

func pageOf(t *testing.T, r *Report) string {
	t.Helper()
	var text strings.Builder
	if err := r.WritePage(&text); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// TestPageHoldsWhatWasMeasured reads the numbers back from the page: the JSON, each
// cell of each table and each point of each plot.
func TestPageHoldsWhatWasMeasured(t *testing.T) {
	for _, plan := range []Plan{QuickPlan(2), FullPlan(4)} {
		r := reportOf(t, plan)
		text := pageOf(t, r)

		embedded := regexp.MustCompile(`(?s)<script type="application/json" id="report">(.*?)</script>`).FindStringSubmatch(text)
		var back Report
		if err := json.Unmarshal([]byte(embedded[1]), &back); err != nil {
			t.Fatal(err)
		}
		unexported := cmpopts.IgnoreUnexported(Sample{})
		settings := cmpopts.IgnoreFields(Setup{}, "Settings")
		if diff := cmp.Diff(r, &back, unexported, settings); diff != "" {
			t.Errorf("the JSON is not the report:\n%s", diff)
		}
		for i := range back.Pools {
			again := back.Pools[i]
			again.Summary = Summary{}
			again.summarize()
			if diff := cmp.Diff(r.Pools[i].Summary, again.Summary); diff != "" {
				t.Errorf("the rounds do not come to the summary:\n%s", diff)
			}
		}

		var want [][]string
		for _, all := range [][]Measurement{r.Pools, r.Cores, r.Batches} {
			for _, m := range all {
				want = append(want, figures(m))
			}
		}
		if diff := cmp.Diff(want, cells(text)); diff != "" {
			t.Errorf("the tables are not the report:\n%s", diff)
		}
		if diff := cmp.Diff(pointsOf(r), drawn(text)); diff != "" {
			t.Errorf("the plots are not the report:\n%s", diff)
		}
	}
}

// TestPageGroupsRows: a row begins a group when its number of goroutines is not that of the row
// above.
func TestPageGroupsRows(t *testing.T) {
	text := pageOf(t, reportOf(t, QuickPlan(2)))
	var got []string
	for _, row := range regexp.MustCompile(`(?s)<tr class="first"><td[^>]*>(.*?)</td><td[^>]*>(.*?)</td>`).FindAllStringSubmatch(text, -1) {
		got = append(got, row[1]+", "+row[2])
	}
	if diff := cmp.Diff([]string{"adaptive, 8", "adaptive, 32"}, got); diff != "" {
		t.Errorf("rows that begin a group (-want +got):\n%s", diff)
	}
}

// cells are the figures in the tables of the page, without what they belong to.
func cells(text string) (rows [][]string) {
	tables := regexp.MustCompile(`(?s)<table class="figures">.*?</table>`).FindAllString(text, -1)
	row, cell := regexp.MustCompile(`(?s)<tr.*?</tr>`), regexp.MustCompile(`<td[^>]*>(.*?)</td>`)
	for _, table := range tables {
		for _, one := range row.FindAllString(table, -1)[1:] {
			var figures []string
			for _, c := range cell.FindAllStringSubmatch(one, -1) {
				figures = append(figures, html.UnescapeString(c[1]))
			}
			rows = append(rows, figures[len(figures)-len(figureHeads):])
		}
	}
	return rows
}

// drawn are the points of the plots, without their order.
func drawn(text string) map[string]int {
	points := map[string]int{}
	for _, p := range regexp.MustCompile(`data-x="([^"]*)" data-y="([^"]*)"`).FindAllStringSubmatch(text, -1) {
		points[p[1]+" "+p[2]]++
	}
	return points
}

// pointsOf are those that the figures demand.
func pointsOf(r *Report) map[string]int {
	points := map[string]int{}
	add := func(x int, ys ...any) {
		for _, y := range ys {
			points[fmt.Sprintf("%d %v", x, y)]++
		}
	}
	times := func(x int, s Summary) {
		add(x, float64(s.P50), float64(s.P90), float64(s.P99), float64(s.Max))
	}
	for _, m := range r.Pools {
		s := m.Summary
		add(m.Goroutines, s.Rate.Median, float64(s.P99), float64(s.Added)/1e6, s.CPU)
		if m.Pool == "adaptive" {
			times(m.Goroutines, s)
		}
	}
	for _, m := range r.Cores {
		add(m.Cores, m.Summary.Rate.Median)
	}
	for _, m := range r.Batches {
		add(m.Batch, m.Summary.Rate.Median)
		times(m.Batch, m.Summary)
	}
	return points
}

func TestPageIsWhole(t *testing.T) {
	text := pageOf(t, reportOf(t, QuickPlan(2)))
	for _, foreign := range []string{"<link", " src=", "@import", "url(", "http://", "https://"} {
		if strings.Contains(text, foreign) {
			t.Errorf("the page asks for something else: %s", foreign)
		}
	}
	for _, said := range []string{"makes &lt;functions&gt;", "NYI: &lt;/script&gt;", "&lt;sample&gt;.ndjson", "&lt;nil&gt; &amp; co", "a processor, 2 cores", "perigee bench ex.lua"} {
		if !strings.Contains(text, said) {
			t.Errorf("the page does not say %s", said)
		}
	}
	if n := strings.Count(text, "</script>"); n != 1 {
		t.Errorf("%d scripts end in the page", n)
	}
	if strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
		t.Error("the page has NaN or Inf")
	}
}
