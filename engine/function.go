package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/computed"
)

// A Function is a function of the configuration, which SQL calls with a row, or which
// computes a column of a table.
type Function struct {
	Table  string // whose column of that name it computes; empty for a function of SQL
	Name   string
	Type   event.Type
	Script script.Script // of SQL: loaded for values; of a table: adds the column as a field to rows
}

// A FunctionService is a Service that calls the functions of the configuration.
type FunctionService interface {
	Service
	// SetFunctions replaces the functions, before Start and when Reload changes them. It
	// closes the previous functions; running calls of them may fail.
	SetFunctions(functions []Function)
}

// addFunction loads a function.
func (a *Assembly) addFunction(ctx context.Context, of config.Computed) error {
	typ, _ := event.ParseType(of.Type) // the configuration has checked it
	if computed.IsBuilt(of.Func) || strings.HasSuffix(of.Func, ".so") {
		return of.At(errors.New("a function of SQL is Lua code, its path or its address"), "")
	}
	if !slices.Contains(computed.Types(), typ) {
		return of.At(errors.New("a function cannot be of type "+of.Type), "")
	}
	set := &scriptSet{languages: a.opts.Kinds.Languages, hasScript: true, now: time.Now, sinks: []script.Sink{{}}, log: a.opts.Log.With("function", of.Name)}
	source := scriptSource{language: set.languages[0].Name, function: of.FuncName, location: of, commentHint: of.CommentHint(of.Func), options: script.Options{
		Sinks: set.sinks, ReturnsValue: true, Log: set.log, Modules: a.opts.Kinds.Modules, Stats: a.shared.stats, Pool: a.shared.pool,
	}}
	if err := set.add(source, of.Func, a.Config.Base, "function "+of.Name); err != nil {
		return err
	}
	loaded, err := set.load(ctx, a.loader, set.log)
	if err != nil {
		return err
	}
	a.functions = append(a.functions, Function{Name: of.Name, Type: typ, Script: loaded})
	return nil
}

// addTableColumn loads the function of a computed column of a table.
func (a *Assembly) addTableColumn(ctx context.Context, table string, of config.Computed) error {
	if computed.IsBuilt(of.Func) {
		return of.At(errors.New(of.Func+" does not compute from the row"), "let the pipelines that write the table compute it")
	}
	set := &scriptSet{pipeline: table, now: time.Now, languages: a.opts.Kinds.Languages, sinks: []script.Sink{{}}, log: a.opts.Log.With("table", table, "column", of.Name)}
	if err := a.locateColumn(set, of, set.log); err != nil {
		return err
	}
	loaded, err := set.load(ctx, a.loader, set.log)
	if err != nil {
		return err
	}
	a.functions = append(a.functions, Function{Table: table, Name: of.Name, Type: set.columns[0].Type, Script: loaded})
	return nil
}

// setFunctions gives the functions of a to the services, and returns those before, for the caller
// to close.
func (e *Engine) setFunctions(a *Assembly) (before []Function) {
	for _, s := range e.opts.Services {
		if s, ok := s.(FunctionService); ok {
			s.SetFunctions(a.functions)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	before = e.functions
	e.functions, a.functions = a.functions, nil
	return before
}

func closeFunctions(functions []Function) error {
	var errs []error
	for _, f := range functions {
		errs = append(errs, f.Script.Close())
	}
	return errors.Join(errs...)
}
