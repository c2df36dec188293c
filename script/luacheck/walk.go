package luacheck

import "github.com/yuin/gopher-lua/ast"

// A scope is the locals of a block.
type scope struct {
	outer *scope
	names []string
}

func (s *scope) add(names ...string) { s.names = append(s.names, names...) }

func (s *scope) has(name string) bool {
	for ; s != nil; s = s.outer {
		for _, n := range s.names {
			if n == name {
				return true
			}
		}
	}
	return false
}

func (s *scope) all() (names []string) {
	for ; s != nil; s = s.outer {
		names = append(names, s.names...)
	}
	return names
}

func (c *checker) block(s *scope, stmts []ast.Stmt) {
	for _, stmt := range stmts {
		c.statement(s, stmt)
	}
}

func (c *checker) statement(s *scope, stmt ast.Stmt) {
	switch stmt := stmt.(type) {
	case *ast.AssignStmt:
		c.expressions(s, stmt.Rhs)
		for _, target := range stmt.Lhs {
			c.assign(s, target)
		}
	case *ast.LocalAssignStmt:
		c.local(s, stmt)
	case *ast.FuncCallStmt:
		c.expression(s, stmt.Expr, false)
	case *ast.DoBlockStmt:
		c.block(&scope{outer: s}, stmt.Stmts)
	case *ast.WhileStmt:
		c.expression(s, stmt.Condition, true)
		c.block(&scope{outer: s}, stmt.Stmts)
	case *ast.RepeatStmt:
		body := &scope{outer: s}
		c.block(body, stmt.Stmts)
		c.expression(body, stmt.Condition, true)
	case *ast.IfStmt:
		c.expression(s, stmt.Condition, true)
		c.block(&scope{outer: s}, stmt.Then)
		c.block(&scope{outer: s}, stmt.Else)
	case *ast.NumberForStmt:
		c.expressions(s, []ast.Expr{stmt.Init, stmt.Limit, stmt.Step})
		c.block(&scope{outer: s, names: []string{stmt.Name}}, stmt.Stmts)
	case *ast.GenericForStmt:
		c.expressions(s, stmt.Exprs)
		c.block(&scope{outer: s, names: stmt.Names}, stmt.Stmts)
	case *ast.FuncDefStmt:
		c.define(s, stmt)
	case *ast.ReturnStmt:
		c.expressions(s, stmt.Exprs)
	}
}

// local declares names. A function sees its own name: the syntax tree does not tell
// local function f from local f = function.
func (c *checker) local(s *scope, stmt *ast.LocalAssignStmt) {
	if len(stmt.Exprs) == 1 {
		if _, isFunction := stmt.Exprs[0].(*ast.FunctionExpr); isFunction {
			s.add(stmt.Names...)
		}
	}
	c.expressions(s, stmt.Exprs)
	s.add(stmt.Names...)
}

// define reads function a.b.c() and function a:b().
func (c *checker) define(s *scope, stmt *ast.FuncDefStmt) {
	body := &scope{outer: s}
	switch {
	case stmt.Name.Receiver != nil:
		c.expression(s, stmt.Name.Receiver, false)
		body.add("self")
	default:
		c.assign(s, stmt.Name.Func)
	}
	c.function(body, stmt.Func)
}

func (c *checker) function(s *scope, f *ast.FunctionExpr) {
	body := &scope{outer: s, names: []string{"arg"}}
	if f.ParList != nil {
		body.add(f.ParList.Names...)
	}
	c.block(body, f.Stmts)
}

// assign reads the target of an assignment.
func (c *checker) assign(s *scope, target ast.Expr) {
	switch target := target.(type) {
	case *ast.IdentExpr:
		if !s.has(target.Value) {
			c.setGlobal(target.Value)
		}
	case *ast.AttrGetExpr:
		if !c.isGlobal(s, target.Object, "_G") {
			c.expression(s, target.Object, false)
			c.expression(s, target.Key, false)
			return
		}
		if key, ok := target.Key.(*ast.StringExpr); ok {
			c.setGlobal(key.Value)
			return
		}
		c.opaque = true
		c.expression(s, target.Key, false)
	}
}

