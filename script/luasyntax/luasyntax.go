// Package luasyntax parses Lua 5.1 with gopher-lua's parser.
package luasyntax

import (
	"fmt"
	"io"
	"reflect"

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
