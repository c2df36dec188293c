package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestTroubleshootingPage compares the list of errors with a hint with the code. It reads the
// source of all packages, so that no hint is left out.
func TestTroubleshootingPage(t *testing.T) {
	s := readSource(t, "../..")
	sites := s.hintSites()
	if len(sites) < 200 {
		t.Fatalf("only %d places with a hint", len(sites))
	}
	groups := map[string]map[string]bool{}
	for _, site := range sites {
		site.hints = slices.DeleteFunc(site.hints, func(h string) bool { return strings.Trim(h, "… ") == "" })
		if len(site.hints) == 0 {
			continue // passed on from another process
		}
		name := groupOf(site.folder)
		if groups[name] == nil {
			groups[name] = map[string]bool{}
		}
		groups[name][site.row()] = true
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		fmt.Fprintf(&b, "\n### %s\n\n| error | hint |\n|---|---|\n", name)
		for _, row := range slices.SortedFunc(maps.Keys(groups[name]), func(a, b string) int {
			return cmp.Or(strings.Compare(strings.ToLower(a), strings.ToLower(b)), strings.Compare(a, b))
		}) {
			b.WriteString(row)
		}
	}
	for _, unread := range s.unread {
		t.Errorf("%s: the page cannot show this hint: build it from literals and constants", unread)
	}
	comparePage(t, "troubleshooting.md", "## Errors and hints\n", b.String())
}

// TestHintsAreCollected compares the collector with forms of code.
func TestHintsAreCollected(t *testing.T) {
	s := &sourceTree{fset: token.NewFileSet(), packages: map[string]*sourcePackage{}}
	s.add(t, "p", `package p
const advice = "turn it " + "on"
type fault struct{ Err error; Hint string }
type gone struct{}
func (gone) Error() string { return "it is gone" }
func (gone) ErrorHint() string { return "look for it" }
func refuse(hint, format string, args ...any) error { return &fault{fmt.Errorf(format, args...), hint} }
func hintOf(n int) string {
	if n > 1 { return "take one" }
	return fmt.Sprintf("take %d", n)
}
func f(n int) error {
	hint := "a first"
	if n > 0 { hint = "a second" }
	err := fmt.Errorf("no %s", "x")
	log.Warn("slow", "hint", "wait")
	event.WithHint(err, hint)
	refuse(hintOf(n), "refused %q", n)
	return &fault{Err: errors.New("off"), Hint: advice}
}`)
	s.add(t, "event", `package event
func WithHint(err error, hint string) error { return nil }`)
	var rows []string
	for _, site := range s.hintSites() {
		rows = append(rows, site.row())
	}
	slices.Sort(rows)
	want := []string{
		"| `it is gone` | look for it |\n", "| `no …` | a first<br>a second |\n", "| `off` | turn it on |\n",
		"| `refused \"…\"` | take one<br>take … |\n", "| `slow` | wait |\n",
	}
	if !slices.Equal(rows, want) {
		t.Errorf("collected %q\nwant %q", rows, want)
	}
}

// groupOf returns the heading for the errors of a folder.
func groupOf(folder string) string {
	parts := strings.Split(folder, "/")
	switch {
	case folder == "engine/config":
		return "Configuration"
	case strings.HasPrefix(folder, "eventstore") || folder == "engine/eventservice" || folder == "internal/sqltext":
		return "Event store and SQL"
	case parts[0] == "nodedb":
		return "Node database"
	case parts[0] == "script":
		return "Scripts"
	case parts[0] == "cmd":
		return "Commands"
	case folder == "source/format":
		return "Formats of sources"
	case folder == "internal/kafka":
		return "Source and sink kafka"
	case strings.HasPrefix(folder, "sink/internal"):
		return "Sinks in databases"
	case (parts[0] == "source" || parts[0] == "sink") && len(parts) > 1:
		return strings.ToUpper(parts[0][:1]) + parts[0][1:] + " " + parts[1]
	}
	return "Engine and data folder"
}

// A hintSite is a place in the source that gives an error a hint.
type hintSite struct {
	folder        string
	errors, hints []string // alternatives
}

