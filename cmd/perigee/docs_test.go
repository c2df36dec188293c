package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/engine"
	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/engine/eventservice"
	"github.com/perigeedb/perigee/engine/suite"
)

// TestMetricsPage compares the reference of metrics with the code.
func TestMetricsPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for _, m := range append(engine.Metrics(), eventservice.Metrics()...) {
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

// TestLinks checks the links between pages, and to their headings.
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

// TestSystemTablesPage compares the reference of system tables with the code.
func TestSystemTablesPage(t *testing.T) {
	if eventservice.SystemTables() == nil {
		t.Skip("the event store needs cgo")
	}
	page, err := os.ReadFile("../../docs/reference/system-tables.md")
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for _, table := range eventservice.SystemTables() {
		fmt.Fprintf(&want, "\n## %s\n\n%s\n\n| column | type | meaning |\n|---|---|---|\n", table.Name, table.Doc)
		for _, c := range table.Columns {
			fmt.Fprintf(&want, "| `%s` | %s | %s |\n", c.Name, c.Type, c.Doc)
		}
	}
	if !strings.HasSuffix(string(page), want.String()) {
		t.Errorf("docs/reference/system-tables.md must end with:\n%s", want.String())
	}
}

// TestSQLPage compares the reference of SQL with the code.
func TestSQLPage(t *testing.T) {
	if eventservice.Functions() == nil {
		t.Skip("the event store needs cgo")
	}
	page, err := os.ReadFile("../../docs/reference/sql.md")
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for _, g := range eventservice.Functions() {
		fmt.Fprintf(&want, "\n**%s%s:** `%s`\n", strings.ToUpper(g.Name[:1]), g.Name[1:], strings.Join(g.Names, "` `"))
	}
	for _, m := range eventservice.Macros() {
		if row := fmt.Sprintf("| `%s` | %s |\n", m.Call, m.Doc); !strings.Contains(string(page), row) {
			t.Errorf("docs/reference/sql.md lacks the row %s", row)
		}
	}
	if _, functions, _ := strings.Cut(string(page), "prints them too.\n"); functions != want.String() {
		t.Errorf("docs/reference/sql.md lists other functions than the code:\n%s", want.String())
	}
}

// TestPromisesPage checks that the named tests exist.
func TestPromisesPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/promises.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`([a-z0-9/-]+)\\.((?:Test|Fuzz)\\w+)`").FindAllStringSubmatch(string(page), -1)
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

// TestNodePage compares the reference of the node commands with the code.
func TestNodePage(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/node-database.md")
	if err != nil {
		t.Fatal(err)
	}
	parser, _ := newParser(console{out: io.Discard, err: io.Discard})
	var want strings.Builder
	want.WriteString("| command | effect | flags |\n|---|---|---|\n")
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

// TestTestsPage compares the reference of test files with the code.
func TestTestsPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/tests.md")
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for _, s := range []struct {
		name, doc string
		fields    []config.Field
	}{
		{"The file", "The keys at the top of a test file.", config.Fields(suite.FileSettings{})},
		{"A case", "The keys of an item of `cases`. A case has `events`, `steps`, `each` or `call`, and at least one expectation.", config.Fields(suite.CaseSettings{})},
		{"A step", "The keys of an item of `steps`, which has one of them.", config.Fields(suite.StepSettings{})},
		{"A call", "The keys below `call`.", config.Fields(suite.CallSettings{})},
		{"A dead letter", "The keys of an item of `dead`.", config.Fields(suite.DeadSettings{})},
		{"A log line", "The keys of an item of `log` that is a mapping.", config.Fields(suite.LogSettings{})},
	} {
		fmt.Fprintf(&want, "\n## %s\n\n%s\n\n| key | value | meaning |\n|---|---|---|\n", s.name, s.doc)
		for _, f := range s.fields {
			help := f.Help
			if f.Required {
				help = "required: " + help
			}
			fmt.Fprintf(&want, "| `%s` | %s | %s |\n", f.Key, f.Kind, strings.ReplaceAll(help, "|", "\\|"))
		}
	}
	if !strings.HasSuffix(string(page), "\n"+strings.TrimSpace(want.String())+"\n") {
		t.Errorf("docs/reference/tests.md must end with:%s", want.String())
	}
}
