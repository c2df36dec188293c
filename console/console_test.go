package console_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perigeedb/perigee/admin"
	"github.com/perigeedb/perigee/console"
	"github.com/perigeedb/perigee/engine"
	"github.com/perigeedb/perigee/engine/eventservice"
	"github.com/perigeedb/perigee/engine/suite"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/lua"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/stdout"
	"github.com/perigeedb/perigee/source"
	"github.com/perigeedb/perigee/source/file"
	"github.com/perigeedb/perigee/source/generate"
)

func TestMain(m *testing.M) {
	eventservice.RunWorker()
	os.Exit(m.Run())
}

const configText = `
%s
pipelines:
  mails:
    source: {generate: {events: 1000000, rate: 200}}
    script: |
      function main(event)
        if event.id %% 7 == 0 then error("no consent") end
        event.domain = event.email:match("@(.+)$")
        return event
      end
    sink: {eventstore: {table: mails}}
`

// A logText is a log that is read while it grows.
type logText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// A running is an engine with a console.
type running struct {
	*engine.Engine
	folder string
	log    *logText
}

func options(settings console.Settings, log *slog.Logger) engine.Options {
	store := new(eventservice.Store)
	return engine.Options{
		Kinds: engine.Kinds{
			Sources:   []source.Kind{generate.Kind(), file.Kind()},
			Sinks:     append(store.Kinds(), []sink.Kind{stdout.Kind()}...),
			Languages: []script.Language{lua.Language()},
		},
		Services: []engine.Service{store, console.New(settings)},
		HTTP:     "127.0.0.1:0", Log: log,
	}
}

// start runs an engine; keys are further lines of its configuration.
func start(t *testing.T, keys string) *running {
	t.Helper()
	r := &running{folder: t.TempDir(), log: new(logText)}
	path := filepath.Join(r.folder, "pipeline.yaml")
	if err := os.WriteFile(path, fmt.Appendf(nil, configText, keys), 0o600); err != nil {
		t.Fatal(err)
	}
	e, err := engine.OpenFile(t.Context(), path, options(console.Settings{Version: "test"}, slog.New(slog.NewTextHandler(r.log, nil))))
	if err != nil {
		t.Fatal(err)
	}
	r.Engine = e
	ended := make(chan error, 1)
	go func() { ended <- e.Run(context.Background()) }()
	t.Cleanup(func() {
		e.Drain()
		if err := errors.Join(<-ended, e.Close()); err != nil {
			t.Error(err)
		}
	})
	return r
}

// ask sends a request with headers, as "Name: value", and returns the answer.
func (r *running) ask(t *testing.T, method, path, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, "http://"+r.Address()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if request.Header.Set(name, value); name == "Host" {
			request.Host = value
		}
	}
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(text)
}

var own = []string{"Perigee-Console: 1", "Content-Type: application/json"}

// call asks the API as its pages do.
func call[Out any](t *testing.T, r *running, path string, body any, headers ...string) (out Out, status int) {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	response, answer := r.ask(t, "POST", "/console/api/"+path, string(text), append(headers, own...)...)
	if err := json.Unmarshal([]byte(answer), &out); err != nil {
		t.Fatalf("%s answered %s: %s", path, response.Status, answer)
	}
	return out, response.StatusCode
}

type fault struct {
	Error, Hint string
	Line        int
}

func eventually(t *testing.T, what string, reached func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !reached(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never: " + what)
		}
	}
}