func (h *hintSite) row() string {
	cell := func(text string) string {
		return strings.NewReplacer("|", "\\|", "\n", " ⏎ ").Replace(text)
	}
	var errs, hints []string
	for _, text := range h.errors {
		if hasWords([]string{text}) && !slices.Contains(h.hints, text) { // a hint added to an error that is passed on
			errs = append(errs, "`"+cell(strings.ReplaceAll(text, "`", "'"))+"`")
		}
	}
	if len(errs) == 0 {
		errs = []string{"*the text of a server, the system or a script*"}
	}
	for _, text := range h.hints {
		hints = append(hints, strings.NewReplacer("<", "&lt;", "*", "\\*", "_", "\\_").Replace(cell(text)))
	}
	return fmt.Sprintf("| %s | %s |\n", strings.Join(errs, "<br>"), strings.Join(hints, "<br>"))
}

// passesOn has the folders that pass on hints of others, as texts: of DuckDB, and of a script
// in another process.
var passesOn = map[string]bool{"eventstore/internal/duckdb": true, "script/isolate": true}

// A sourceTree is the syntax of all packages.
type sourceTree struct {
	fset     *token.FileSet
	packages map[string]*sourcePackage // by folder
	unread   []string                  // places of hints that cannot be read
	calls    map[string][]sourceCall   // by folder and name of the function
}

// A sourceCall is a call, with the function that makes it.
type sourceCall struct {
	*reading
	call *ast.CallExpr
}

type sourcePackage struct {
	folder string
	files  []*ast.File
	values map[string]ast.Expr        // constants and variables of the package
	funcs  map[string][]*ast.FuncDecl // also methods
}

// skipped are folders without code that is part of the program.
var skipped = regexp.MustCompile(`(^|/)(bench|tools|testdata|examples|\.[^/]+|internal/(e2e|chaos|audit|testserver|archtest))$`)

func readSource(t *testing.T, root string) *sourceTree {
	t.Helper()
	s := &sourceTree{fset: token.NewFileSet(), packages: map[string]*sourcePackage{}}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		folder, _ := filepath.Rel(root, filepath.Dir(path))
		relative, _ := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && relative != "." && skipped.MatchString(filepath.ToSlash(relative)):
			return fs.SkipDir
		case strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go"):
			s.addFile(t, filepath.ToSlash(folder), path, nil)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *sourceTree) add(t *testing.T, folder, text string) {
	t.Helper()
	s.addFile(t, folder, folder+".go", text)
}

func (s *sourceTree) addFile(t *testing.T, folder, path string, text any) {
	t.Helper()
	file, err := parser.ParseFile(s.fset, path, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	p := s.packages[folder]
	if p == nil {
		p = &sourcePackage{folder: folder, values: map[string]ast.Expr{}, funcs: map[string][]*ast.FuncDecl{}}
		s.packages[folder] = p
	}
	p.files = append(p.files, file)
	for _, declaration := range file.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			p.funcs[d.Name.Name] = append(p.funcs[d.Name.Name], d)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if v, ok := spec.(*ast.ValueSpec); ok {
					for i, name := range v.Names {
						if i < len(v.Values) {
							p.values[name.Name] = v.Values[i]
						}
					}
				}
			}
		}
	}
}

// A reading is the function whose expressions are read.
type reading struct {
	*sourceTree
	*sourcePackage
	in    *ast.FuncDecl
	depth int
}

