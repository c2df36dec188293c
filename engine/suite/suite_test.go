package suite_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/perigeedb/perigee/engine"
	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/engine/suite"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/lua"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/postgres"
	"github.com/perigeedb/perigee/sink/stdout"
	"github.com/perigeedb/perigee/source"
	"github.com/perigeedb/perigee/source/generate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const pipelineText = `
data: state
pipelines:
  mails:
    source: {generate: {events: 1}}
    script: mail.lua
    computed: [{name: seen, type: timestamp, func: "make://timestamp"}]
    sinks:
      db:
        postgres:
          user: u
          password: ${PASSWORD}
          database: d
          table: t
          columns:
            - {name: email, type: string, required: true}
            - {name: domain, type: string}
            - {name: n, type: int64}
            - {name: price, type: decimal}
            - {name: seen, type: timestamp}
            - {name: tags, type: json}
      audit: {stdout: {}, routed: true}
`

const scriptText = `
local log, time, geo = require "log", require "time", require "geo"

function domain_of(address)
  return address:match "@(.+)$"
end

function both(a, b) return b, a end

function main(event)
  if event.kind == "test" then
    log.info "dropped"
    return nil
  end
  if event.kind == "audit" then
    return to("audit", event)
  end
  if event.country then
    event.domain = geo.lookup(event.country)
    return event
  end
  event.domain = domain_of(event.email)
  if not event.domain then
    log.warn("no address:", event.email)
    error "no address"
  end
  return event