func TestFiles(t *testing.T) {
	r := start(t, "")
	response, text := r.ask(t, "GET", "/console/", "")
	policy := response.Header.Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"} {
		if !strings.Contains(policy, want) {
			t.Errorf("the policy is %q, without %s", policy, want)
		}
	}
	if strings.Contains(policy, "unsafe") || response.StatusCode != 200 || !strings.Contains(text, `src="app.js"`) {
		t.Errorf("the page is %s with the policy %q:\n%s", response.Status, policy, text)
	}
	if response, _ := r.ask(t, "GET", "/", ""); response.Header.Get("Location") != "/console/" {
		t.Errorf("/ answers %s, to %q", response.Status, response.Header.Get("Location"))
	}
	for path, kind := range map[string]string{
		"app.js": "text/javascript", "style.css": "text/css", "icon.svg": "image/svg+xml", "vendor/codemirror.js": "text/javascript", "vendor/LICENSES.txt": "text/plain",
	} {
		response, text := r.ask(t, "GET", "/console/"+path, "")
		if response.StatusCode != 200 || !strings.HasPrefix(response.Header.Get("Content-Type"), kind) || len(text) == 0 {
			t.Errorf("%s: %s, %q", path, response.Status, response.Header.Get("Content-Type"))
		}
		again, _ := r.ask(t, "GET", "/console/"+path, "", "If-None-Match: "+response.Header.Get("ETag"))
		if again.StatusCode != http.StatusNotModified {
			t.Errorf("%s, asked again: %s", path, again.Status)
		}
	}
	for _, path := range []string{"nothing.js", "vendor", "vendor/", "..%2fconsole.go", "%2e%2e/console.go", "vendor/codemirror.js.gz.gz", "index.html%00"} {
		if response, text := r.ask(t, "GET", "/console/"+path, ""); response.StatusCode == 200 {
			t.Errorf("%s answers %q", path, text)
		}
	}
	if response, _ := r.ask(t, "POST", "/console/app.js", ""); response.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST of a file: %s", response.Status)
	}
}

// TestPagesHaveNothingInline: the policy forbids inline code and styles, so pages must have none.
func TestPagesHaveNothingInline(t *testing.T) {
	for _, name := range []string{"index.html", "app.js", "ui.js", "pipelines.js", "letters.js", "sql.js", "playground.js", "nodes.js", "outcome.js", "plot.js", "editor.js", "api.js"} {
		text, err := os.ReadFile(filepath.Join("assets", name))
		if err != nil {
			t.Fatal(err)
		}
		for _, bad := range []string{"innerHTML", "dangerouslySetInnerHTML", "eval(", "new Function", "document.write", "http://", "https://", "onclick=", "<style", "javascript:"} {
			if strings.Contains(string(text), bad) {
				t.Errorf("%s has %s", name, bad)
			}
		}
	}
}

// TestRefusals: what is not from the console's own pages gets no answer of the API.
func TestRefusals(t *testing.T) {
	r := start(t, "")
	for _, test := range []struct {
		name    string
		want    int
		method  string
		path    string
		headers []string
	}{
		{"own page", 200, "POST", "session", own},
		{"own page of a browser", 200, "POST", "session", append([]string{"Sec-Fetch-Site: same-origin", "Origin: http://" + r.Address()}, own...)},
		{"no header", 403, "POST", "session", []string{"Content-Type: application/json"}},
		{"a form", 403, "POST", "session", []string{"Content-Type: application/x-www-form-urlencoded"}},
		{"text", 415, "POST", "session", []string{"Perigee-Console: 1", "Content-Type: text/plain"}},
		{"another site", 403, "POST", "session", append([]string{"Sec-Fetch-Site: cross-site"}, own...)},
		{"another port", 403, "POST", "session", append([]string{"Sec-Fetch-Site: same-site"}, own...)},
		{"another origin", 403, "POST", "session", append([]string{"Origin: http://evil.example"}, own...)},
		{"a null origin", 403, "POST", "session", append([]string{"Origin: null"}, own...)},
		{"rebound name", 403, "POST", "session", append([]string{"Host: evil.example"}, own...)},
		{"rebound name and origin", 403, "POST", "session", append([]string{"Host: evil.example:80", "Origin: http://evil.example:80"}, own...)},
		{"rebound name, page", 403, "GET", "", []string{"Host: evil.example"}},
		{"read by GET", 405, "GET", "session", own},
		{"asked first", 405, "OPTIONS", "session", own},
		{"a route of the socket that is not the console's", 404, "POST", "backup", own},
		{"a position", 404, "POST", "admin/set-position", own},
		{"a deletion", 404, "POST", "tables/delete", own},
		{"a profile", 404, "GET", "debug/pprof/", own},
	} {
		path := "/console/api/" + test.path
		if test.name == "rebound name, page" {
			path = "/console/"
		}
		response, text := r.ask(t, test.method, path, "{}", test.headers...)
		if response.StatusCode != test.want {
			t.Errorf("%s: %s, want %d: %s", test.name, response.Status, test.want, text)
		}
		if response.Header.Get("Access-Control-Allow-Origin") != "" || test.path != "" && response.StatusCode == 200 && response.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: the headers are %v", test.name, response.Header)
		}
	}
	large, _ := r.ask(t, "POST", "/console/api/try", `{"events":"`+strings.Repeat("x", 5<<20)+`"}`, own...)
	if large.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("a large body: %s", large.Status)
	}
	for _, body := range []string{"", "[]", "{", `{"unknown":1}`, `{"events":1}`} {
		if response, text := r.ask(t, "POST", "/console/api/try", body, own...); response.StatusCode != http.StatusBadRequest {
			t.Errorf("body %q: %s: %s", body, response.Status, text)
		}
	}
}