// hintSites returns all places with a hint: calls with a parameter hint, structs with a field
// Hint, assignments to such a field, methods ErrorHint, and attributes hint of the log.
func (s *sourceTree) hintSites() (sites []hintSite) {
	callees := s.hintCallees()
	for _, folder := range slices.Sorted(maps.Keys(s.packages)) {
		p := s.packages[folder]
		for _, file := range p.files {
			for _, declaration := range file.Decls {
				f, ok := declaration.(*ast.FuncDecl)
				if !ok {
					f = &ast.FuncDecl{Name: ast.NewIdent(""), Type: &ast.FuncType{Params: &ast.FieldList{}}}
				}
				r := &reading{s, p, f, 0}
				add := func(at ast.Node, errs []string, hint ast.Expr) {
					hints := compact(r.hint(hint))
					if len(hints) == 0 {
						return // passed on, or empty
					}
					if !passesOn[folder] && slices.ContainsFunc(hints, func(h string) bool { return strings.Trim(h, "… ") == "" }) {
						s.unread = append(s.unread, s.fset.Position(at.Pos()).String())
					}
					sites = append(sites, hintSite{folder, compact(errs), hints})
				}
				if ok && f.Name.Name == "ErrorHint" && f.Recv != nil {
					errs := r.returnsOf(p.methods("Error", receiver(f)), (*reading).text)
					if hints := compact(r.returnsOf([]*ast.FuncDecl{f}, (*reading).hint)); len(hints) > 0 {
						sites = append(sites, hintSite{folder, compact(errs), hints})
					}
				}
				ast.Inspect(declaration, func(n ast.Node) bool {
					switch n := n.(type) {
					case *ast.CallExpr:
						if c, found := calleeOf(callees, folder, n); found {
							add(n, c.errors(r, n), n.Args[c.hint])
						}
						for i, arg := range n.Args {
							if literal(arg) == "hint" && i > 0 && i+1 < len(n.Args) {
								add(n, r.text(n.Args[0]), n.Args[i+1])
							}
						}
					case *ast.CompositeLit:
						fields := fieldsOf(n)
						for _, name := range slices.Sorted(maps.Keys(fields)) {
							if isHintName(name) {
								add(n, r.error(cmp.Or[ast.Expr](fields["Err"], fields["Message"])), fields[name])
							}
						}
					case *ast.AssignStmt:
						for i, left := range n.Lhs {
							if field, ok := left.(*ast.SelectorExpr); ok && field.Sel.Name == "Hint" && i < len(n.Rhs) {
								add(n, nil, n.Rhs[i])
							}
						}
					}
					return true
				})
			}
		}
	}
	return sites
}

// isHintName reports whether a field holds a hint.
func isHintName(name string) bool { return strings.HasSuffix(strings.ToLower(name), "hint") }

// A hintCallee is a function with a parameter hint.
type hintCallee struct {
	hint, fault, params int // indexes; fault is the error or its text
	variadic            bool
}

func (s *sourceTree) hintCallees() map[string]hintCallee {
	all := map[string]hintCallee{}
	for _, folder := range slices.Sorted(maps.Keys(s.packages)) {
		p := s.packages[folder]
		for _, name := range slices.Sorted(maps.Keys(p.funcs)) {
			for _, f := range p.funcs[name] {
				c, i := hintCallee{hint: -1, fault: -1}, 0
				for _, field := range f.Type.Params.List {
					_, variadic := field.Type.(*ast.Ellipsis)
					c.variadic = c.variadic || variadic
					for _, one := range field.Names {
						switch one.Name {
						case "hint":
							if t, ok := field.Type.(*ast.Ident); ok && t.Name == "string" {
								c.hint = i
							}
						case "err", "format", "text", "message":
							if c.fault < 0 || one.Name != "err" {
								c.fault = i
							}
						}
						i++
					}
				}
				if c.params = i; c.hint < 0 {
					continue
				}
				if all[p.folder+"."+name] = c; ast.IsExported(name) {
					all[name] = c
				}
			}
		}
	}
	return all
}

// calleeOf returns the function with a parameter hint that a call is about: one of the same
// package, or an exported one.
func calleeOf(all map[string]hintCallee, folder string, call *ast.CallExpr) (hintCallee, bool) {
	c, found := all[folder+"."+calleeName(call)]
	if !found {
		c, found = all[calleeName(call)]
	}
	return c, found && c.fits(call)
}

func (c hintCallee) fits(call *ast.CallExpr) bool {
	return len(call.Args) == c.params || c.variadic && len(call.Args) >= c.params-1 && c.hint < len(call.Args)
}

func (c hintCallee) errors(r *reading, call *ast.CallExpr) []string {
	if c.fault < 0 || c.fault >= len(call.Args) {
		return nil
	}
	return r.format(call.Args[c.fault:])
}

