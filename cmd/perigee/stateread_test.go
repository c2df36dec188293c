package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/perigeedb/perigee/admin"
)

// readStateConfig has a state of one unit, and one of a unit for each of its files.
const readStateConfig = `
data: data
http: off
query: {listen: "127.0.0.1:0", token: secret}
pipelines:
  one:
    source: {file: {path: one.ndjson, follow: true}}
    script: {lua: names.lua}
    state: {name: users, scope: pipeline}
    sink: {stdout: {}}
  each:
    source: {file: {path: "each-*.ndjson", follow: true}}
    script: {lua: names.lua}
    state: {name: files}
    sink: {stdout: {}}
`

const namesLua = `
local users, timers = require "nodedb".node "^users", require "timer"
function main(event)
  users[event.user].visits:incr()
  if event.value then users[event.user].__ = event.value end
  if event.after then timers.after(event.after, event.user) end
  return event
end
function timer() end
`

// A stateReader is an engine whose states are read.
type stateReader struct {
	t      *testing.T
	file   string
	base   string // of its address
	engine *process
}

func newStateReader(t *testing.T) *stateReader {
	t.Helper()
	skipWithoutState(t)
	folder := shortDir(t)
	r := &stateReader{t: t, file: filepath.Join(folder, "read.yaml")}
	config := strings.NewReplacer("data: data", "data: "+filepath.Join(folder, "data"), "path: one", "path: "+folder+"/one", `path: "each`, `path: "`+folder+"/each").Replace(readStateConfig)
	writeFile(t, r.file, config)
	writeFile(t, filepath.Join(folder, "names.lua"), namesLua)
	var one strings.Builder
	for _, user := range []string{"ada", "a/b", "..", "", "☾", "7", `q"uote`, "a b", "%2F", "a\nb"} {
		fmt.Fprintf(&one, "{\"user\":%s,\"value\":%s}\n", asJSON(t, user), asJSON(t, "is "+user))
	}
	for i := range 250 {
		fmt.Fprintf(&one, "{\"user\":%d,\"value\":%d}\n", 1000+i, i)
	}
	one.WriteString("{\"user\":\"last\",\"after\":86400}\n")
	writeFile(t, filepath.Join(folder, "one.ndjson"), one.String())
	writeFile(t, filepath.Join(folder, "each-a.ndjson"), "{\"user\":\"ada\"}\n")
	writeFile(t, filepath.Join(folder, "each-b.ndjson"), "{\"user\":\"bob\"}\n")
	r.engine = runEngine(t, r.file)
	r.engine.says("answering SQL over HTTP")
	address := regexp.MustCompile(`answering SQL over HTTP.*?(127\.0\.0\.1:\d+)`).FindStringSubmatch(r.engine.log.String())
	if address == nil {
		t.Fatalf("no address in %s", r.engine.log.String())
	}
	r.base = "http://" + address[1]
	eventually(t, "all users are counted", func() bool { status, _ := r.get("/state/users/^users/last"); return status == http.StatusOK })
	eventually(t, "the files are counted", func() bool {
		status, _ := r.get("/state/files/^users/bob?unit=" + url.QueryEscape(filepath.Join(folder, "each-b.ndjson")))
		return status == http.StatusOK
	})
	return r
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// get requests a path as it is written.
func (r *stateReader) get(path string) (status int, body string) {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.base, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	path, query, _ := strings.Cut(path, "?")
	request.URL.Opaque, request.URL.RawQuery = path, query
	return r.do(request)
}

func (r *stateReader) do(request *http.Request) (status int, body string) {
	r.t.Helper()
	if request.Header.Get("Authorization") == "" {
		request.Header.Set("Authorization", "Bearer secret")
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

func (r *stateReader) stop() {
	r.engine.signal(syscall.SIGTERM)
	r.engine.ends(0)
}

// TestStateOverHTTP reads nodes of states, and sends what does not name any.
func TestStateOverHTTP(t *testing.T) {
	t.Parallel()
	r := newStateReader(t)
	for _, test := range []struct {
		path   string
		status int
		want   string // in the answer
	}{
		{"/state/users/^users/ada", 200, `"path":"^users(\"ada\")","type":"string","value":"is ada","children":[{"subscript":"visits","type":"number","value":1}]}`},
		{"/state/users/^users/ada/visits", 200, `"type":"number","value":1,"children":[]}`},
		{"/state/users/^users/a%2Fb", 200, `"value":"is a/b"`},
		{"/state/users/^users/%2E%2E", 200, `"value":"is .."`},
		{"/state/users/^users/..", 200, `"value":"is .."`},
		{"/state/users/^users/", 200, `"path":"^users(\"\")"`},
		{"/state/users/^users//visits", 200, `"value":1`},
		{"/state/users/^users/%E2%98%BE", 200, `"value":"is ☾"`},
		{"/state/users/^users/7", 200, `"path":"^users(7)"`},
		{"/state/users/%5Eusers/q%22uote", 200, `"value":"is q\"uote"`},
		{"/state/users/^users/%252F", 200, `"value":"is %2F"`},
		{"/state/users/^users/a%0Ab", 200, `"value":"is a\nb"`},
		{"/state/users/^users?limit=0", 200, `"children":[],"next":"from=\u0026limit=0`},
		{"/state/users/^users?limit=1", 200, `"next":"from=7\u0026limit=1\u0026unit=all"`},
		{"/state/users/^users?from=1248&limit=2", 200, `"children":[{"subscript":1248,"type":"number","value":248},{"subscript":1249,"type":"number","value":249}],"next"`},
		{"/state/users?unit=all", 200, `{"subscript":"^users","type":"absent","value":null}`},
		{"/state/users/", 200, `"path":"","type":"absent"`},
		{"/state/users/^users/nobody", 404, "has no value and no children"},
		{"/state/users/^nobody", 404, "has no value and no children"},
		{"/state/nothing/^users", 404, "no pipeline has a state"},
		{"/state/", 404, "no pipeline has a state"},
		{"/state/users/^users?unit=other", 404, "no unit"},
		{"/state/files/^users/ada", 400, "name one with ?unit="},
		{"/state/users/^users/" + strings.Repeat("x/", 40), 400, "read the path"},
		{"/state/users/^users/" + strings.Repeat("x", 5000), 400, "read the path"},
		{"/state/users/^us%00ers", 400, "read the path"},
		{"/state/users/%5E", 400, "read the path"},
		{"/state/users/^users?limit=-1", 400, "invalid limit"},
		{"/state/users/^users?limit=1001", 400, "invalid limit"},
		{"/state/users/^users?limit=x", 400, "invalid limit"},
		{"/state/users/^users?sort=1", 400, "unknown parameter"},
		{"/state/users/^users?%zz", 400, "read the parameters"},
		{"/state/users/^users/" + strings.Repeat("%FF", 10), 404, "has no value"},
		{"/%73tate/users/^users/ada", 404, "does not begin with"},
		{"/stat", 404, ""},
		{"/state", 404, ""},
	} {
		status, body := r.get(test.path)
		if status != test.status || !strings.Contains(body, test.want) {
			t.Errorf("GET %.100s: got %d %.300s, want %d with %s", test.path, status, body, test.status, test.want)
		}
		if status == 400 && !strings.Contains(body, `"hint"`) {
			t.Errorf("GET %.100s: no hint in %s", test.path, body)
		}
	}
	for _, token := range []string{"Bearer wrong", "secret"} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.base+"/state/users/^users/ada", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", token)
		if status, body := r.do(request); status != http.StatusUnauthorized || strings.Contains(body, "is ada") {
			t.Errorf("with %q: got %d %s, want 401", token, status, body)
		}
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, r.base+"/state/users/^users/ada", nil)
	if err != nil {
		t.Fatal(err)
	}
	if status, body := r.do(request); status != http.StatusMethodNotAllowed {
		t.Errorf("DELETE: got %d %s, want 405", status, body)
	}
	r.readPages()
	r.stop()
}

// readPages reads all children of a node in small answers.
func (r *stateReader) readPages() {
	r.t.Helper()
	children, query := 0, "limit=7"
	for query != "" {
		status, body := r.get("/state/users/^users?" + query)
		var answer admin.NodeAnswer
		if err := json.Unmarshal([]byte(body), &answer); status != 200 || err != nil {
			r.t.Fatalf("got %d %s, %v", status, body, err)
		}
		children += len(answer.Children)
		query = answer.Next
	}
	if want := 10 + 250 + 1; children != want {
		r.t.Errorf("the pages have %d children, want %d", children, want)
	}
}

// TestStateDump writes all nodes of a unit, while the engine runs and without it. A dump loads into
// the same nodes.
func TestStateDump(t *testing.T) {
	t.Parallel()
	r := newStateReader(t)
	dump := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("perigee", append([]string{"state", "dump", r.file, "users"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	running := dump("--format", "zwrite")
	if n := strings.Count(running, "\n"); n < 2*260 || !strings.Contains(running, `^users("a"_$C(10)_"b")="is a"_$C(10)_"b"`) {
		t.Errorf("the dump has %d lines, want at least 520: %.500s", n, running)
	}
	if got := dump("^users(\"ada\")"); got != `{"path":"^users(\"ada\")","type":"string","value":"is ada"}`+"\n"+`{"path":"^users(\"ada\",\"visits\")","type":"number","value":1}`+"\n" {
		t.Errorf("the dump of a user is %s", got)
	}
	shown := says(t, 0, "the unit, open", "state", "show", r.file, "users")
	for _, want := range []string{"owner", "timers", "last at "} {
		if !strings.Contains(shown, want) {
			t.Errorf("state show lacks %q: %s", want, shown)
		}
	}
	says(t, 1, `state users has no unit "x"`, "state", "show", r.file, "users", "--unit", "x")
	says(t, 0, `"unit":"all"`, "state", "show", r.file, "users", "--format", "json")
	r.stop()
	if stopped := dump("--format", "zwrite"); stopped != running {
		t.Errorf("the dump without the engine differs:\n%.300s\n%.300s", stopped, running)
	}
	says(t, 0, "a copy, not open", "state", "show", r.file, "files")
	file, loaded := filepath.Join(filepath.Dir(r.file), "users.zwr"), filepath.Join(filepath.Dir(r.file), "loaded")
	dump("--format", "zwrite", "-o", file)
	lines := regexp.MustCompile(`(?m)^\^%.*\n`).ReplaceAllString(running, "") // names that belong to Perigee
	writeFile(t, file, lines)
	says(t, 0, "nodes loaded", "node", "load", loaded, file)
	out, err := exec.Command("perigee", "node", "dump", loaded).Output()
	if err != nil || string(out) != lines {
		t.Errorf("the loaded nodes differ, %v:\n%.300s\n%.300s", err, out, lines)
	}
}
