package gopherlua

import (
	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/ast"

	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/luasyntax"
)

// lineFunction is the global function that reports a line. It exists only while lines are
// collected.
const lineFunction = "perigee_line"

// reportLines adds to each statement a call before it that reports its line: gopher-lua has no
// hooks.
func reportLines(chunk []ast.Stmt, file string) []ast.Stmt {
	return luasyntax.ReplaceBlocks(chunk, func(block []ast.Stmt) []ast.Stmt {
		reported := make([]ast.Stmt, 0, 2*len(block))
		for _, stmt := range block {
			reported = append(reported, lineCall(file, stmt.Line()), stmt)
		}
		return reported
	})
}

func lineCall(file string, line int) ast.Stmt {
	f := &ast.IdentExpr{Value: lineFunction}
	call := &ast.FuncCallExpr{Func: f, Args: []ast.Expr{&ast.StringExpr{Value: file}, &ast.NumberExpr{Value: lua.LNumber(line).String()}}}
	stmt := &ast.FuncCallStmt{Expr: call}
	for _, node := range []ast.PositionHolder{f, call, stmt, call.Args[0], call.Args[1]} {
		node.SetLine(line)
		node.SetLastLine(line)
	}
	return stmt
}

// lineReporter returns the function that adds lines to c.
func lineReporter(c *script.Coverage) lua.LGFunction {
	return func(l *lua.LState) int {
		c.Add(l.CheckString(1), l.CheckInt(2))
		return 0
	}
}