end
`

// project writes a configuration, its script and a test file, and returns the path of that.
func project(t *testing.T, cases string) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range map[string]string{"pipeline.yaml": pipelineText, "mail.lua": scriptText, "mail_test.yaml": cases} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(folder, "mail_test.yaml")
}

func settings() suite.Settings {
	return suite.Settings{Engine: engine.Options{
		Kinds: engine.Kinds{
			Sources: []source.Kind{generate.Kind()}, Sinks: []sink.Kind{postgres.Kind(), stdout.Kind()},
			Languages: []script.Language{lua.Language()},
			Modules: []script.Module{{Name: "geo", Functions: map[string]script.Func{
				"lookup": func(context.Context, []any) ([]any, error) { return []any{"real"}, nil },
			}}},
		},
		Lookup: func(string) (string, bool) { return "", false },
	}}
}

// runCases runs cases and returns the report as text, without times and folders.
func runCases(t *testing.T, path string, s suite.Settings) string {
	t.Helper()
	report, err := suite.Run(t.Context(), path, s)
	if err != nil {
		t.Fatalf("%v", err)
	}
	var out bytes.Buffer
	w := suite.NewWriter(&out, "text", false)
	if err := errors.Join(w.Report(report), w.Close()); err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(out.String(), filepath.Dir(path)+"/", "")
	return regexp.MustCompile(` \(\d[^)]*s\)\n`).ReplaceAllString(text, "\n")
}

// TestCases runs each kind of expectation, as it holds and as it does not. A text that begins with
// "ok" is the whole report; any other is what differs.
func TestCases(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"rows": {`events: [{email: a@b.c, n: 1, price: 2.50, tags: [1, {x: null}], more: 1}]
    now: 2026-11-22
    rows: {db: [{email: a@b.c, domain: b.c, n: 1.0, price: 2.5, seen: "2026-11-22 01:00:00+01:00", tags: [1, {x: null}]}]}`, "ok"},
		"a column differs": {`events: [{email: a@b.c, n: 1}]
    now: 2026-11-22
    rows:
      db:
        - {email: a@b.c, domain: b.d, n: "1"}`, `
  rows of db, row 1, domain (line 8)
    - "b.d"
    + "b.c"
  rows of db, row 1, n (line 8)
    - "1"
    + 1
  rows of db, row 1, seen (line 8)
    + "2026-11-22T00:00:00Z"`},
		"a subset": {`events: [{email: a@b.c, tags: {a: 1, b: [1, 2]}}]
    subset: true
    rows: {db: [{domain: b.c, tags: {b: [1, 2]}}]}`, "ok"},
		"a subset differs": {`events: [{email: a@b.c, tags: {a: 1, b: [1, 2]}}]
    subset: true
    rows: {db: [{n: null, tags: {b: [1], c: 1}}]}`, `
  rows of db, row 1, tags.b (line 6)
    - [1]
    + [1,2]
  rows of db, row 1, tags.c (line 6)
    - 1`},
		"rows are missing and left over": {`events: [{email: a@b.c}]
    rows: {db: [], audit: [{a: 1}]}
    now: 2026-11-22`, `
  rows of db, row 1 (line 5)
    + {"email":"a@b.c","domain":"b.c","n":null,"price":null,"seen":"2026-11-22T00:00:00Z","tags":null}
  rows of audit, row 1 (line 5)
    - {"a":1}`},
		"documents and routes": {`events: [{email: a@b.c}, {kind: audit, n: null}]
    now: 2026-11-22T10:00:00.5Z
    documents: [{email: a@b.c, domain: b.c, seen: "2026-11-22T10:00:00.500000Z"}, {kind: audit, n: null, seen: "2026-11-22T10:00:00.500000Z"}]
    routes: [db, audit]`, "ok"},
		"numbers beyond 64 bits are numbers": {`events: ['{"kind":"audit","a":123456789012345678901234567890,"b":-18446744073709551616,"c":[1e400],"d":"99999999999999999999"}']
    subset: true
    documents: [{a: 123456789012345678901234567890, b: -18446744073709551616, c: [1e400], d: "99999999999999999999"}]`, "ok"},
		"such numbers differ": {`events: [{kind: audit, a: 123456789012345678901234567890, b: "99999999999999999999"}]
    subset: true
    documents: [{a: 123456789012345678901234567891, b: 99999999999999999999}]`, `
  documents, row 1, a (line 6)
    - 123456789012345678901234567891
    + 123456789012345678901234567890
  documents, row 1, b (line 6)
    - 99999999999999999999
    + "99999999999999999999"`},
		"null in a document is a value": {`events: [{kind: audit, n: null}]
    subset: true
    documents: [{kind: audit, n: null, m: null}]`, `
  documents, row 1, m (line 6)
    - null`},
		"routes differ": {`events: [{kind: audit}, {kind: audit}, {email: a@b}]
    routes: {audit: 3}`, `
  routes, audit (line 5)
    - 3 rows
    + 2 rows
  routes, db (line 5)
    - no rows
    + 1 rows`},
		"no rows for a route": {`events: [{email: a@b}]
    routes: [audit, db]`, `
  routes, audit (line 5)
    - rows
    + no rows`},
		"dropped": {`events: [{kind: test}, {kind: test}]
    dropped: 2`, "ok"},
		"dropped differs": {`events: [{kind: test}]
    dropped: 0`, `
  dropped (line 5)
    - 0
    + 1`},
		"dead": {`events: [{email: x}, '{"a":', {email: a@b, n: many}, {kind: audit}]
    dead:
      - {stage: script, message: 'no address$'}
      - {stage: parse}
      - {stage: column, sink: db, message: n wants}
    routes: [audit]`, "ok"},
		"dead differs": {`events: [{email: x}, {email: y}]
    dead: [{stage: column, sink: db}]`, `
  dead letter 1 (line 5)
    - column of db
    + script: mail.lua:25: no address
  unexpected dead letter 2 (line 5)
    + script: mail.lua:25: no address`},
		"dead is missing": {`events: [{email: a@b}]
    dead: {message: x+}`, `
  dead letter 1 (line 5)
    - any stage: /x+/`},
		"an unexpected dead letter": {`events: [{email: x}]
    rows: {db: []}`, `
  unexpected dead letter 1
    + script: mail.lua:25: no address`},
		"log": {`events: [{kind: test}, {email: x}]
    dead: {}
    log: [{level: warn, message: "address:\\tx"}]`, "ok"},
		"log differs": {`events: [{kind: test}]
    log: [dropped, {level: error, message: dropped}]`, `
  log (line 5)
    - error /dropped/
    + info dropped`},
		"log must be empty": {`events: [{kind: test}]
    log: []`, `
  log (line 5)
    + info dropped`},
		"each": {`each: [{email: a@b.c}, {email: d@b.c}]
    subset: true
    rows: {db: [{domain: b.c}]}`, "ok"},
		"each differs": {`each:
      - {email: a@b.c}
      - {email: d@e.f}
    subset: true
    rows: {db: [{domain: b.c}]}`, `
  event 2 (line 6), rows of db, row 1, domain (line 8)
    - "b.c"
    + "e.f"`},
		"with": {`events: [{country: de}]
    subset: true
    with: {geo.lookup: DE}
    rows: {db: []}
    dead: {stage: column, message: email}`, "ok"},
		"with a module": {`events: [{country: de, email: a}]
    subset: true
    with: {geo: {lookup: DE}}
    rows: {db: [{domain: DE}]}`, "ok"},
		"fails": {`events: [{country: de, email: a}]
    fails: {geo.lookup: timeout}
    dead: {stage: script, message: 'geo.lookup: timeout'}`, "ok"},
		"call":      {`call: {function: domain_of, arguments: [a@b.c], returns: b.c}`, "ok"},
		"call both": {`call: {function: both, arguments: [1, null], returns: [null, 1]}`, "ok"},
		"call differs": {`call: {function: both, arguments: [1, 2], returns: [1, 2]}`, `
  results of both, [1] (line 4)
    - 1
    + 2
  results of both, [2] (line 4)
    - 2
    + 1`},
		"call of nothing": {`call: {function: domain_of, arguments: [none], returns: null}`, "ok"},
		"call fails":      {`call: {function: domain_of, error: "attempt to index"}`, "ok"},
		"call does not fail": {`call: {function: domain_of, arguments: [x], error: attempt}`, `
  error of domain_of (line 4)
    - /attempt/`},
		"call of no function": {`call: {function: domain_off, returns: 1}`, `
  call of domain_off (line 4)
    - no error
    + the script has no function domain_off: define it as a global, without local, or return it in a table`},
	} {
		t.Run(name, func(t *testing.T) {
			path := project(t, "env: {PASSWORD: x}\ncases:\n  - name: a case\n    "+test.text+"\n")
			got := runCases(t, path, settings())
			want := "ok   mail_test.yaml: 1 case\n"
			if test.want != "ok" {
				want = "FAIL mail_test.yaml:3: a case" + test.want + "\nFAIL mail_test.yaml: 1 of 1 case failed\n"
			}
			if got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// TestStateBetweenCases runs cases that replace a function and freeze the clock before ones that do
// not.
func TestStateBetweenCases(t *testing.T) {
	path := project(t, `
