package stubs

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/yuin/gopher-lua/ast"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/nodedb"
	nodelua "github.com/perigeedb/perigee/nodedb/lua"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/lua"
	"github.com/perigeedb/perigee/script/luasyntax"
)

var update = flag.Bool("update", false, "print the tables of the reference and the stub of nodedb again")

const page = "../../docs/reference/modules.md"

// TestModulesPage compares the tables of the reference with the list of modules.
func TestModulesPage(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	printed := string(text)
	for _, m := range append(Modules(), StateModules()...) {
		section := regexp.MustCompile(`(?s)\n## ` + m.Name + `\n.*?(\n\| function \|.*?\n)\n`)
		found := section.FindStringSubmatchIndex(printed)
		if found == nil {
			t.Fatalf("%s has no table of %s", page, m.Name)
		}
		printed = printed[:found[2]+1] + tableOf(&m) + printed[found[3]:]
	}
	if *update {
		if err := os.WriteFile(page, []byte(printed), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if printed != string(text) {
		t.Errorf("%s differs from the code; run go test ./script/stubs -update", page)
	}
}

// tableOf returns the table of the module's functions in Markdown.
func tableOf(m *Module) string {
	var b strings.Builder
	b.WriteString("| function | result |\n|---|---|\n")
	for _, v := range m.Values {
		fmt.Fprintf(&b, "| `%s.%s` | %s |\n", m.Name, v.Name, v.Doc)
	}
	for _, f := range m.Functions {
		fmt.Fprintf(&b, "| `%s` | %s |\n", callOf(&f, m.Name+"."), f.Doc)
	}
	for _, o := range m.Objects {
		for _, f := range o.Methods {
			fmt.Fprintf(&b, "| `%s` | %s |\n", callOf(&f, o.Name+":"), f.Doc)
		}
	}
	return b.String()
}

// callOf returns a call as the reference writes it: json.find(text, [from]). of is what is before
// the name.
func callOf(f *Function, of string) string {
	var params []string
	for _, p := range split(f.Params) {
		name, _, _ := strings.Cut(p, ": ")
		if optional, found := strings.CutSuffix(name, "?"); found {
			name = "[" + optional + "]"
		}
		params = append(params, name)
	}
	return fmt.Sprintf("%s%s(%s)", of, f.Name, strings.Join(params, ", "))
}

// TestEngineHasTheFunctions loads every module and compares its fields with the list.
func TestEngineHasTheFunctions(t *testing.T) {
	compareFunctions(t, Modules(), script.Options{})
}

// TestEngineHasTheStateFunctions does the same with a state, and for the methods of objects.
func TestEngineHasTheStateFunctions(t *testing.T) {
	extension := nodelua.ForState("users")
	_, release, err := extension.Open()
	if errors.Is(err, nodedb.ErrUnavailable) {
		t.Skip("needs LuaJIT and LMDB")
	}
	release()
	compareFunctions(t, StateModules(), script.Options{Extension: extension})
}

// required are the required options of the constructors in the module window.
var required = map[string]string{
	"tumbling": "seconds = 1", "session": "gap = 1", "join": "seconds = 1", "dedupe": "seconds = 1", "limit": "count = 1, seconds = 1",
}

// compareFunctions compares modules with the list. The methods are those of the objects that the
// functions return which the list says.
func compareFunctions(t *testing.T, modules []Module, opts script.Options) {
	var code strings.Builder
	code.WriteString("local known, found = {}, {}\n")
	code.WriteString(`local function compare(what, object, methods)
		for name, kind in pairs(methods) do if type(object[name]) ~= kind then found[#found + 1] = what .. ":" .. name .. " is a " .. type(object[name]) end end
		for name in pairs(object) do if not methods[name] then found[#found + 1] = what .. ":" .. name .. " is not in the list" end end
	end
	`)
	for _, m := range modules {
		fmt.Fprintf(&code, "known.%s = {", m.Name)
		for _, f := range m.Functions {
			fmt.Fprintf(&code, "[%q] = \"function\", ", f.Name)
		}
		for _, v := range m.Values {
			fmt.Fprintf(&code, "[%q] = %q, ", v.Name, v.Type)
		}
		load := m.Name
		if !m.Global {
			load = fmt.Sprintf("require(%q)", m.Name)
		}
		fmt.Fprintf(&code, "}\nlocal %s = %s\n", m.Name, load)
		fmt.Fprintf(&code, "for name, kind in pairs(known.%[1]s) do if type(%[1]s[name]) ~= kind then found[#found + 1] = %[2]q .. name .. \" is a \" .. type(%[1]s[name]) end end\n", m.Name, m.Name+".")
		fmt.Fprintf(&code, "for name in pairs(%[1]s) do if not known.%[1]s[name] then found[#found + 1] = %[2]q .. name .. \" is not in the list\" end end\n", m.Name, m.Name+".")
	}
	for _, m := range modules {
		for _, o := range m.Objects {
			for _, f := range m.Functions {
				if strings.HasPrefix(f.Returns, o.Name+" ") {
					fmt.Fprintf(&code, "local methods = {name = \"string\"}\n")
					for _, method := range o.Methods {
						fmt.Fprintf(&code, "methods[%q] = \"function\"\n", method.Name)
					}
					fmt.Fprintf(&code, "compare(%q, %s.%s(\"^%s\", {%s}), methods)\n", m.Name+"."+f.Name, m.Name, f.Name, f.Name, required[f.Name])
				}
			}
		}
	}
	code.WriteString("function _G.timer() end\n")
	code.WriteString("function main(e) return {found = table.concat(found, \"; \")} end\n")
	opts.Sinks = []script.Sink{{Name: "out"}}
	loaded, err := lua.Language().Load(t.Context(), script.Code{Name: "list.lua", Text: []byte(code.String())}, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer loaded.Close()
	var batch event.Batch
	batch.Append([]byte(`{}`))
	batch.Range.Count = 1
	var result event.Result
	result.Outputs = make([]event.Output, 1)
	if err := loaded.Run(t.Context(), &batch, &result); err != nil {
		t.Fatal(err)
	}
	if len(result.Dead) > 0 {
		t.Fatal(result.Dead[0].Error)
	}
	if got := string(result.Outputs[0].Doc(0)); got != `{"found":""}` {
		t.Error(got)
	}
}

var annotation = regexp.MustCompile(`^---@(meta \w+|class \w+|field \[\w+\] \w+|type \S+|param (\w+\??|\.\.\.) \S.*|return \S.*|operator \w+\(\w+\): \w+)$`)

// TestFilesParse parses every file, and compares the parameters of functions with their annotations.
func TestFilesParse(t *testing.T) {
	for _, file := range Files() {
		if _, err := luasyntax.Parse(strings.NewReader(file.Text), file.Name); err != nil {
			t.Errorf("%s: %v", file.Name, err)
		}
		if !strings.HasPrefix(file.Text, "---@meta "+strings.TrimSuffix(file.Name, ".lua")+"\n") {
			t.Errorf("%s does not begin with the name of its module", file.Name)
		}
		var annotated []string
		for number, line := range strings.Split(file.Text, "\n") {
			switch {
			case strings.HasPrefix(line, "---@"):
				if !annotation.MatchString(line) {
					t.Errorf("%s:%d: %s", file.Name, number+1, line)
				}
				if name, found := strings.CutPrefix(line, "---@param "); found {
					annotated = append(annotated, strings.TrimSuffix(strings.Fields(name)[0], "?"))
				}
			case strings.HasPrefix(line, "function "):
				list := line[strings.IndexByte(line, '(')+1 : strings.IndexByte(line, ')')]
				var names []string
				if list != "" {
					names = strings.Split(list, ", ")
				}
				if !slices.Equal(names, annotated) {
					t.Errorf("%s:%d: %s, and the annotations are %v", file.Name, number+1, line, annotated)
				}
				annotated = nil
			}
		}
	}
}

// TestNodedb compares the stub of nodedb with the module's reference.
func TestNodedb(t *testing.T) {
	const source = "../../nodedb/lua/nodedb/api.lua"
	file, err := os.Open(source)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	chunk, err := luasyntax.Parse(file, source)
	if err != nil {
		t.Fatal(err)
	}
	want := nodedbStub(t, chunk[0].(*ast.ReturnStmt).Exprs[0].(*ast.TableExpr))
	if *update {
		if err := os.WriteFile("nodedb.lua", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if nodedbText != want {
		t.Errorf("nodedb.lua differs from %s; run go test ./script/stubs -update", source)
	}
}

var call = regexp.MustCompile(`^(nodedb|node)([.:])(\w+)\((.*)\)$`)

// nodedbStub prints the sections of the reference. In the engine the store is open, so that the
// functions of the first section are absent.
func nodedbStub(t *testing.T, sections *ast.TableExpr) string {
	var b strings.Builder
	b.WriteString("---@meta nodedb\n\n---A hierarchical, transactional database.\n---@class nodedblib\nlocal nodedb = {}\n\n" +
		"---A node: a name and subscripts. Every field is a subnode; __ is the value.\n---@class node\n---@field [string] any\n---@field [number] any\nlocal node = {}\n")
	functions := 0
	for _, section := range sections.Fields[1:] {
		for _, row := range section.Value.(*ast.TableExpr).Fields {
			cells, ok := row.Value.(*ast.TableExpr)
			if !ok || row.Key != nil {
				continue
			}
			signature := cells.Fields[0].Value.(*ast.StringExpr).Value
			doc := strings.ReplaceAll(cells.Fields[1].Value.(*ast.StringExpr).Value, "\n", " ")
			m := call.FindStringSubmatch(signature)
			if m == nil {
				continue // an operator, or a constant
			}
			functions++
			f := Function{Name: m[3], Params: nodedbParams(m[4]), Doc: doc}
			if strings.HasPrefix(doc, "Returns") || strings.Contains(doc, "returns") || strings.HasPrefix(doc, "Iterates") || strings.HasPrefix(doc, "Same as") {
				f.Returns = "any ..."
			}
			if m[1]+m[2]+m[3] == "nodedb.node" {
				f.Returns = "node"
			}
			fmt.Fprintf(&b, "\n%s%sfunction %s%s%s(%s) end\n", comment(f.Doc), f.annotations(), m[1], m[2], m[3], strings.Join(f.names(), ", "))
		}
	}
	if functions < 60 {
		t.Errorf("only %d functions", functions)
	}
	return b.String() + "\nreturn nodedb\n"
}

// nodedbParams turns "nodes [, timeout]" into parameters. Where an optional one precedes others, or
// a path is in front, the rest is any number of values.
func nodedbParams(list string) string {
	var params []string
	optional := false
	for _, p := range strings.Split(strings.ReplaceAll(list, " [,", ", ["), ",") {
		p = strings.TrimSpace(p)
		if p == "" || p == "]" {
			continue
		}
		optional = optional || strings.HasPrefix(p, "[")
		name := strings.Trim(p, "[] ")
		if at := strings.LastIndex(name, "| "); at >= 0 {
			name = name[at+2:]
		}
		if name = strings.TrimLeft(name, `\ `); strings.HasSuffix(name, "...") || optional && !strings.Contains(p, "[") && !strings.Contains(p, "]") {
			return strings.Join(append(params, "...: any"), "; ")
		}
		if optional {
			name += "?"
		}
		params = append(params, name+": any")
	}
	return strings.Join(params, "; ")
}