func TestToken(t *testing.T) {
	r := start(t, "console: {token: 5ecret}")
	if response, _ := r.ask(t, "GET", "/console/", ""); response.StatusCode != 200 {
		t.Errorf("the page, without a token: %s", response.Status)
	}
	for token, want := range map[string]int{"": 401, "Bearer ": 401, "Bearer 5ecret": 200, "Bearer 5ecre": 401, "bearer 5ecret": 401, "5ecret": 401} {
		if response, _ := r.ask(t, "POST", "/console/api/session", "{}", append([]string{"Authorization: " + token}, own...)...); response.StatusCode != want {
			t.Errorf("token %q: %s, want %d", token, response.Status, want)
		}
	}
	if strings.Contains(r.log.String(), "5ecret") {
		t.Error("the log has the token")
	}
}

func TestOff(t *testing.T) {
	for keys, want := range map[string]string{"console: {disabled: true}": "", "http: 0.0.0.0:0": "needs a token"} {
		r := start(t, keys)
		r.Address()
		for _, path := range []string{"/", "/console/", "/console/api/session"} {
			if response, _ := r.ask(t, "POST", path, "{}", append([]string{"Host: localhost"}, own...)...); response.StatusCode != 404 {
				t.Errorf("%s: %s answers %s", keys, path, response.Status)
			}
		}
		if !strings.Contains(r.log.String(), want) {
			t.Errorf("%s: the log lacks %q:\n%s", keys, want, r.log)
		}
	}
}

func TestPipelines(t *testing.T) {
	r := start(t, "")
	type answer struct {
		Pipelines []struct {
			Status admin.Status
			In     float64
			Trend  []float64
		}
	}
	eventually(t, "rates of a pipeline", func() bool {
		a, status := call[answer](t, r, "pipelines", struct{}{})
		return status == 200 && len(a.Pipelines) == 1 && a.Pipelines[0].In > 0 && len(a.Pipelines[0].Trend) > 0
	})
	if _, status := call[struct{}](t, r, "admin/pause", map[string]string{"pipeline": "mails", "reason": "a test"}); status != 200 {
		t.Fatalf("pause: %d", status)
	}
	eventually(t, "paused", func() bool { s := r.Status()[0]; return s.State == "paused" && s.Reason == "a test" })
	if f, status := call[fault](t, r, "admin/pause", map[string]string{"pipeline": "mail"}); status != 500 || !strings.Contains(f.Hint, "mails") {
		t.Errorf("pause of another: %d, %+v", status, f)
	}
	if _, status := call[struct{}](t, r, "admin/resume", map[string]string{"pipeline": "mails"}); status != 200 {
		t.Fatalf("resume: %d", status)
	}
	eventually(t, "running", func() bool { return r.Status()[0].State == "running" })
}