// format returns the texts of a format and its arguments, or of the last argument if the format
// has no words.
func (r *reading) format(args []ast.Expr) []string {
	texts := r.error(args[0])
	if hasWords(texts) || len(args) == 1 {
		return texts
	}
	return r.error(args[len(args)-1])
}

// hasWords reports whether a text has more than placeholders.
func hasWords(texts []string) bool {
	return slices.ContainsFunc(texts, func(text string) bool { return strings.Trim(text, "…: ;") != "" })
}

// error returns the texts of an error, or of the format of one.
func (r *reading) error(e ast.Expr) []string {
	switch e := e.(type) {
	case nil:
		return nil
	case *ast.UnaryExpr:
		return r.error(e.X)
	case *ast.CompositeLit:
		fields := fieldsOf(e)
		return r.error(cmp.Or[ast.Expr](fields["Err"], fields["Message"]))
	case *ast.CallExpr:
		switch name := calleeName(e); {
		case name == "New" || name == "Errorf" || name == "Sprintf" || name == "usageError" || name == "WithHint" || name == "mask":
			return r.format(e.Args)
		case len(r.funcs[name]) == 1 && r.depth < 3:
			if texts := r.returnsOf(r.funcs[name], (*reading).error); len(texts) <= 8 {
				return texts
			}
		}
		return nil
	case *ast.Ident:
		if assigned, isLocal := r.assigned(e); isLocal {
			var all []string
			for _, one := range assigned {
				all = append(all, r.error(one)...)
			}
			if len(assigned) == 0 {
				all = r.fromCallers(e.Name)
			}
			return all
		}
		if value := r.values[e.Name]; value != nil {
			return r.error(value)
		}
		return nil
	}
	return r.text(e)
}

// fromCallers returns the texts of an error, or of its format, that callers pass as a parameter.
func (r *reading) fromCallers(name string) (all []string) {
	index, i := -1, 0
	for _, field := range r.in.Type.Params.List {
		for _, one := range field.Names {
			if one.Name == name {
				index = i
			}
			i++
		}
	}
	if index < 0 || r.depth > 3 {
		return nil
	}
	for _, c := range r.callsOf(r.in.Name.Name) {
		if index < len(c.call.Args) {
			at := &reading{r.sourceTree, c.sourcePackage, c.in, r.depth + 1}
			all = append(all, at.error(c.call.Args[index])...)
		}
	}
	return all
}

// callsOf returns the calls of a function of the package; of an exported one, in all packages.
func (r *reading) callsOf(name string) (all []sourceCall) {
	if r.calls == nil {
		r.sourceTree.calls = map[string][]sourceCall{}
		for _, folder := range slices.Sorted(maps.Keys(r.packages)) {
			p := r.packages[folder]
			for _, name := range slices.Sorted(maps.Keys(p.funcs)) {
				for _, f := range p.funcs[name] {
					ast.Inspect(f, func(n ast.Node) bool {
						if call, ok := n.(*ast.CallExpr); ok {
							key := p.folder + "." + calleeName(call)
							r.calls[key] = append(r.calls[key], sourceCall{&reading{r.sourceTree, p, f, 0}, call})
						}
						return true
					})
				}
			}
		}
	}
	for _, folder := range slices.Sorted(maps.Keys(r.packages)) {
		if folder == r.folder || ast.IsExported(name) {
			all = append(all, r.calls[folder+"."+name]...)
		}
	}
	return all
}

// hint returns the texts of a hint. It returns none for a hint that is passed on: its origin is
// another place.
func (r *reading) hint(e ast.Expr) []string {
	switch e := e.(type) {
	case *ast.SelectorExpr:
		if isHintName(e.Sel.Name) {
			return nil
		}
	case *ast.CallExpr:
		switch name := calleeName(e); {
		case name == "HintOf" || name == "ErrorHint":
			return nil
		case name == "Or" || name == "orElse":
			var all []string
			for _, arg := range e.Args {
				all = append(all, r.hint(arg)...)
			}
			return all
		case name == "mask" || name == "TrimSpace":
			return r.hint(e.Args[0])
		}
	case *ast.Ident:
		assigned, isLocal := r.assigned(e)
		if isLocal {
			var all []string
			for _, one := range assigned {
				all = append(all, r.hint(one)...)
			}
			return all
		}
	}
	return r.text(e)
}

