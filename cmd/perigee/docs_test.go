package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/engine"
	"github.com/perigeedb/perigee/engine/eventsql"
	"github.com/perigeedb/perigee/nodedb"
	"github.com/perigeedb/perigee/sink"
)

// runTutorial runs the commands of a tutorial, on a free port, and looks for what they must print. It returns
// the folder.
func runTutorial(t *testing.T, name string, wants ...string) (folder string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/tutorial/" + name)
	if err != nil {
		t.Fatal(err)
	}
	var commands strings.Builder
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllSubmatch(page, -1) {
		commands.Write(block[1])
	}
	text := strings.Replace(commands.String(), "pipelines:", "http: \"127.0.0.1:0\"\npipelines:", 1)
	run := exec.Command("sh", "-e", "-c", text)
	run.Dir = t.TempDir()
	out, err := run.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range wants {
		if !strings.Contains(string(out), want) {
			t.Errorf("the tutorial does not print %q:\n%s", want, out)
		}
	}
	return run.Dir
}

func TestTutorial(t *testing.T) {
	if !slices.ContainsFunc(linked().Sinks, func(k sink.Kind) bool { return k.Name == "eventstore" }) {
		t.Skip("the event store needs cgo")
	}
	list := exec.Command("perigee", "dlq", "list")
	list.Dir = runTutorial(t, "first-pipeline.md", `"domain":"example.com"`, "(2 rows)", "attempt to index field 'email'", "(3 rows)")
	if left, err := list.CombinedOutput(); err != nil || strings.Contains(string(left), "emails") {
		t.Errorf("a dead letter is left: %v\n%s", err, left)
	}
}

func TestTutorialOfEvents(t *testing.T) {
	if !slices.ContainsFunc(linked().Sinks, func(k sink.Kind) bool { return k.Name == "eventstore" }) {
		t.Skip("the event store needs cgo")
	}
	runTutorial(t, "event-store.md", "rows=100000", "│ sent       │", "2026-01-01 00:01:00,", "1 rows imported, 0 had been before, 1 rejected", `"reason":"column id wants int64, got \"none\""`,
		"│    1 │", "delete 1: no query sees the rows any more, and no file has them", "│    0 │", "100,000, of which 0 are only in the log", "mails.parquet written", "│ 100000 │")
}

func TestTutorialOfNodes(t *testing.T) {
	if nodedb.Version() == "" {
		t.Skip("the node database needs cgo and the build tag lmdb")
	}
	runTutorial(t, "node-database.md", "NL\n", `"click":"docs","nth":4}`, `^clicks("ada","docs")    │ number │ 2`, `"click":"docs","session":2}`,
		`"type":"number","value":2,"ttl_ms":17`, `"country":"FR"}`, "2 nodes loaded", `^domains("example.net")`, "ok: 12 nodes", "restored is restored from saved\n4\n")
}

// TestMetricsPage holds the reference of metrics to the code.
func TestMetricsPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for _, m := range append(engine.Metrics(), eventsql.Metrics()...) {
		var labels []string
		for _, l := range m.Labels {
			if !strings.Contains(l, " ") {
				l = "`" + l + "`"
			}
			labels = append(labels, l)
		}
		fmt.Fprintf(&want, "| `%s` | %s | %s | %s |\n", m.Name, strings.Join(labels, ", "), m.Type, m.Help)
	}
	if !strings.HasSuffix(string(page), want.String()) {
		t.Errorf("docs/reference/metrics.md must end with:\n%s", want.String())
	}
}

// TestLinks follows the links between pages, and to their headings.
func TestLinks(t *testing.T) {
	pages := []string{"../../README.md", "../../CONTRIBUTING.md", "../../SECURITY.md"}
	for _, folder := range []string{"../../docs", "../../examples"} {
		err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
			if strings.HasSuffix(path, ".md") {
				pages = append(pages, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	link := regexp.MustCompile(`\]\(([^)#:]*)(#[^):]*)?\)`)
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			target := page
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(page), m[1])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, which does not exist", page, m[1])
			} else if m[2] != "" && !slices.Contains(anchorsOf(t, target), m[2][1:]) {
				t.Errorf("%s links to %s%s, which has no such heading", page, m[1], m[2])
			}
		}
	}
}