func TestDeadLettersAndSQL(t *testing.T) {
	r := start(t, "")
	eventually(t, "dead letters", func() bool {
		n, status := call[int](t, r, "admin/count-dead-letters", admin.Filter{Pipeline: "mails", Stage: "script", Text: "consent"})
		return status == 200 && n > 0
	})
	retried, status := call[admin.RetryResult](t, r, "admin/retry-dead-letters", admin.Filter{Pipeline: "mails"})
	if status != 200 || retried.Queued+retried.Uncommitted == 0 {
		t.Errorf("retry: %d, %+v", status, retried)
	}
	if eventservice.Available() != nil {
		return
	}
	rows, status := call[[]map[string]any](t, r, "query", map[string]any{"sql": "SELECT 1 AS one", "format": "json"})
	if status != 200 || len(rows) != 1 || rows[0]["one"] != 1.0 {
		t.Errorf("SQL: %d, %v", status, rows)
	}
	f, status := call[fault](t, r, "query", map[string]any{"sql": "SELECT\n nothing FROM mails"})
	if status != 400 || f.Line != 2 {
		t.Errorf("wrong SQL: %d, %+v", status, f)
	}
	for _, sql := range []string{"DROP TABLE mails", "COPY mails TO '/tmp/x'", "SELECT * FROM read_csv('/etc/passwd')", "DELETE FROM mails"} {
		if f, status := call[fault](t, r, "query", map[string]any{"sql": sql}); status == 200 {
			t.Errorf("%s: %+v", sql, f)
		}
	}
	type names struct {
		Functions []struct{ Name string }
		Tables    []struct{ Name string }
	}
	if n, status := call[names](t, r, "sql-names", struct{}{}); status != 200 || len(n.Functions) < 50 || len(n.Tables) < 5 {
		t.Errorf("names: %d, %d functions, %d tables", status, len(n.Functions), len(n.Tables))
	}
	tables, status := call[[]struct {
		Table string
		Rows  int
	}](t, r, "tables", struct{}{})
	if status != 200 || len(tables) != 1 || tables[0].Table != "mails" {
		t.Errorf("tables: %d, %+v", status, tables)
	}
}

type tried struct {
	Events  int
	Rows    []struct{ Row json.RawMessage }
	Dropped int
	Dead    []struct {
		Event        int
		Stage, Error string
	}
	Log    []struct{ Text string }
	Took   int
	Memory int
}

func TestTry(t *testing.T) {
	r := start(t, "")
	request := func(pipeline string, script any, events string) map[string]any {
		return map[string]any{"pipeline": pipeline, "script": script, "events": events, "raw": false, "name": "a case"}
	}
	got, status := call[tried](t, r, "try", request("mails", nil, "{\n \"id\": 1, \"email\": \"a@b.c\"\n}\n{\"id\": 7} {\"id\":2,\"email\":\"d@e\"}"))
	if status != 200 || got.Events != 3 || len(got.Rows) != 2 || len(got.Dead) != 1 || got.Dead[0].Event != 1 || !strings.Contains(got.Dead[0].Error, "no consent") || got.Took <= 0 || got.Memory <= 0 {
		t.Errorf("the running script: %d, %+v", status, got)
	}
	got, status = call[tried](t, r, "try", request("mails", "function main(e) print('hello') return nil end", "no json\n{\"id\":1}"))
	if status != 200 || got.Events != 2 || got.Dropped != 1 || len(got.Dead) != 1 || got.Dead[0].Stage != "parse" || len(got.Log) != 1 || got.Log[0].Text != "hello" {
		t.Errorf("a changed script: %d, %+v", status, got)
	}
	got, status = call[tried](t, r, "try", request("", "function main(e) e.x = 9007199254740993 return e end", `{"id":1}`))
	if status != 200 || len(got.Rows) != 1 || string(got.Rows[0].Row) != `{"id":1,"x":9007199254740992}` {
		t.Errorf("a script alone: %d, %+v", status, got)
	}
	for _, test := range []struct {
		pipeline string
		script   any
		events   string
		want     string
		line     int
	}{
		{"mails", "function main(e)\n return e +\nend", "{}", "unexpected", 3},
		{"mail", nil, "{}", "no pipeline", 0},
		{"", nil, "{}", "neither", 0},
		{"mails", nil, strings.Repeat("{}\n", 1001), "1001 events", 0},
	} {
		f, status := call[fault](t, r, "try", request(test.pipeline, test.script, test.events))
		if status != 422 || !strings.Contains(f.Error, test.want) || test.line > 0 && f.Line != test.line {
			t.Errorf("%v: %d, %+v", test.script, status, f)
		}
	}
	endless, status := call[tried](t, r, "try", request("", "function main(e) while true do end end", "{}"))
	if status != 200 || len(endless.Dead) != 1 {
		t.Errorf("an endless script: %d, %+v", status, endless)
	}
	if n, _ := call[int](t, r, "admin/count-dead-letters", admin.Filter{Text: "hello"}); n != 0 {
		t.Errorf("a trial has stored %d dead letters", n)
	}
}