// text returns the alternatives of a text, with … for its variable parts.
func (r *reading) text(e ast.Expr) []string {
	if r.depth > 12 {
		return []string{"…"}
	}
	r = &reading{r.sourceTree, r.sourcePackage, r.in, r.depth + 1}
	switch e := e.(type) {
	case *ast.BasicLit:
		return []string{placeholders(literal(e))}
	case *ast.ParenExpr:
		return r.text(e.X)
	case *ast.BinaryExpr:
		return product(r.text(e.X), r.text(e.Y))
	case *ast.Ident:
		if assigned, isLocal := r.assigned(e); isLocal {
			var all []string
			for _, one := range assigned {
				all = append(all, r.text(one)...)
			}
			if len(all) > 0 {
				return all
			}
		} else if value := r.values[e.Name]; value != nil {
			return r.text(value)
		}
	case *ast.SelectorExpr:
		if e.Sel.Name == "Help" {
			return []string{"(the meaning of the key)"}
		}
		if p := r.imported(e.X); p != nil && p.values[e.Sel.Name] != nil {
			return (&reading{r.sourceTree, p, &ast.FuncDecl{Type: &ast.FuncType{}}, r.depth}).text(p.values[e.Sel.Name])
		}
	case *ast.CallExpr:
		return r.call(e)
	}
	return []string{"…"}
}

// call returns the texts that a call returns.
func (r *reading) call(e *ast.CallExpr) []string {
	name := calleeName(e)
	p := r.sourcePackage
	if s, ok := e.Fun.(*ast.SelectorExpr); ok {
		switch base := fmt.Sprint(s.X); {
		case base == "fmt" || base == "errors":
			return r.text(e.Args[0])
		case base == "strings" && name == "Join":
			return r.joined(e.Args[0])
		case base == "strings":
			return []string{"…"}
		}
		if other := r.imported(s.X); other != nil {
			p = other
		}
	}
	if len(p.funcs[name]) == 0 && isHintName(name) {
		return r.anyMethod(name)
	}
	if len(p.funcs[name]) == 0 {
		return []string{"…"}
	}
	return (&reading{r.sourceTree, p, r.in, r.depth}).returnsOf(p.funcs[name], (*reading).hint)
}

// anyMethod returns the texts that the methods of a name return, in all packages.
func (r *reading) anyMethod(name string) (all []string) {
	for _, folder := range slices.Sorted(maps.Keys(r.packages)) {
		p := r.packages[folder]
		for _, f := range p.funcs[name] {
			if f.Recv != nil {
				all = append(all, (&reading{r.sourceTree, p, f, r.depth}).returnsOf([]*ast.FuncDecl{f}, (*reading).hint)...)
			}
		}
	}
	return all
}

// joined returns the text of all that is appended to a list.
func (r *reading) joined(list ast.Expr) []string {
	name, ok := list.(*ast.Ident)
	if !ok || r.in.Body == nil {
		return []string{"…"}
	}
	var parts []string
	ast.Inspect(r.in.Body, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && calleeName(call) == "append" && len(call.Args) == 2 && fmt.Sprint(call.Args[0]) == name.Name {
			if texts := compact(r.text(call.Args[1])); len(texts) > 0 {
				parts = append(parts, texts[0])
			}
		}
		return true
	})
	if len(parts) == 0 {
		return []string{"…"}
	}
	return []string{strings.Join(parts, " ")}
}

// returnsOf reads the last text that functions return.
func (r *reading) returnsOf(declared []*ast.FuncDecl, read func(*reading, ast.Expr) []string) (all []string) {
	for _, f := range declared {
		if f.Body == nil {
			continue
		}
		inside := &reading{r.sourceTree, r.sourcePackage, f, r.depth + 1}
		ast.Inspect(f.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncLit:
				return false
			case *ast.ReturnStmt:
				if len(n.Results) > 0 && inside.depth < 14 {
					all = append(all, read(inside, n.Results[len(n.Results)-1])...)
				}
			}
			return true
		})
	}
	return all
}

