// Package stubs describes what a script can use, for editors and for the reference. LuaCATS
// definitions and the tables of docs/reference/modules.md are printed from the same list. Its
// functions are safe for concurrent use.
package stubs

import (
	_ "embed" // the stub of nodedb
	"fmt"
	"regexp"
	"strings"
)

// A Module is a module that scripts can require, or a global table.
type Module struct {
	Name      string
	Global    bool // scripts need not require it
	Doc       string
	Functions []Function
	Values    []Value
	Objects   []Object // that its functions return
}

// An Object is an object with methods.
type Object struct {
	Name    string // of its class
	Doc     string
	Methods []Function
}

// A Function is a function of a module.
type Function struct {
	Name    string
	Params  string // name: type, …; a name with ? is optional; ...: type takes any number
	Returns string // type name, …; a type with ? may be nil
	Doc     string // in Markdown, as the end of a row of a table
}

// A Value is a field of a module that is not a function.
type Value struct{ Name, Type, Doc string }

// A File is a file with definitions.
type File struct{ Name, Text string }

//go:embed nodedb.lua
var nodedbText string

//go:embed globals.lua
var globalsText string

// Files returns the definitions: a file for each module, because editors find a module by the name
// of its file, and one with the globals.
func Files() []File {
	files := []File{{"globals.lua", globalsText}, {"nodedb.lua", nodedbText}}
	for _, m := range append(Modules(), StateModules()...) {
		files = append(files, File{m.Name + ".lua", m.definition()})
	}
	return files
}

// definition returns the LuaCATS definition of a module.
func (m *Module) definition() string {
	var b strings.Builder
	name := m.Name
	if m.Global {
		fmt.Fprintf(&b, "---@meta %s\n\n%s---@class %slib\n%s = {}\n", m.Name, comment(m.Doc), name, name)
	} else {
		fmt.Fprintf(&b, "---@meta %s\n\n%s---@class %slib\nlocal %s = {}\n", m.Name, comment(m.Doc), name, name)
	}
	for _, v := range m.Values {
		fmt.Fprintf(&b, "\n%s---@type %s\n%s.%s = nil\n", comment(v.Doc), v.Type, name, v.Name)
	}
	for _, f := range m.Functions {
		b.WriteString("\n" + comment(f.Doc) + f.annotations() + fmt.Sprintf("function %s.%s(%s) end\n", name, f.Name, strings.Join(f.names(), ", ")))
	}
	for _, o := range m.Objects {
		fmt.Fprintf(&b, "\n%s---@class %s\nlocal %s = {}\n", comment(o.Doc), o.Name, o.Name)
		for _, f := range o.Methods {
			b.WriteString("\n" + comment(f.Doc) + f.annotations() + fmt.Sprintf("function %s:%s(%s) end\n", o.Name, f.Name, strings.Join(f.names(), ", ")))
		}
	}
	return b.String() + "\nreturn " + name + "\n"
}

func (f *Function) annotations() string {
	var b strings.Builder
	for _, p := range split(f.Params) {
		name, kind, _ := strings.Cut(p, ": ")
		fmt.Fprintf(&b, "---@param %s %s\n", name, kind)
	}
	for _, r := range split(f.Returns) {
		fmt.Fprintf(&b, "---@return %s\n", r)
	}
	return b.String()
}

// names returns the names of the parameters.
func (f *Function) names() (names []string) {
	for _, p := range split(f.Params) {
		name, _, _ := strings.Cut(p, ": ")
		names = append(names, strings.TrimSuffix(name, "?"))
	}
	return names
}

// split splits a list at semicolons: types have commas.
func split(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, "; ")
}

var link = regexp.MustCompile(`\[([^\]]+)\]\([^)]+\.md[^)]*\)|\[([^\]]+)\]\(#[^)]*\)`)

// comment returns a text as a comment of a definition, without links between pages.
func comment(text string) string {
	return "---" + strings.ReplaceAll(link.ReplaceAllString(text, "$1$2"), "\n", "\n---") + "\n"
}