env: {PASSWORD: x}
cases:
  - name: frozen
    now: 2001-01-01
    with: {geo.lookup: DE}
    events: [{country: x, email: a}]
    subset: true
    rows: {db: [{domain: DE, seen: 2001-01-01}]}
  - name: thawed
    events: [{country: x, email: a}]
    subset: true
    rows: {db: [{domain: real}]}
  - name: thawed clock
    events: [{country: x, email: a}]
    subset: true
    rows: {db: [{seen: 2001-01-01}]}
`)
	got := runCases(t, path, settings())
	if !strings.HasPrefix(got, "FAIL mail_test.yaml:14: thawed clock") || !strings.Contains(got, "1 of 3 cases failed") {
		t.Errorf("got\n%s", got)
	}
}

// TestFresh counts in a variable of a script that also logs while it is loaded, and whose folder is
// not that of the configuration.
func TestFresh(t *testing.T) {
	path := project(t, `
env: {PASSWORD: x}
cases:
  - {name: first, events: [{email: x}, {email: x}], subset: true, documents: [{n: 1}, {n: 2}], log: []}
  - {name: second, events: [{email: x}], subset: true, documents: [{n: 3}], log: []}
  - {name: fresh, fresh: true, events: [{email: x}], subset: true, documents: [{n: 1}], log: []}
  - {name: call, call: {function: count, returns: 1}}
  - {name: call again, call: {function: count, returns: 2}}
  - {name: call afresh, fresh: true, call: {function: count, returns: 1}, log: []}
  - {name: message, events: [{}], dead: {message: '^../shared/mail.lua:10: no email$'}}