func (c *checker) setGlobal(name string) {
	if c.redefined == nil {
		c.redefined = make(map[string]bool)
	}
	c.set[name], c.redefined[name] = true, true
}

// isGlobal tells whether an expression is the global of a name.
func (c *checker) isGlobal(s *scope, e ast.Expr, name string) bool {
	ident, ok := e.(*ast.IdentExpr)
	return ok && ident.Value == name && !s.has(name)
}

func (c *checker) expressions(s *scope, all []ast.Expr) {
	for _, e := range all {
		c.expression(s, e, false)
	}
}

// expression reads an expression. Where it is tested, a global that is nil is no mistake.
func (c *checker) expression(s *scope, e ast.Expr, tested bool) {
	switch e := e.(type) {
	case *ast.IdentExpr:
		c.read(s, e, tested)
	case *ast.AttrGetExpr:
		if c.isGlobal(s, e.Object, "_G") { // _G.name asks whether there is one
			c.expression(s, e.Key, false)
			return
		}
		c.expression(s, e.Object, false)
		c.expression(s, e.Key, false)
	case *ast.TableExpr:
		for _, field := range e.Fields {
			c.expression(s, field.Key, false)
			c.expression(s, field.Value, false)
		}
	case *ast.FuncCallExpr:
		c.call(s, e)
	case *ast.LogicalOpExpr:
		c.expression(s, e.Lhs, true)
		c.expression(s, e.Rhs, tested)
	case *ast.RelationalOpExpr:
		equality := e.Operator == "==" || e.Operator == "~="
		c.expression(s, e.Lhs, equality && isNil(e.Rhs))
		c.expression(s, e.Rhs, equality && isNil(e.Lhs))
	case *ast.StringConcatOpExpr:
		c.expressions(s, []ast.Expr{e.Lhs, e.Rhs})
	case *ast.ArithmeticOpExpr:
		c.expressions(s, []ast.Expr{e.Lhs, e.Rhs})
	case *ast.UnaryMinusOpExpr:
		c.expression(s, e.Expr, false)
	case *ast.UnaryNotOpExpr:
		c.expression(s, e.Expr, true)
	case *ast.UnaryLenOpExpr:
		c.expression(s, e.Expr, false)
	case *ast.FunctionExpr:
		c.function(s, e)
	}
}

func isNil(e ast.Expr) bool {
	_, ok := e.(*ast.NilExpr)
	return ok
}

func (c *checker) read(s *scope, e *ast.IdentExpr, tested bool) {
	switch {
	case s.has(e.Value):
	case e.Value == "_G":
		c.opaque = true // it may be set under another name
	case !tested:
		c.reads = append(c.reads, read{file: c.name, name: e.Value, line: e.Line(), locals: s.all()})
	}
}

func (c *checker) call(s *scope, e *ast.FuncCallExpr) {
	if e.Func == nil {
		c.expression(s, e.Receiver, false)
		c.expressions(s, e.Args)
		return
	}
	c.expression(s, e.Func, false)
	for _, arg := range e.Args {
		c.expression(s, arg, c.isGlobal(s, e.Func, "type"))
	}
	switch {
	case len(e.Args) == 0:
	case c.isGlobal(s, e.Func, "to"):
		c.route(e.Line(), e.Args[0])
	case c.isGlobal(s, e.Func, "require"):
		if name, ok := e.Args[0].(*ast.StringExpr); ok {
			c.require(name.Value, e.Line())
		} else {
			c.opaque = true
		}
	case c.isGlobal(s, e.Func, "pcall") && len(e.Args) > 1 && c.isGlobal(s, e.Args[0], "require"):
		c.opaque = true // the module may be absent, or set globals
	}
}
