// Package luasyntax parses Lua 5.1 with gopher-lua's parser.
package luasyntax

import (
	"fmt"
	"io"
	"reflect"
	"slices"

	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"
)

// depthMax is how deep the syntax of a script may be nested. The compiler and luacheck recurse into
// the tree, and Go ends the process when a stack reaches 1 GB.
const depthMax = 1_000

// Parse parses the text of a script. name is quoted in errors.
func Parse(text io.Reader, name string) ([]ast.Stmt, error) {
	chunk, err := parse.Parse(text, name)
	if err != nil {
		return nil, err
	}
	if line := deeper(reflect.ValueOf(chunk), depthMax, 0); line >= 0 {
		return nil, fmt.Errorf("%s line:%d: the code is nested deeper than %d; split it into functions or variables", name, line, depthMax)
	}
	return chunk, nil
}

// deeper returns the line, or 0 where the tree has none, at which a syntax tree has more than
// `left` nodes inside each other, or -1.
func deeper(v reflect.Value, left, line int) int {
	switch v.Kind() {
	case reflect.Interface:
		return deeper(v.Elem(), left, line)
	case reflect.Slice:
		for i := range v.Len() {
			if found := deeper(v.Index(i), left, line); found >= 0 {
				return found
			}
		}
	case reflect.Pointer:
		if v.IsNil() {
			return -1
		}
		if node, ok := v.Interface().(ast.PositionHolder); ok {
			line = max(line, node.Line())
		}
		if left == 0 {
			return line
		}
		return deeper(v.Elem(), left-1, line)
	case reflect.Struct:
		for i := range v.NumField() {
			if !v.Type().Field(i).IsExported() {
				continue
			}
			if found := deeper(v.Field(i), left, line); found >= 0 {
				return found
			}
		}
	}
	return -1
}

// ReplaceBlocks replaces each block of statements in a syntax tree, inner blocks first, by what
// replace returns for it.
func ReplaceBlocks(chunk []ast.Stmt, replace func(block []ast.Stmt) []ast.Stmt) []ast.Stmt {
	replaceBlocks(reflect.ValueOf(&chunk).Elem(), replace)
	return chunk
}

var block = reflect.TypeFor[[]ast.Stmt]()

func replaceBlocks(v reflect.Value, replace func([]ast.Stmt) []ast.Stmt) {
	switch v.Kind() {
	case reflect.Interface, reflect.Pointer:
		if !v.IsNil() {
			replaceBlocks(v.Elem(), replace)
		}
	case reflect.Slice:
		for i := range v.Len() {
			replaceBlocks(v.Index(i), replace)
		}
		if v.Type() == block && v.CanSet() {
			v.Set(reflect.ValueOf(replace(v.Interface().([]ast.Stmt))))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				replaceBlocks(v.Field(i), replace)
			}
		}
	}
}

// A Statement is one statement with its first and its last line, which is the one of its last
// part.
type Statement struct{ First, Last int }

// Statements returns the statements of a text that run as code, in the order of their first
// lines, and without those that declare variables only: engines make no code of them.
func Statements(text io.Reader, name string) ([]Statement, error) {
	chunk, err := Parse(text, name)
	if err != nil {
		return nil, err
	}
	var all []Statement
	ReplaceBlocks(chunk, func(stmts []ast.Stmt) []ast.Stmt {
		for _, stmt := range stmts {
			if !isDeclaration(stmt) {
				all = append(all, Statement{stmt.Line(), lastLine(reflect.ValueOf(stmt))})
			}
		}
		return stmts
	})
	slices.SortStableFunc(all, func(a, b Statement) int { return a.First - b.First })
	return all, nil
}

func isDeclaration(stmt ast.Stmt) bool {
	local, ok := stmt.(*ast.LocalAssignStmt)
	return ok && !slices.ContainsFunc(local.Exprs, func(e ast.Expr) bool {
		_, isNil := e.(*ast.NilExpr)
		return !isNil
	})
}

// lastLine returns the greatest line in a syntax tree.
func lastLine(v reflect.Value) (last int) {
	switch v.Kind() {
	case reflect.Interface:
		return lastLine(v.Elem())
	case reflect.Slice:
		for i := range v.Len() {
			last = max(last, lastLine(v.Index(i)))
		}
	case reflect.Pointer:
		if v.IsNil() {
			return 0
		}
		if node, ok := v.Interface().(ast.PositionHolder); ok {
			last = max(node.Line(), node.LastLine())
		}
		return max(last, lastLine(v.Elem()))
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				last = max(last, lastLine(v.Field(i)))
			}
		}
	}
	return last
}