`)
	folder := filepath.Dir(path)
	shared := filepath.Join(filepath.Dir(folder), "shared")
	code := `
print "loading"
local n = 0
function count() n = n + 1 return n end
function main(event)
  event.n = count()
  if event.email then
    return event
  end
  error "no email"
end
`
	err := errors.Join(os.MkdirAll(shared, 0o700), os.WriteFile(filepath.Join(shared, "mail.lua"), []byte(code), 0o600),
		os.WriteFile(filepath.Join(folder, "pipeline.yaml"), []byte(strings.Replace(pipelineText, "mail.lua", "../shared/mail.lua", 1)), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	if got := runCases(t, path, settings()); got != "ok   mail_test.yaml: 7 cases\n" {
		t.Errorf("got\n%s", got)
	}
}

// TestEventFiles reads events from a file with lines and from an array.
func TestEventFiles(t *testing.T) {
	path := project(t, `
env: {PASSWORD: x}
cases:
  - {name: lines, events: in/events.ndjson, dropped: 2}
  - {name: array, events: events.json, dropped: 2}
  - {name: each, each: in/events.ndjson, dropped: 1}
`)
	folder := filepath.Dir(path)
	if err := errors.Join(os.Mkdir(filepath.Join(folder, "in"), 0o700),
		os.WriteFile(filepath.Join(folder, "in/events.ndjson"), []byte("{\"kind\":\"test\"}\r\n\n{\"kind\":\"test\"}"), 0o600),
		os.WriteFile(filepath.Join(folder, "events.json"), []byte("[{\"kind\":\"test\"},\n {\"kind\":\"test\"}]"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if got := runCases(t, path, settings()); got != "ok   mail_test.yaml: 3 cases\n" {
		t.Errorf("got\n%s", got)
	}
}

// TestManyEvents runs more events than one batch of an engine has.
func TestManyEvents(t *testing.T) {
	path := project(t, "env: {PASSWORD: x}\ncases:\n  - {name: many, events: many.ndjson, dropped: 2500, routes: {db: 1}, snapshot: many.txt}\n")
	text := strings.Repeat("{\"kind\":\"test\"}\n", 2500) + "{\"email\":\"a@b\",\"country\":1}\n{\"email\":1}\n"
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), "many.ndjson"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := runCases(t, path, settings()); !strings.Contains(got, "wrote snapshot many.txt") || !strings.Contains(got, "ok   ") {
		t.Errorf("got\n%s", got)
	}
	written, err := os.ReadFile(filepath.Join(filepath.Dir(path), "many.txt"))
	if err != nil || !strings.Contains(string(written), "\ndead event 2502: script: mail.lua:5:") {
		t.Errorf("snapshot %.200s, %v", written, err)
	}
}

// TestSnapshot writes a snapshot, compares with it, and writes it again.
func TestSnapshot(t *testing.T) {
	path := project(t, `
env: {PASSWORD: x}
cases:
  - name: a snapshot
    now: 2026-11-22
    events: [{email: a@b.c}, {kind: test}, {email: x}, {kind: audit}]
    snapshot: snapshots/all.txt
`)
	file := filepath.Join(filepath.Dir(path), "snapshots/all.txt")
	frozen := settings()
	frozen.Frozen = true
	if got := runCases(t, path, frozen); !strings.Contains(got, "snapshot snapshots/all.txt (line 7)") || !strings.Contains(got, "does not exist") {
		t.Errorf("a missing snapshot in CI: got\n%s", got)
	}
	if got := runCases(t, path, settings()); got != "note mail_test.yaml:4: a snapshot: wrote snapshot snapshots/all.txt\nok   mail_test.yaml: 1 case\n" {
		t.Errorf("got\n%s", got)
	}
	want := `row db: {"email":"a@b.c","domain":"b.c","n":null,"price":null,"seen":"2026-11-22T00:00:00Z","tags":null}
