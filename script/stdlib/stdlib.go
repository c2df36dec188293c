// Package stdlib holds what scripts can require besides their own files, written
// once for every engine: the modules hash, net, re and time, the global os, the limited
// log that the module log and print write to, and the reader of required files. The
// module json, which is about documents, belongs to each engine.
//
// Everything here is safe for concurrent use.
package stdlib

import (
	"context"
	"fmt"
	"slices"

	"github.com/perigeedb/perigee/script"
)

// Reserved returns the names of the modules that engines implement themselves.
func Reserved() []string { return []string{"json", "log", "stats"} }

// Modules returns the standard modules followed by own, with the clock and the replaced
// functions of a trial, which may be nil. It returns an error for a name that is taken.
func Modules(own []script.Module, trial *script.Trial) ([]script.Module, error) {
	all := []script.Module{hashModule(), netModule(), reModule(), timeModule(clockOf(trial))}
	for _, m := range own {
		taken := slices.Contains(Reserved(), m.Name) || m.Name == "os" ||
			slices.ContainsFunc(all, func(other script.Module) bool { return other.Name == m.Name })
		if taken {
			return nil, fmt.Errorf("register module %s: the name is taken", m.Name)
		}
		for name := range m.Pure {
			if m.Functions[name] != nil {
				return nil, fmt.Errorf("register module %s: %s is both in Functions and in Pure", m.Name, name)
			}
		}
		all = append(all, m)
	}
	for i := range all {
		all[i] = replaceable(all[i], trial)
	}
	return all, nil
}

// replaceable returns the module with functions that a trial can replace.
func replaceable(m script.Module, trial *script.Trial) script.Module {
	replace := trial.Replaces()
	if replace == nil {
		return m
	}
	wrap := func(functions map[string]script.Func) map[string]script.Func {
		wrapped := make(map[string]script.Func, len(functions))
		for name, original := range functions {
			name = m.Name + "." + name
			wrapped[name[len(m.Name)+1:]] = func(ctx context.Context, args []any) ([]any, error) {
				if other := replace(name); other != nil {
					return other(ctx, args)
				}
				return original(ctx, args)
			}
		}
		return wrapped
	}
	m.Functions, m.Pure = wrap(m.Functions), wrap(m.Pure)
	return m
}

// one returns a single result.
func one(value any) []any { return []any{value} }

// failure returns nil and an error message, as Lua functions do for errors in their
// data.
func failure(err error) []any { return []any{nil, err.Error()} }

// text returns argument i, counted from 0, as a string. It converts a number.
func text(args []any, i int) (string, error) {
	switch v := value(args, i).(type) {
	case string:
		return v, nil
	case float64:
		return fmt.Sprintf("%.14g", v), nil
	default:
		return "", wrong(i, "a string", v)
	}
}

// number returns argument i as a number.
func number(args []any, i int) (float64, error) {
	if x, ok := value(args, i).(float64); ok {
		return x, nil
	}
	return 0, wrong(i, "a number", value(args, i))
}

// optional is number with a default for a missing argument.
func optional(args []any, i int, otherwise float64) (float64, error) {
	if value(args, i) == nil {
		return otherwise, nil
	}
	return number(args, i)
}

func value(args []any, i int) any {
	if i >= len(args) {
		return nil
	}
	return args[i]
}

func wrong(i int, want string, got any) error {
	return fmt.Errorf("argument %d must be %s, not %s", i+1, want, kindOf(got))
}

func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "nil"
	case bool:
		return "a boolean"
	case string:
		return "a string"
	case []any, map[string]any:
		return "a table"
	}
	return "a number"
}
