// Package luacheck finds mistakes in Lua scripts that loading does not find, because they
// are in code that only an event runs: globals that nothing sets, sinks that do not exist,
// modules that do not exist. It reads the text and runs nothing.
//
// It never reports correct code: where a name may be set in a way that it cannot see, or
// where it cannot parse a file, it reports nothing. Its functions are safe for concurrent
// use.
package luacheck

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/yuin/gopher-lua/ast"

	"github.com/perigeedb/perigee/internal/nearest"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/luasyntax"
	"github.com/perigeedb/perigee/script/stdlib"
)

// Check returns the mistakes in a script, and in the files that it requires, by file and
// line. opts are those that the script is loaded with.
func Check(code script.Code, opts script.Options) []*script.Error {
	c := checker{opts: opts, set: make(map[string]bool), seen: make(map[string]bool), modules: stdlib.Reserved()}
	modules, err := stdlib.Modules(opts.Modules, nil)
	if err != nil {
		return nil // the script does not load
	}
	for _, m := range modules {
		c.modules = append(c.modules, m.Name)
	}
	if opts.Extension != nil {
		c.modules = append(c.modules, opts.Extension.Modules()...)
	}
	c.source = stdlib.NewSource(code, modules)
	for _, name := range Globals() {
		c.set[name] = true
	}
	if opts.ReturnsValue { // a computed column is for no sink
		delete(c.set, "to")
	}
	c.file(code.Name, code.Text)
	if !c.opaque {
		c.checkReads()
	}
	if c.redefined["to"] {
		c.routes = nil
	}
	found := slices.Concat(c.found, c.routes)
	slices.SortStableFunc(found, func(a, b *script.Error) int {
		if a.Script != b.Script {
			return strings.Compare(a.Script, b.Script)
		}
		return a.Line - b.Line
	})
	return found
}

// Globals returns the names that the engines define.
func Globals() []string {
	return []string{
		"_G", "_VERSION", "assert", "bit", "coroutine", "error", "getmetatable", "ipairs", "json", "math", "next", "os", "pairs",
		"pcall", "print", "rawequal", "rawlen", "require", "select", "setmetatable", "string", "table", "to", "tonumber",
		"tostring", "type", "unpack", "xpcall",
	}
}

// absent are the globals of Lua and LuaJIT that the sandbox leaves out.
var absent = []string{
	"collectgarbage", "debug", "dofile", "ffi", "gcinfo", "getfenv", "io", "jit", "load", "loadfile", "loadstring", "module",
	"newproxy", "package", "rawget", "rawset", "setfenv",
}

// A checker reads a script and what it requires.
type checker struct {
	opts    script.Options
	modules []string // that require knows without a file
	source  *stdlib.Source
	name    string // of the file that is read

	set       map[string]bool // globals that something sets
	redefined map[string]bool // of those, which the code itself sets
	reads     []read
	routes    []*script.Error // unknown sinks
	found     []*script.Error
	seen      map[string]bool // modules that were required
	opaque    bool            // the code may set globals in a way that cannot be seen
}

// A read of a global.
type read struct {
	file, name string
	line       int
	locals     []string // in scope
}

// file reads one file. The engine has compiled it, so that what does not parse here is
// syntax that only LuaJIT knows.
func (c *checker) file(name string, text []byte) {
	chunk, err := luasyntax.Parse(bytes.NewReader(text), name)
	if err != nil {
		c.opaque = true
		return
	}
	outer := c.name
	c.name = name
	c.block(&scope{}, chunk)
	c.name = outer
}

func (c *checker) report(line int, hint, format string, args ...any) {
	c.found = append(c.found, &script.Error{Script: c.name, Line: line, Message: fmt.Sprintf(format, args...), Hint: hint})
}

// checkReads reports each global that nothing sets, where it is read first.
func (c *checker) checkReads() {
	reported := make(map[string]bool)
	for _, r := range c.reads {
		if c.set[r.name] || reported[r.name] {
			continue
		}
		reported[r.name] = true
		c.name = r.file
		c.report(r.line, c.hint(r), "the global %s is never set", r.name)
	}
}

// hint says what the name may have been meant to be.
func (c *checker) hint(r read) string {
	if slices.Contains(c.modules, r.name) {
		return fmt.Sprintf("write: local %s = require %q", r.name, r.name)
	}
	if slices.Contains(absent, r.name) {
		return "scripts run in a sandbox without it"
	}
	known := slices.Clone(r.locals)
	for name := range c.set {
		known = append(known, name)
	}
	slices.Sort(known)
	if near := nearest.Name(r.name, known); near != "" {
		return fmt.Sprintf("did you mean %s?", near)
	}
	return ""
}

// require reads the file of a module once.
func (c *checker) require(name string, line int) {
	if slices.Contains(c.modules, name) || c.seen[name] {
		return
	}
	c.seen[name] = true
	text, path, err := c.source.Require(name)
	if err != nil {
		c.opaque = true // what it would have set
		c.report(line, "", "%v", err)
		return
	}
	c.file(path, text)
}

// route checks the sinks that a call of to names.
func (c *checker) route(line int, sinks ast.Expr) {
	var names []string
	switch sinks := sinks.(type) {
	case *ast.StringExpr:
		names = []string{sinks.Value}
	case *ast.TableExpr:
		for _, field := range sinks.Fields {
			if name, ok := field.Value.(*ast.StringExpr); ok {
				names = append(names, name.Value)
			}
		}
	}
	if _, err := c.opts.Route(names...); err != nil {
		c.routes = append(c.routes, &script.Error{Script: c.name, Line: line, Message: err.Error()})
	}
}