// anchorsOf returns the anchors of the headings of a page.
func anchorsOf(t *testing.T, page string) (anchors []string) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(text), -1) {
		heading := regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(strings.ToLower(m[1]), "")
		anchors = append(anchors, strings.ReplaceAll(heading, " ", "-"))
	}
	return anchors
}

// TestSystemTablesPage holds the reference of system tables to the code.
func TestSystemTablesPage(t *testing.T) {
	if eventsql.SystemTables() == nil {
		t.Skip("the event store needs cgo")
	}
	page, err := os.ReadFile("../../docs/reference/system-tables.md")
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for _, table := range eventsql.SystemTables() {
		fmt.Fprintf(&want, "\n## %s\n\n%s\n\n| column | type | meaning |\n|---|---|---|\n", table.Name, table.Doc)
		for _, c := range table.Columns {
			fmt.Fprintf(&want, "| `%s` | %s | %s |\n", c.Name, c.Type, c.Doc)
		}
	}
	if !strings.HasSuffix(string(page), want.String()) {
		t.Errorf("docs/reference/system-tables.md must end with:\n%s", want.String())
	}
}

// TestSQLPage holds the reference of SQL to the code.
func TestSQLPage(t *testing.T) {
	if eventsql.Functions() == nil {
		t.Skip("the event store needs cgo")
	}
	page, err := os.ReadFile("../../docs/reference/sql.md")
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for _, g := range eventsql.Functions() {
		fmt.Fprintf(&want, "\n**%s%s:** `%s`\n", strings.ToUpper(g.Name[:1]), g.Name[1:], strings.Join(g.Names, "` `"))
	}
	for _, m := range eventsql.Macros() {
		if row := fmt.Sprintf("| `%s` | %s |\n", m.Call, m.Doc); !strings.Contains(string(page), row) {
			t.Errorf("docs/reference/sql.md lacks the row %s", row)
		}
	}
	if _, functions, _ := strings.Cut(string(page), "prints them too.\n"); functions != want.String() {
		t.Errorf("docs/reference/sql.md lists other functions than the code:\n%s", want.String())
	}
}

// TestPromisesPage looks for the tests that the page names.
func TestPromisesPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/promises.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`([a-z0-9/]+)\\.((?:Test|Fuzz)\\w+)`").FindAllStringSubmatch(string(page), -1)
	if len(named) < 40 {
		t.Fatalf("the page names %d tests", len(named))
	}
	for _, m := range named {
		files, err := filepath.Glob(filepath.Join("../..", m[1], "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		found := slices.ContainsFunc(files, func(name string) bool {
			text, err := os.ReadFile(name)
			return err == nil && strings.Contains(string(text), "func "+m[2]+"(")
		})
		if !found {
			t.Errorf("package %s has no %s", m[1], m[2])
		}
	}
}

// TestNodePage holds the reference of the node commands to the code.
func TestNodePage(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/node-database.md")
	if err != nil {
		t.Fatal(err)
	}
	parser, _ := newParser(console{out: io.Discard, err: io.Discard})
	var want strings.Builder
	want.WriteString("| command | what it does | flags |\n|---|---|---|\n")
	for _, command := range childOf(parser.Model.Node, "node").Children {
		line := "perigee node " + command.Name
		for _, argument := range command.Positional {
			name := strings.ToUpper(argument.Name)
			if !argument.Required {
				name = "[" + name + "]"
			}
			line += " " + name
		}
		var flags []string
		for _, flag := range command.Flags {
			if flag.Name != "help" {
				flags = append(flags, fmt.Sprintf("`--%s`: %s", flag.Name, strings.ReplaceAll(flag.Help, "|", "\\|")))
			}
		}
		fmt.Fprintf(&want, "| `%s` | %s | %s |\n", line, command.Help, strings.Join(flags, "<br>"))
	}
	if _, commands, _ := strings.Cut(string(page), "## Commands\n\n"); commands != want.String() {
		t.Errorf("docs/reference/node-database.md must end with:\n%s", want.String())
	}
}
