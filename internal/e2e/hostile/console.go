package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// A consoleAttack is one request against the console. It succeeds if what it wants comes back, or
// happens.
type consoleAttack struct {
	name    string
	method  string
	path    string
	body    string
	headers []string // Host replaces the host
	// wins reports whether the answer gives the attacker what he wants.
	wins func(status int, header http.Header, body string) bool
}

// consoleAttacks are requests of pages of other sites, of names that an attacker lets mean this
// machine, of texts that pages must not take for markup, of paths that lead out, and of bodies
// that are too large.
func consoleAttacks() (all []consoleAttack) {
	const markup = "<script>alert(1)</script>"
	answered := func(status int, _ http.Header, _ string) bool { return status >= 200 && status < 300 }
	add := func(a consoleAttack) { all = append(all, a) }
	api := []string{"session", "pipelines", "admin/pause", "admin/resume", "admin/retry-dead-letters", "admin/dead-letters", "query", "tables", "try", "admin/state-nodes"}
	own := []string{"Perigee-Console: 1", "Content-Type: application/json"}

	// Requests that a page of another site can make a browser send (CSRF): 10 routes in 7 ways.
	for _, path := range api {
		for name, headers := range map[string][]string{
			"form":           {"Content-Type: application/x-www-form-urlencoded", "Origin: http://evil.example"},
			"text form":      {"Content-Type: text/plain", "Sec-Fetch-Site: cross-site"},
			"multipart":      {"Content-Type: multipart/form-data; boundary=x"},
			"no header":      {"Content-Type: application/json"},
			"null origin":    append([]string{"Origin: null"}, own...),
			"sibling site":   append([]string{"Sec-Fetch-Site: same-site", "Origin: http://127.0.0.1:1"}, own...),
			"foreign origin": append([]string{"Origin: https://evil.example"}, own...),
		} {
			add(consoleAttack{"csrf: " + name + " to " + path, "POST", "/console/api/" + path, `{"pipeline":"hostile","reason":"attack"}`, headers, answered})
		}
	}
	// Names of the attacker that mean 127.0.0.1 (DNS rebinding): 10 routes in 4 ways.
	for _, path := range api {
		for _, host := range []string{"evil.example", "evil.example:4290", "127.0.0.1.evil.example", "localhost.evil.example:80"} {
			add(consoleAttack{"rebinding: " + host + " to " + path, "POST", "/console/api/" + path, `{"pipeline":"hostile"}`,
				append([]string{"Host: " + host, "Origin: http://" + host, "Sec-Fetch-Site: same-origin"}, own...), answered})
		}
	}
	// Paths that lead out of the files, or to routes that only the socket has.
	leaks := func(status int, _ http.Header, body string) bool {
		return status == http.StatusOK && !strings.Contains(body, `src="app.js"`) || strings.Contains(body, "root:") || strings.Contains(body, "package console")
	}
	for _, path := range []string{
		"../console.go", "..%2fconsole.go", "%2e%2e/console.go", "%2e%2e%2fconsole.go", "..%252fconsole.go", "....//console.go", `..\console.go`, "..%5cconsole.go",
		"../../../../etc/passwd", "..%2f..%2f..%2f..%2fetc%2fpasswd", "%2e%2e/%2e%2e/%2e%2e/etc/passwd", "/etc/passwd", "%2fetc%2fpasswd", "vendor/../../console.go",
		"vendor/%2e%2e/%2e%2e/access.go", "index.html/../../access.go", "%00", "app.js%00.html", "app.js/", "vendor/", "vendor", ".", "..", "..;/metrics", "%c0%ae%c0%ae/console.go",
	} {
		add(consoleAttack{"path: " + path, "GET", "/console/" + path, "", nil, leaks})
	}
	for _, path := range []string{
		"admin/set-position", "admin/purge-dead-letters", "admin/promote", "admin/log-level", "admin/tap", "tables/delete", "tables/drop", "tables/rename", "backup",
		"writers/prepare", "import", "debug/pprof/", "debug/pprof/profile", "admin/../backup", "admin/%2e%2e/tables/drop", "../api/backup", "tail", "state/x", "admin/", "%61dmin/set-position",
	} {
		add(consoleAttack{"route: " + path, "POST", "/console/api/" + path, `{"pipeline":"load","next":0,"force":true,"table":"events"}`, own, answered})
	}
	// Markup in what answers repeat: it must not be HTML, and have no policy that runs it.
	runs := func(_ int, h http.Header, body string) bool {
		html := strings.Contains(h.Get("Content-Type"), "html") && strings.Contains(body, markup)
		return html || h.Get("X-Content-Type-Options") != "nosniff" && strings.Contains(body, markup) || strings.Contains(h.Get("Content-Security-Policy"), "unsafe")
	}
	for i, body := range []string{
		`{"pipeline":"%s"}`, `{"pipeline":"hostile","reason":"%s"}`, `{"text":"%s"}`, `{"ids":["%s"]}`, `{"stage":"%s"}`, `{"sql":"SELECT '%s'"}`, `{"sql":"%s"}`,
		`{"events":"%s"}`, `{"script":"%s","events":"{}"}`, `{"pipeline":"hostile","events":"{\"x\":\"%s\"}"}`, `{"name":"%s","pipeline":"hostile"}`, `{"state":"%s","text":"a"}`, `{"%s":1}`, `%s`, `"%s"`,
	} {
		path := []string{"admin/dead-letters", "admin/running-code", "admin/count-dead-letters", "admin/retry-dead-letters", "admin/dead-letters", "query", "query", "try", "try", "try", "test-case", "search-nodes", "try", "session", "measure"}[i]
		add(consoleAttack{fmt.Sprintf("markup %d to %s", i, path), "POST", "/console/api/" + path, strings.ReplaceAll(body, "%s", markup), own, runs})
	}
	for _, path := range []string{"/console/" + markup, "/console/?" + "q=" + markup, "/console/api/" + markup, "/console/index.html?" + markup, "/%3Cscript%3Ealert(1)%3C/script%3E"} {
		add(consoleAttack{"markup in " + path, "GET", strings.NewReplacer("<", "%3C", ">", "%3E").Replace(path), "", own, runs})
	}
	// Statements and scripts that reach for files, other programs and all memory.
	reaches := func(status int, _ http.Header, body string) bool {
		return strings.Contains(body, "root:") || strings.Contains(body, "uid=") || status == http.StatusOK && strings.Contains(body, `"reached"`)
	}
	for _, sql := range []string{
		"SELECT * FROM read_text('/etc/passwd')", "COPY events TO '/tmp/hostile.csv'", "ATTACH '/tmp/hostile.db'", "INSTALL httpfs", "DROP TABLE events",
		"SELECT getenv('HOME') AS reached", "SELECT * FROM glob('/etc/*')", "SET enable_external_access=true",
	} {
		add(consoleAttack{"sql: " + sql, "POST", "/console/api/query", `{"sql":"` + sql + `"}`, own, func(status int, h http.Header, body string) bool {
			return answered(status, h, body) || reaches(status, h, body)
		}})
	}
	for _, code := range []string{
		"return {reached = io.open('/etc/passwd')}", "return {reached = os.execute('id')}", "return {reached = require('ffi')}", "return {reached = debug.getregistry()}", "return {reached = loadfile('/etc/passwd')}",
		"return {reached = package.loadlib('/lib/x.so', '*')}", "local t = {} for i = 1, 1e9 do t[i] = i end return {reached = 1}", "while true do end return {reached = 1}", "return {reached = (('x'):rep(1e9))}",
	} {
		add(consoleAttack{"script: " + code, "POST", "/console/api/try", `{"pipeline":"","script":"function main(e) ` + code + ` end","events":"{}"}`, own, reaches})
	}
	// Bodies that are too large, or never end where they should.
	for name, body := range map[string]string{
		"events": `{"events":"` + strings.Repeat("x", 5<<20) + `"}`, "script": `{"script":"` + strings.Repeat("-", 5<<20) + `"}`, "nesting": strings.Repeat("[", 5<<20),
		"spaces": strings.Repeat(" ", 5<<20) + "{}", "many events": `{"pipeline":"","script":"function main(e) return e end","events":"` + strings.Repeat("1 ", 100_000) + `"}`,
	} {
		add(consoleAttack{"large " + name, "POST", "/console/api/try", body, own, answered})
	}
	for _, path := range []string{"query", "tables", "admin/dead-letters"} {
		add(consoleAttack{"large body to " + path, "POST", "/console/api/" + path, `{"sql":"` + strings.Repeat("x", 5<<20) + `"}`, own, answered})
	}
	return all
}