row audit: {"kind":"audit","seen":"2026-11-22T00:00:00.000000Z"}
dead event 3: script: mail.lua:25: no address
log info dropped
log warn no address:	x
dropped: 1
`
	text, err := os.ReadFile(file)
	if err != nil || string(text) != want {
		t.Fatalf("snapshot is %v\n%s\nwant\n%s", err, text, want)
	}
	if got := runCases(t, path, frozen); got != "ok   mail_test.yaml: 1 case\n" {
		t.Errorf("got\n%s", got)
	}
	changed := strings.Replace(strings.Replace(want, `"b.c"`, `"old"`, 1), "dead event 3: script: mail.lua:25: no address\n", "", 1)
	if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := runCases(t, path, settings()); !strings.Contains(got, `    - row db: {"email":"a@b.c","domain":"old"`) || !strings.Contains(got, "+ dead event 3") || strings.Contains(got, "dropped: 1") {
		t.Errorf("got\n%s", got)
	}
	update := settings()
	update.Update = true
	if got := runCases(t, path, update); !strings.Contains(got, "wrote snapshot") {
		t.Errorf("got\n%s", got)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != want {
		t.Errorf("updated snapshot is %v\n%s", err, text)
	}
}

// TestRun selects cases by name.
func TestRun(t *testing.T) {
	path := project(t, "env: {PASSWORD: x}\ncases:\n  - {name: one, events: [{kind: test}], dropped: 1}\n  - {name: two, events: [{kind: test}], dropped: 2}\n")
	s := settings()
	s.Run = regexp.MustCompile("^on")
	if got := runCases(t, path, s); got != "ok   mail_test.yaml: 1 case\n" {
		t.Errorf("got\n%s", got)
	}
}

// TestFind finds test files in folders, each once.
func TestFind(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, path := range []string{"a_test.yaml", "b/c/d_test.yaml", "b/.git/e_test.yaml", "b/test.yaml", "b/x_test.yml"} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if files, err := suite.Find([]string{".", "b", "a_test.yaml"}); err != nil || !slices.Equal(files, []string{"a_test.yaml", "b/c/d_test.yaml"}) {
		t.Errorf("found %q, %v", files, err)
	}
	if _, err := suite.Find([]string{"none"}); err == nil {
		t.Error("a folder that does not exist was searched")
	}
}

// TestFormats reads each format as its readers do.
func TestFormats(t *testing.T) {
	path := project(t, `
env: {PASSWORD: x}
cases:
  - {name: "good # one", events: [{kind: test}], dropped: 1}
  - {name: "bad\e <one>", events: [{email: "a@b.c\u001b[31m"}], subset: true, rows: {db: [{domain: x}]}}
`)
	report, err := suite.Run(t.Context(), path, settings())
	if err != nil {
		t.Fatal(err)
	}
	write := func(format string, colour bool) string {
		var out bytes.Buffer
		w := suite.NewWriter(&out, format, colour)
		if err := errors.Join(w.Report(report), w.Fault("other_test.yaml", errors.New("no case")), w.Close()); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	var junit struct {
		Suites []struct {
			Tests    int `xml:"tests,attr"`
			Failures int `xml:"failures,attr"`
			Errors   int `xml:"errors,attr"`
			Cases    []struct {
				Name    string `xml:"name,attr"`
				Line    int    `xml:"line,attr"`
				Failure string `xml:"failure"`
				Error   string `xml:"error"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal([]byte(write("junit", false)), &junit); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%.60q", fmt.Sprint(junit.Suites[0].Tests, junit.Suites[0].Failures, junit.Suites[1].Errors, junit.Suites[0].Cases[1].Name, junit.Suites[0].Cases[1].Line, junit.Suites[1].Cases[0].Error)); got != "\"2 1 1bad\uFFFD <one>5no case\"" {
		t.Errorf("JUnit has %s", got)
	}
	if !strings.Contains(junit.Suites[0].Cases[1].Failure, `- "x"`) {
		t.Errorf("JUnit has the failure %q", junit.Suites[0].Cases[1].Failure)
	}
	tap := write("tap", false)
	for _, want := range []string{"TAP version 14\nok 1 - ", `good \# one`, "\nnot ok 2 - ", `bad\\x1b <one>`, "\n  ---\n  at: {file: ", "\nnot ok 3 - other_test.yaml: load\n", "\n1..3\n"} {
		if !strings.Contains(tap, want) {
			t.Errorf("TAP lacks %q:\n%s", want, tap)
		}
	}
	var whole struct {
		Passed, Failed int
		Cases          []struct {
			Name        string
			Passed      bool
			Line        int
			Differences []suite.Difference
		}
		Faults []struct{ File, Error string }
	}
	if err := json.Unmarshal([]byte(write("json", false)), &whole); err != nil {
		t.Fatal(err)
	}
	if whole.Passed != 1 || whole.Failed != 1 || whole.Cases[1].Passed || whole.Cases[1].Differences[0].Want != `"x"` || whole.Faults[0].Error != "no case" {
		t.Errorf("JSON has %+v", whole)
	}
	coloured := write("text", true)
	if !strings.Contains(coloured, "\x1b[31m- \"x\"\x1b[0m\n") || strings.Contains(coloured, "b.c\x1b[31m") {
		t.Errorf("coloured text is %q", coloured)
	}
	if plain := write("text", false); strings.Contains(plain, "\x1b") {
		t.Errorf("plain text is %q", plain)
	}
}