// assigned returns the values that a local variable gets before its use, and whether the name
// is that of a local variable or a parameter.
func (r *reading) assigned(name *ast.Ident) (values []ast.Expr, isLocal bool) {
	for _, field := range r.in.Type.Params.List {
		for _, one := range field.Names {
			isLocal = isLocal || one.Name == name.Name
		}
	}
	if r.in.Body == nil {
		return nil, isLocal
	}
	ast.Inspect(r.in.Body, func(n ast.Node) bool {
		if n != nil && n.Pos() >= name.Pos() {
			return false
		}
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i, left := range n.Lhs {
				if one, ok := left.(*ast.Ident); ok && one.Name == name.Name && n.End() < name.Pos() {
					isLocal = true
					if len(n.Rhs) == len(n.Lhs) {
						values = append(values, n.Rhs[i])
					} else if i == len(n.Lhs)-1 {
						values = append(values, n.Rhs[0])
					}
				}
			}
		case *ast.ValueSpec:
			for i, one := range n.Names {
				if one.Name == name.Name {
					isLocal = true
					if i < len(n.Values) {
						values = append(values, n.Values[i])
					}
				}
			}
		}
		return true
	})
	return values, isLocal
}

// imported returns the package of the tree that an expression names.
func (r *reading) imported(e ast.Expr) *sourcePackage {
	name, ok := e.(*ast.Ident)
	if !ok {
		return nil
	}
	for _, file := range r.files {
		for _, spec := range file.Imports {
			path, _ := strconv.Unquote(spec.Path.Value)
			local := path[strings.LastIndexByte(path, '/')+1:]
			if spec.Name != nil {
				local = spec.Name.Name
			}
			if p := r.packages[strings.TrimPrefix(path, "github.com/perigeedb/perigee/")]; p != nil && local == name.Name {
				return p
			}
		}
	}
	return nil
}

// methods returns the methods of a type.
func (p *sourcePackage) methods(name, of string) (all []*ast.FuncDecl) {
	for _, f := range p.funcs[name] {
		if receiver(f) == of {
			all = append(all, f)
		}
	}
	return all
}

func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	t := f.Recv.List[0].Type
	if pointer, ok := t.(*ast.StarExpr); ok {
		t = pointer.X
	}
	return fmt.Sprint(t)
}

func calleeName(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

func fieldsOf(c *ast.CompositeLit) map[string]ast.Expr {
	fields := map[string]ast.Expr{}
	for _, element := range c.Elts {
		if pair, ok := element.(*ast.KeyValueExpr); ok {
			fields[fmt.Sprint(pair.Key)] = pair.Value
		}
	}
	return fields
}

// literal returns the text of a literal, or "".
func literal(e ast.Expr) string {
	if l, ok := e.(*ast.BasicLit); ok && l.Kind == token.STRING {
		text, _ := strconv.Unquote(l.Value)
		return text
	}
	return ""
}

var verb = regexp.MustCompile(`%(\[\d+\])?[-+# 0]*(\[\d+\])?\d*(\.\d+)?[a-zA-Z]`)

// placeholders replaces the verbs of a format.
func placeholders(format string) string {
	text := verb.ReplaceAllStringFunc(format, func(v string) string {
		if strings.HasSuffix(v, "q") {
			return `"…"`
		}
		return "…"
	})
	return strings.ReplaceAll(text, "%%", "%")
}

// product returns every text of a followed by every text of b.
func product(a, b []string) (all []string) {
	const few = 3 // of more, none is worth a line of its own
	if len(a) == 0 || len(a) > few {
		a = []string{"…"}
	}
	if len(b) == 0 || len(b) > few {
		b = []string{"…"}
	}
	for _, x := range a {
		for _, y := range b {
			all = append(all, x+y)
		}
	}
	return all
}

// compact removes empty and equal texts.
func compact(texts []string) (all []string) {
	for _, text := range texts {
		if text != "" && !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return all
}