func consoleCases() (cases []attackCase) {
	for _, a := range consoleAttacks() {
		cases = append(cases, attackCase{name: "console: " + a.name, run: a.run})
	}
	return cases
}

// ownPage is a request as the console's own pages send it, which must be answered: otherwise attacks
// fail for another reason.
var ownPage = consoleAttack{method: "POST", path: "/console/api/session", body: "{}", headers: []string{"Perigee-Console: 1", "Content-Type: application/json"}}

// run attacks, and returns an error if the attack succeeds.
func (a consoleAttack) run(ctx context.Context, t *target) (string, error) {
	if status, _, _, err := ownPage.send(ctx, t); err != nil || status != http.StatusOK {
		return "", fmt.Errorf("the console does not answer its own page: status %d, %v", status, err)
	}
	status, header, body, err := a.send(ctx, t)
	if err != nil {
		return err.Error(), nil // the engine broke the connection off
	}
	if a.wins(status, header, body) {
		return http.StatusText(status), fmt.Errorf("it succeeded: status %d: %.200s", status, body)
	}
	return http.StatusText(status), nil
}

// send sends the request and reads the answer.
func (a consoleAttack) send(ctx context.Context, t *target) (status int, header http.Header, body string, err error) {
	request, err := http.NewRequestWithContext(ctx, a.method, "http://"+t.metrics+"/", strings.NewReader(a.body))
	if err != nil {
		return 0, nil, "", err
	}
	request.URL.Opaque = a.path // as it is, not cleaned
	request.Close = true
	for _, h := range a.headers {
		name, value, _ := strings.Cut(h, ": ")
		if request.Header.Set(name, value); name == "Host" {
			request.Host = value
		}
	}
	transport := &http.Transport{
		DisableKeepAlives: true, ResponseHeaderTimeout: caseTimeout,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{Timeout: time.Second}).DialContext(ctx, network, t.metrics)
		},
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return 0, nil, "", err
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(response.Body, 4<<20)) // a part tells enough
	return response.StatusCode, response.Header, string(text), nil
}
