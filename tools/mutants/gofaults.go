package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
)

// durableCalls are methods whose absence loses data or leaks without any other sign.
var durableCalls = map[string]bool{
	"Sync": true, "Close": true, "Truncate": true, "Flush": true, "SyncDir": true, "Commit": true, "Rollback": true,
}

// goFaults lists the faults that a Go file can have.
func goFaults(path string, text []byte) ([]fault, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	g := &goFile{path: path, text: text, offset: func(p token.Pos) int { return files.Position(p).Offset }}
	ast.Inspect(file, g.visit)
	return g.found, nil
}

type goFile struct {
	path   string
	text   []byte
	offset func(token.Pos) int
	bound  ast.Expr // a comparison that decides the same for equal values
	found  []fault
}

func (g *goFile) add(from, to token.Pos, kind, after string) {
	g.found = append(g.found, newFault(g.path, g.text, g.offset(from), g.offset(to), kind, after))
}

func (g *goFile) source(n ast.Node) string {
	return string(g.text[g.offset(n.Pos()):g.offset(n.End())])
}

func (g *goFile) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.CallExpr:
		g.durable(n)
		return !isRoom(n)
	case *ast.GenDecl:
		return n.Tok != token.IMPORT
	case *ast.Field:
		return false // types and tags
	case *ast.BinaryExpr:
		g.binary(n)
	case *ast.IfStmt:
		if isErrorCheck(n.Cond) {
			g.add(n.Cond.Pos(), n.Cond.End(), kindError, "("+g.source(n.Cond)+") && false")
		} else {
			g.add(n.Cond.Pos(), n.Cond.End(), kindNegate, "!("+g.source(n.Cond)+")")
		}
		if g.isBound(n) {
			g.bound = n.Cond
		}
	case *ast.BasicLit:
		if value, err := strconv.ParseInt(n.Value, 10, 32); err == nil && n.Kind == token.INT {
			g.add(n.Pos(), n.End(), kindOffByOne, strconv.FormatInt(value+1, 10))
		}
	case *ast.BlockStmt:
		g.statements(n.List)
	case *ast.CaseClause:
		g.statements(n.Body)
	case *ast.CommClause:
		g.statements(n.Body)
	case *ast.DeferStmt:
		if _, ok := n.Call.Fun.(*ast.SelectorExpr); ok {
			return false // the whole statement is removed
		}
	}
	return true
}

func (g *goFile) binary(n *ast.BinaryExpr) {
	swap, ok := operators[n.Op.String()]
	if !ok || n == g.bound || swap.kind == kindSign && (isText(n.X) || isText(n.Y)) || isNil(n.Y) {
		return // comparisons with nil are negated conditions or dropped error checks
	}
	g.add(n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), swap.kind, swap.after)
}

// durable removes a call of Sync and its like where it gives an error: the error is nil.
func (g *goFile) durable(n *ast.CallExpr) {
	if method, ok := n.Fun.(*ast.SelectorExpr); ok && durableCalls[method.Sel.Name] && len(n.Args) <= 1 {
		g.add(n.Pos(), n.End(), kindDurable, "error(nil)")
	}
}

// statements removes calls made for their effect, and swaps neighbours.
func (g *goFile) statements(list []ast.Stmt) {
	for i, s := range list {
		switch s := s.(type) {
		case *ast.ExprStmt, *ast.DeferStmt, *ast.IncDecStmt:
			g.add(s.Pos(), s.End(), kindStatement, "")
		case *ast.AssignStmt:
			if s.Tok != token.DEFINE {
				g.add(s.Pos(), s.End(), kindStatement, "")
			}
		}
		if i+1 < len(list) && canSwap(s) && canSwap(list[i+1]) && shareName(s, list[i+1]) {
			next := list[i+1]
			between := string(g.text[g.offset(s.End()):g.offset(next.Pos())])
			g.add(s.Pos(), next.End(), kindSwap, g.source(next)+between+g.source(s))
			g.found[len(g.found)-1].commutes = commute(g.source(s), g.source(next))
		}
	}
}

// isBound is true for if a < b { a = b }, where equal values do the same on both sides.
func (g *goFile) isBound(n *ast.IfStmt) bool {
	cond, ok := n.Cond.(*ast.BinaryExpr)
	if !ok || operators[cond.Op.String()].kind != kindBoundary || n.Init != nil || n.Else != nil || len(n.Body.List) != 1 {
		return false
	}
	set, ok := n.Body.List[0].(*ast.AssignStmt)
	if !ok || set.Tok != token.ASSIGN || len(set.Lhs) != 1 || len(set.Rhs) != 1 {
		return false
	}
	a, b, left, right := g.source(cond.X), g.source(cond.Y), g.source(set.Lhs[0]), g.source(set.Rhs[0])
	return a == left && b == right || a == right && b == left
}

// isRoom is true for calls whose numbers only say how much memory to take at first.
func isRoom(n *ast.CallExpr) bool {
	switch f := n.Fun.(type) {
	case *ast.Ident:
		if f.Name != "make" || len(n.Args) < 2 {
			return false
		}
		_, isMap := n.Args[0].(*ast.MapType)
		return isMap || len(n.Args) == 3 && isZero(n.Args[1])
	case *ast.SelectorExpr:
		return f.Sel.Name == "Grow" || f.Sel.Name == "NewReaderSize" || f.Sel.Name == "NewWriterSize"
	}
	return false
}

func isZero(e ast.Expr) bool {
	n, ok := e.(*ast.BasicLit)
	return ok && n.Value == "0"
}

func canSwap(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.ExprStmt, *ast.IncDecStmt:
		return true
	case *ast.AssignStmt:
		return s.Tok != token.DEFINE
	case *ast.IfStmt:
		return isErrorCheck(s.Cond) && s.Init != nil // if err := f(); err != nil { … }
	}
	return false
}

// shareName tells whether both statements name the same variable or function: the order of
// others cannot matter.
func shareName(a, b ast.Stmt) bool {
	names := map[string]bool{}
	ast.Inspect(a, func(n ast.Node) bool {
		if name, ok := n.(*ast.Ident); ok && name.Name != "_" {
			names[name.Name] = true
		}
		return true
	})
	shared := false
	ast.Inspect(b, func(n ast.Node) bool {
		if name, ok := n.(*ast.Ident); ok {
			shared = shared || names[name.Name]
		}
		return !shared
	})
	return shared
}

// isErrorCheck tells whether the condition is err != nil, or that and more.
func isErrorCheck(cond ast.Expr) bool {
	b, ok := cond.(*ast.BinaryExpr)
	if !ok {
		return false
	}
	if b.Op == token.LAND || b.Op == token.LOR {
		return isErrorCheck(b.X) || isErrorCheck(b.Y)
	}
	name, ok := b.X.(*ast.Ident)
	return ok && b.Op == token.NEQ && isNil(b.Y) && name.Name == "err"
}

func isNil(e ast.Expr) bool {
	name, ok := e.(*ast.Ident)
	return ok && name.Name == "nil"
}

func isText(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return e.Kind == token.STRING
	case *ast.BinaryExpr:
		return isText(e.X) || isText(e.Y)
	}
	return false
}
