package compare_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/perigeedb/perigee/engine"
	"github.com/perigeedb/perigee/engine/compare"
	"github.com/perigeedb/perigee/engine/trial"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/lua"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/postgres"
	"github.com/perigeedb/perigee/sink/stdout"
	"github.com/perigeedb/perigee/source"
	"github.com/perigeedb/perigee/source/generate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Sinks of the pipelines under test.
const (
	documents = "    sink: {stdout: {}}\n"
	columns   = `    sink:
      postgres:
        user: u
        database: d
        table: t
        columns:
          - {name: id, type: int64}
          - {name: d, type: decimal}
          - {name: s, type: string}
          - {name: at, type: timestamp}
          - {name: j, type: json}
          - {name: deep, field: user.name, type: string}
`
	routed = "    sinks:\n      all: {stdout: {}}\n      audit: {stdout: {}, routed: true}\n"
)

func load(t *testing.T, name, code, sinks string) *trial.Pipeline {
	t.Helper()
	return loadWith(t, name, code, sinks, true)
}

func loadWith(t *testing.T, name, code, sinks string, documents bool) *trial.Pipeline {
	t.Helper()
	opts := engine.Options{
		Kinds: engine.Kinds{
			Sources: []source.Kind{generate.Kind()}, Sinks: []sink.Kind{postgres.Kind(), stdout.Kind()}, Languages: []script.Language{lua.Language()},
		},
		Lookup: func(string) (string, bool) { return "", false },
	}
	text := "data: " + t.TempDir() + "\npipelines:\n  p:\n    source: {generate: {events: 1}}\n    script: {lua: missing.lua, output: 64KiB}\n" + sinks
	file := filepath.Join(t.TempDir(), "p.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := engine.Load(t.Context(), file, opts)
	if err != nil {
		t.Fatal(err)
	}
	p, err := trial.Load(t.Context(), c, "", opts, trial.Options{Code: &script.Code{Name: name, Text: []byte(code)}, Documents: documents})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func sideOf(name string, p *trial.Pipeline) compare.Side {
	return compare.Side{Name: name, Script: p.Code.Name, Runner: p}
}

// run compares two versions on events.
func run(t *testing.T, before, after, sinks string, events ...string) *compare.Report {
	t.Helper()
	old := load(t, "HEAD:s.lua", before, sinks)
	c := compare.New(sideOf("HEAD:s.lua", old), sideOf("s.lua", load(t, "s.lua", after, sinks)), old.Compared())
	for _, e := range events {
		if err := c.Add(t.Context(), []byte(e)); err != nil {
			t.Fatal(err)
		}
	}
	r, err := c.Report(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// runReady compares results of two versions that are there. Without documents, those of sinks that read
// only columns are empty.
func runReady(t *testing.T, before, after, sinks string, documents bool, events ...string) *compare.Report {
	t.Helper()
	var sides [2]compare.Side
	var results [2]*event.Result
	var described []compare.Sink
	in := event.Batch{Partition: "p", Range: event.Range{First: 1000, Count: uint64(len(events))}}
	for _, e := range events {
		in.Append([]byte(e))
	}
	for i, code := range []string{before, after} {
		name := [2]string{"HEAD:s.lua", "s.lua"}[i]
		p := loadWith(t, name, code, sinks, documents)
		sides[i], described = compare.Side{Name: name, Script: name}, p.Compared()
		results[i] = &event.Result{}
		err := p.Run(t.Context(), &in, func(part *event.Batch, res *event.Result) error {
			if part.Len() != in.Len() {
				t.Fatal("a limit ended the run")
			}
			for k := range res.Outputs {
				described[k].ColumnsOnly = !documents && res.Outputs[k].Columns != nil
				if described[k].ColumnsOnly {
					clear(res.Outputs[k].Data)
				}
			}
			results[i].CopyEvents(res, &in, 0, in.Len())
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	c := compare.New(sides[0], sides[1], described)
	c.AddResults(&in, results, [2]time.Duration{time.Second, 2 * time.Second}, 7)
	r := c.Result()
	if r.Versions[0].Seconds != 1 || r.Versions[1].Seconds != 2 || r.Versions[1].Memory != 7 {
		t.Errorf("the versions are %+v", r.Versions)
	}
	return r
}

// describe returns the groups with their first examples.
func describe(r *compare.Report) (all []string) {
	for i := range r.Groups {
		g := &r.Groups[i]
		all = append(all, fmt.Sprintf("%s: %d: %d|%s|%s", g.Title(), g.Events, g.Examples[0].Event, g.Examples[0].Old, g.Examples[0].New))
	}
	return all
}

func body(code string) string { return "function main(event)\n" + code + "\nend" }

func TestDifferences(t *testing.T) {
	for _, c := range []struct {
		name, sinks   string
		before, after string
		events        []string
		want          []string
	}{
		{"the same", documents, "return event", "return event", []string{`{"a":1}`, `no`}, nil},
		{"the same value, spelled differently", documents, "event.x = 1 return event", `event = {x = 1.0, l = {2}} return event`, []string{`{"l":[2.0]}`}, nil},
		{"order of fields", documents, "return {json = 1, a = event.a}", "return event", []string{`{"a":{"x":1,"y":2},"json":1}`}, nil},
		{"changed", documents, "return event", "event.a = event.a + 1 return event", []string{`{"a":1}`, `{"a":2}`},
			[]string{"`a` changed: 2: 1|1|2"}},
		{"added and removed", documents, "event.old = true return event", `event.new = "x" return event`, []string{`{"a":1}`},
			[]string{"`new` added: 1: 1||\"x\"", "`old` removed: 1: 1|true|"}},
		{"type", documents, "return event", "event.a = tostring(event.a) return event", []string{`{"a":1}`},
			[]string{"`a` type changed (number → string): 1: 1|1|\"1\""}},
		{"nested", documents, "return event", "event.u.n.x = 2 event.l[2].y = 3 return event", []string{`{"u":{"n":{"x":1}},"l":[{"y":1},{"y":1}]}`},
			[]string{"`l[].y` changed: 1: 1|1|3", "`u.n.x` changed: 1: 1|1|2"}},
		{"longer list", documents, "return event", "event.l[3] = 3 return event", []string{`{"l":[1,2]}`}, []string{"`l` changed: 1: 1|[1,2]|[1,2,3]"}},
		{"dropped", documents, "if event.a == 1 then return nil end return event", "if event.a == 2 then return nil end return event", []string{`{"a":1}`, `{"a":2}`, `{"a":3}`},
			[]string{"now dropped: 1: 2|{\"a\":2}|dropped", "no longer dropped: 1: 1|dropped|{\"a\":1}"}},
		{"dead", documents, "return event", "\n\nif event.a > 1 then error('bad ' .. event.a) end return event", []string{`{"a":1}`, `{"a":2}`, `{"a":3}`},
			[]string{"now dead: `bad 2`: 2: 2|{\"a\":2}|dead: bad 2"}},
		{"alive", documents, "error('x')", "return event", []string{`{"a":1}`}, []string{"no longer dead: `x`: 1: 1|dead: x|{\"a\":1}"}},
		{"dead in another line", documents, "error('x')", "\n\n\nerror('x')", []string{`{"a":1}`}, nil},
		{"dead for another reason", documents, "error('x')", "error('y')", []string{`{"a":1}`},
			[]string{"dead for another reason: `x → y`: 1: 1|dead: x|dead: y"}},
		{"more rows", documents, "return event", "return event, {b = 1}", []string{`{"a":1}`}, []string{"new rows: 1: 1||{\"b\":1}"}},
		{"a row before the others", documents, "return event", "return {b = 1}, event", []string{`{"a":1}`}, []string{"new rows: 1: 1||{\"b\":1}"}},
		{"fewer rows", documents, "return event, {b = 1}", "return event", []string{`{"a":1}`}, []string{"fewer rows: 1: 1|{\"b\":1}|"}},
		{"routed", routed, "return event", `return to("audit", event), event`, []string{`{"a":1}`}, []string{"new rows in audit: 1: 1||{\"a\":1}"}},
		{"every sink of a document", routed, `return to("audit", event), event`, `event.a = 2 return to("audit", event), event`, []string{`{"a":1}`},
			[]string{"`a` changed: 1: 1|1|2"}},

		{"columns", columns, "return event", "event.s = 'y' event.at = nil event.d = 2.5 return event", []string{`{"id":1,"s":"x","at":"2026-01-02T03:04:05Z"}`},
			[]string{"`at` removed: 1: 1|\"2026-01-02T03:04:05Z\"|", "`d` added: 1: 1||2.5", "`s` changed: 1: 1|\"x\"|\"y\""}},
		{"stored as before", columns, "return event", "event.at = '2026-01-02T04:04:05+01:00' event.further = 1 return event", []string{`{"at":"2026-01-02T03:04:05Z"}`},
			[]string{"`at` changed, stored as before: 1: 1|\"2026-01-02T03:04:05Z\"|\"2026-01-02T04:04:05+01:00\"", "`further` added, stored as before: 1: 1||1"}},
		{"json in a column", columns, "return event", "event.j.a = 2 return event", []string{`{"j":{"a":1}}`}, []string{"`j.a` changed: 1: 1|1|2"}},
		{"a field in a field", columns, "return event", "event.user.name = 'y' return event", []string{`{"user":{"name":"x"}}`}, []string{"`deep` changed: 1: 1|\"x\"|\"y\""}},
		{"now rejected by a column", columns, "return event", "event.id = 'many' return event", []string{`{"id":1}`},
			[]string{"now dead: `column id wants int64, got \"many\"`: 1: 1|{\"id\":1,\"d\":null,"}},
		{"a rejected row among others", columns, "return {id = 1}, {id = 2}, {id = 3}", "return {id = 1}, {id = 'x'}, {id = 4}", []string{`{}`},
			[]string{"now dead: ", "`id` changed: 1: 1|3|4"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := run(t, body(c.before), body(c.after), c.sinks, c.events...)
			got := describe(r)
			if len(got) != len(c.want) {
				t.Fatalf("got %q, want %q", got, c.want)
			}
			for i := range got {
				if !strings.HasPrefix(got[i], c.want[i]) {
					t.Errorf("got %s, want %s", got[i], c.want[i])
				}
			}
			if ready := describe(runReady(t, body(c.before), body(c.after), c.sinks, true, c.events...)); !slices.Equal(ready, got) {
				t.Errorf("results that are ready give %q, runs give %q", ready, got)
			}
			stored := slices.DeleteFunc(slices.Clone(got), func(group string) bool { return strings.Contains(group, "stored as before") })
			if ready := describe(runReady(t, body(c.before), body(c.after), c.sinks, false, c.events...)); !slices.Equal(ready, stored) {
				t.Errorf("results without documents give %q, runs give %q", ready, stored)
			}
			if r.Same() != (len(c.want) == 0) || r.Events != uint64(len(c.events)) {
				t.Errorf("%d of %d events differ", r.Different, r.Events)
			}
		})
	}
}

// TestManyBatches compares more events than a batch has, and counts the results of each version. A
// limit ends some runs early.
func TestManyBatches(t *testing.T) {
	var events []string
	for i := range 5000 {
		events = append(events, fmt.Sprintf(`{"n":%d,"text":%q}`, i, strings.Repeat("x", 40)))
	}
	before := "if event.n % 100 == 1 then return nil end return event"
	after := "if event.n % 100 == 2 then error('no') end if event.n % 100 == 1 then return nil end event.text = event.text .. event.text return event"
	r := run(t, body(before), body(after), documents, events...)
	want := []string{"now dead: `no`: 50: 3|", "`text` changed: 4900: 1|"}
	if got := describe(r); len(got) != 2 || !strings.HasPrefix(got[0], want[0]) || !strings.HasPrefix(got[1], want[1]) {
		t.Errorf("got %q, want %q", got, want)
	}
	if r.Events != 5000 || r.Different != 4950 {
		t.Errorf("%d of %d differ", r.Different, r.Events)
	}
	a, b := r.Versions[0], r.Versions[1]
	if a.Rows != 4950 || a.Dropped != 50 || a.Dead != 0 || b.Rows != 4900 || b.Dropped != 50 || b.Dead != 50 {
		t.Errorf("versions are %+v", r.Versions)
	}
	for _, v := range r.Versions {
		if v.Seconds <= 0 || v.Memory <= 0 {
			t.Errorf("%s took %v s and %d bytes", v.Name, v.Seconds, v.Memory)
		}
	}
}

// TestSameClock: a version sees the time that the other sees.
func TestSameClock(t *testing.T) {
	code := body(`event.at = require("time").now() return event`)
	if r := run(t, code, "-- later\n"+code, documents, `{}`, `{}`); !r.Same() {
		t.Errorf("got %q", describe(r))
	}
}

// TestBounds gives a comparison more kinds of differences than it keeps, and long ones.
func TestBounds(t *testing.T) {
	var events []string
	for i := range 300 {
		events = append(events, fmt.Sprintf(`{"k%d":1}`, i))
	}
	long := fmt.Sprintf(`{"%s":"%s"}`, strings.Repeat("ü", 5000), strings.Repeat("é", 9000))
	r := run(t, body("return event"), body("for k, v in pairs(event) do event[k] = {v} end return event"), documents, append([]string{long}, events...)...)
	if len(r.Groups) != 100 || r.Different != 301 || r.Omitted != 201 {
		t.Errorf("%d groups, %d different, %d omitted", len(r.Groups), r.Different, r.Omitted)
	}
	for _, g := range r.Groups {
		for _, text := range []string{g.Field, g.Examples[0].Old, g.Examples[0].New} {
			if len(text) > 2<<10 || !utf8.ValidString(text) {
				t.Errorf("a text has %d bytes", len(text))
			}
		}
	}
	var wide strings.Builder
	for i := range 4_000 {
		fmt.Fprintf(&wide, `,"w%d":%d`, i, i)
	}
	reversed := body("local all, n = {}, 0 for k, v in pairs(event) do n = n + 1 all[n] = k end local r = {} for i = n, 1, -1 do r[all[i]] = event[all[i]] end return r")
	r = run(t, body("return event"), reversed, documents, "{"+wide.String()[1:]+"}")
	if !r.Same() || r.Versions[0].Rows != 1 || r.Versions[1].Rows != 1 {
		t.Errorf("an object in another order: %+v, %q; want a row of each version, and no difference", r.Versions, describe(r))
	}
}

const hostile = `{"a":"\u001b[2J</td><script>alert(1)</script>\u202e"}`

// hostileReport has events that try to steer a terminal and to run code in a page.
func hostileReport(t *testing.T) *compare.Report {
	return run(t, body("return event"), body("event['<b>' .. event.a] = event.a if event.x then error(event.a) end return event"), documents,
		hostile, strings.Replace(hostile, "{", `{"x":1,`, 1))
}

func TestText(t *testing.T) {
	var plain, coloured bytes.Buffer
	r := hostileReport(t)
	r.Versions[0].Name = strings.Repeat("n", 100)
	if err := r.WriteText(&plain, false); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteText(&coloured, true); err != nil {
		t.Fatal(err)
	}
	escapes := regexp.MustCompile("\x1b\\[[0-9]+m")
	if got := escapes.ReplaceAllString(coloured.String(), ""); got != plain.String() || got == coloured.String() {
		t.Errorf("colours change the text: %s", cmp.Diff(plain.String(), got))
	}
	if strings.ContainsAny(plain.String(), "\x1b\u202e") {
		t.Errorf("text steers the terminal: %q", plain.String())
	}
	for line := range strings.Lines(plain.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 || strings.HasSuffix(line, " \n") {
			t.Errorf("line of %d columns: %q", n, line)
		}
	}
	if !strings.HasPrefix(plain.String(), "2 events, 2 differ (all)\n\nnow dead: ") {
		t.Errorf("text is %s", &plain)
	}
}

// TestFocus: of two long values, the difference is visible.
func TestFocus(t *testing.T) {
	r := run(t, body("return event"), body("event.a = event.a .. '?' return event"), documents, `{"a":"`+strings.Repeat("long ", 50)+`"}`)
	var b strings.Builder
	if err := r.WriteText(&b, false); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), ` long "  `) || !strings.Contains(b.String(), ` long ?"`) {
		t.Errorf("the difference is not visible:\n%s", &b)
	}
}

func TestHTML(t *testing.T) {
	var b bytes.Buffer
	if err := hostileReport(t).WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	style := regexp.MustCompile(`(?s)<style>(.*)</style>`).FindStringSubmatch(page)
	if style == nil {
		t.Fatal("the page has no style")
	}
	sum := sha256.Sum256([]byte(style[1]))
	policy := "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'"
	escaped := strings.NewReplacer("&#39;", "'", "&#43;", "+").Replace(page)
	if !strings.Contains(escaped, `<meta http-equiv="Content-Security-Policy" content="`+policy+`">`) {
		t.Errorf("the policy is not %s", policy)
	}
	for _, bad := range []string{"<script", "<b>", "\x1b", "\u202e", "http:", "https:", "src=", "href=", "url("} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	if !strings.Contains(page, "&lt;script&gt;alert(1)&lt;/script&gt;") {
		t.Error("the page does not show the events")
	}
}