// TestTestCase: the file that the console makes passes as a test, and fails once the script differs.
func TestTestCase(t *testing.T) {
	r := start(t, "")
	request := map[string]any{
		"pipeline": "mails", "script": nil, "raw": false, "name": "it's a: \"case\"",
		"events": "{\"id\":1,\"email\":\"a@b.c\",\"text\":\"it's \\u2028 ü\"}\n{\"id\":7}\n{\"id\":123456789012345678,\"email\":\"\"}",
	}
	made, status := call[struct{ File, Text string }](t, r, "test-case", request)
	if status != 200 || made.File != "pipeline_test.yaml" {
		t.Fatalf("%d, %+v", status, made)
	}
	path := filepath.Join(r.folder, made.File)
	run := func(text string) *suite.Report {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		report, err := suite.Run(t.Context(), path, suite.Settings{Engine: options(console.Settings{}, nil)})
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		return report
	}
	if report := run(made.Text); report.Failed() != 0 || len(report.Results) != 1 {
		t.Errorf("the case does not hold: %+v\n%s", report.Results, made.Text)
	}
	if report := run(strings.Replace(made.Text, "b.c", "b.d", 1)); report.Failed() != 1 {
		t.Errorf("a case that is wrong holds")
	}
	for _, change := range []map[string]any{{"name": " "}, {"pipeline": ""}} {
		for key, value := range change {
			before := request[key]
			request[key] = value
			if f, status := call[fault](t, r, "test-case", request); status != 422 {
				t.Errorf("%v: %d, %+v", change, status, f)
			}
			request[key] = before
		}
	}
}

// TestOpenHTTP: a program reaches an engine through the API, with the token.
func TestOpenHTTP(t *testing.T) {
	r := start(t, "console: {token: open-sesame}")
	for _, token := range []string{"", "wrong"} {
		a, err := admin.OpenHTTP("http://"+r.Address(), token)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "send the token") {
			t.Errorf("Status without the token: %v", err)
		}
		if err := a.Pause(t.Context(), "mails", "a test"); err == nil {
			t.Error("paused without the token")
		}
		a.Close()
	}
	a, err := admin.OpenHTTP("http://"+r.Address()+"/", "open-sesame")
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if all, err := a.Status(t.Context()); err != nil || len(all) != 1 || all[0].Pipeline != "mails" {
		t.Errorf("Status: %v, %v", all, err)
	}
	if err := errors.Join(a.Pause(t.Context(), "mails", "a test"), a.Resume(t.Context(), "mails")); err != nil {
		t.Error(err)
	}
	eventually(t, "a dead letter", func() bool {
		for d, err := range a.DeadLetters(t.Context(), admin.Filter{Pipeline: "mails"}) {
			return err == nil && d.Stage == "script"
		}
		return false
	})
	if _, err := admin.OpenHTTP("localhost:4290", ""); err == nil {
		t.Error("opened an address that is no URL")
	}
}
