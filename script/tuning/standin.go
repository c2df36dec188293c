package tuning

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/perigeedb/perigee/script"
)

// standInModules returns modules with stand-ins for the user's functions.
func standInModules(waits map[string]time.Duration) ([]script.Module, error) {
	byName := map[string]script.Module{}
	for _, name := range slices.Sorted(maps.Keys(waits)) {
		module, function, ok := strings.Cut(name, ".")
		if !ok || module == "" || function == "" {
			return nil, fmt.Errorf("invalid function name %q; use MODULE.FUNCTION, as in cache.get", name)
		}
		m, known := byName[module]
		if !known {
			m = script.Module{Name: module, Functions: map[string]script.Func{}}
			byName[module] = m
		}
		m.Functions[function] = waiting(waits[name])
	}
	return slices.SortedFunc(maps.Values(byName), func(a, b script.Module) int { return strings.Compare(a.Name, b.Name) }), nil
}

// waiting returns a function that waits for long and returns its arguments.
func waiting(long time.Duration) script.Func {
	return func(ctx context.Context, args []any) ([]any, error) {
		if long <= 0 {
			return args, nil
		}
		timer := time.NewTimer(long)
		defer timer.Stop()
		select {
		case <-timer.C:
			return args, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
