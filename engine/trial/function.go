package trial

import (
	"context"
	"errors"
	"slices"

	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/stdlib"
)

// absent is a function that this program does not have, while nothing replaces it.
func absent(context.Context, []any) ([]any, error) {
	return nil, errors.New("this program does not have the function, and nothing replaces it here")
}

// FunctionNames returns the functions in Go that code can call and Replace can replace, sorted:
// those of the standard modules, of the library os, and of own modules.
func FunctionNames(own []script.Module) (names []string) {
	modules, err := stdlib.Modules(own, nil)
	if err != nil {
		return nil // the script does not load
	}
	for _, m := range append(modules, stdlib.OS(nil)) {
		for name := range m.Functions {
			names = append(names, m.Name+"."+name)
		}
		for name := range m.Pure {
			names = append(names, m.Name+"."+name)
		}
	}
	slices.Sort(names)
	return names
}

// IsStandard reports whether every program has a module, or an engine implements it.
func IsStandard(module string) bool {
	if slices.Contains(stdlib.Reserved(), module) || module == "os" {
		return true
	}
	modules, _ := stdlib.Modules(nil, nil) // only own modules have faults
	return hasModule(modules, module)
}

// IsReplaceable reports whether the functions of a module can be replaced. Those that engines
// implement themselves, such as json, cannot.
func IsReplaceable(module string) bool { return !slices.Contains(stdlib.Reserved(), module) }