// TestCoverage counts the lines of a script and of a computed column that ran.
func TestCoverage(t *testing.T) {
	path := project(t, "env: {PASSWORD: x}\ncases:\n  - {name: a, events: [{kind: test}], dropped: 1}\n  - {name: b, call: {function: domain_of, arguments: [a@b], returns: b}}\n")
	s := settings()
	s.Coverage = new(suite.Coverage)
	if got := runCases(t, path, s); !strings.HasPrefix(got, "ok ") {
		t.Fatalf("got\n%s", got)
	}
	var text, lcov bytes.Buffer
	if err := errors.Join(s.Coverage.WriteText(&text), s.Coverage.WriteLCOV(&lcov)); err != nil {
		t.Fatal(err)
	}
	if want := "mail.lua: 8 of 18 lines, never ran: 15-16, 18-20, 22-25, 27\n"; !strings.HasSuffix(text.String(), want) {
		t.Errorf("coverage is\n%swant\n%s", &text, want)
	}
	for _, want := range []string{"mail.lua\n", "\nDA:11,1\n", "\nDA:16,0\n", "\nLF:18\nLH:8\nend_of_record\n"} {
		if !strings.Contains(lcov.String(), want) {
			t.Errorf("lcov lacks %q:\n%s", want, &lcov)
		}
	}
}

// TestNoConfiguration runs a test file that has no configuration beside it.
func TestNoConfiguration(t *testing.T) {
	path := project(t, "cases:\n  - {name: a, events: [{}], dropped: 1}\n")
	if err := os.Remove(filepath.Join(filepath.Dir(path), "pipeline.yaml")); err != nil {
		t.Fatal(err)
	}
	if _, err := suite.Run(t.Context(), path, settings()); err == nil || !strings.Contains(err.Error(), "no configuration mail.yaml or pipeline.yaml") {
		t.Errorf("error %v", err)
	}
}

// TestUnsetVariable names the variable that the configuration needs.
func TestUnsetVariable(t *testing.T) {
	path := project(t, "cases:\n  - {name: a, events: [{kind: test}], dropped: 1}\n")
	_, err := suite.Run(t.Context(), path, settings())
	if faults, ok := errors.AsType[config.Errors](err); !ok || !strings.Contains(faults[0].Hint, "env: {PASSWORD: …}") {
		t.Errorf("error %v", err)
	}
}
