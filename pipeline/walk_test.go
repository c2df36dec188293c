package pipeline

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestWalkOfOneBatch compares the section "The walk of one batch" of the page on
// architecture with the source: the functions that it names exist, and it names
// them in the order in which they are first called.
func TestWalkOfOneBatch(t *testing.T) {
	page, err := os.ReadFile("../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "\n## The walk of one batch\n")
	if !found {
		t.Fatal("the page has no such section")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	calls := firstCalls(t, "readBatches", "runLane")
	var named []string
	for _, match := range regexp.MustCompile("`([a-z]+[A-Z][A-Za-z]*|[A-Z][A-Za-z]+|deliver|commit|withdraw|acknowledge)`").FindAllStringSubmatch(section, -1) {
		name := match[1]
		// replayOutbox is named where it enters the walk; it starts elsewhere.
		if name != "replayOutbox" && !slices.Contains(named, name) {
			named = append(named, name)
		}
	}
	if len(named) < 15 {
		t.Fatalf("the section names only %v", named)
	}
	last, lastName := -1, ""
	for _, name := range named {
		at := slices.Index(calls, name)
		if at < 0 {
			t.Errorf("%s is not called for a batch", name)
			continue
		}
		if at < last {
			t.Errorf("%s is first called before %s", name, lastName)
		}
		last, lastName = at, name
	}
	if !slices.Contains(firstCalls(t, "replayOutbox"), "commit") {
		t.Error("replayOutbox does not enter the walk at commit")
	}
}

// ofState are functions that only a pipeline with a state calls, which has a section of its own.
var ofState = []string{"useUnit", "waitForScript", "endScript", "deliverTimers", "deliverStoredRows", "runOnState", "commitNote"}

// firstCalls returns the names of functions in the order in which code that
// starts at the given functions first calls them. It follows calls of functions
// and methods of this package, in the order of the source.
func firstCalls(t *testing.T, starts ...string) (names []string) {
	t.Helper()
	bodies := functionBodies(t)
	var follow func(name string)
	follow = func(name string) {
		if slices.Contains(names, name) || slices.Contains(ofState, name) {
			return
		}
		names = append(names, name)
		for _, body := range bodies[name] {
			for _, called := range calledIn(body) {
				follow(called)
			}
		}
	}
	for _, start := range starts {
		if bodies[start] == nil {
			t.Errorf("there is no function %s", start)
		}
		follow(start)
	}
	return names
}

// functionBodies returns the bodies of the functions of this package by name.
// Methods with the same name are one.
func functionBodies(t *testing.T) map[string][]*ast.BlockStmt {
	t.Helper()
	packages, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	bodies := make(map[string][]*ast.BlockStmt)
	for _, entry := range packages {
		if !strings.HasSuffix(entry.Name(), ".go") || strings.HasSuffix(entry.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), entry.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Body != nil {
				bodies[f.Name.Name] = append(bodies[f.Name.Name], f.Body)
			}
		}
	}
	return bodies
}

// calledIn returns the names of the functions that a body calls, in order.
func calledIn(body *ast.BlockStmt) (names []string) {
	ast.Inspect(body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		switch f := call.Fun.(type) {
		case *ast.Ident:
			names = append(names, f.Name)
		case *ast.SelectorExpr:
			names = append(names, f.Sel.Name)
		}
		return true
	})
	return names
}
