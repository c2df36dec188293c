package stdlib

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"github.com/perigeedb/perigee/internal/document/pure"
	"github.com/perigeedb/perigee/script"
)

// depthMax bounds how deep what a function returns may be nested.
const depthMax = 512

// Call calls a function. It turns a panic into an error, and converts the results to
// the types that a Func receives. Errors begin with name, as in "hash.md5".
func Call(ctx context.Context, name string, f script.Func, args []any) (results []any, err error) {
	defer func() {
		if p := recover(); p != nil {
			results, err = nil, fmt.Errorf("%s: panic: %v", name, p)
		}
	}()
	results, err = f(ctx, args)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(results) == 0 {
		return nil, nil
	}
	plain := make([]any, len(results))
	for i, v := range results {
		if plain[i], err = Plain(v, depthMax); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return plain, nil
}

// Plain converts a value to one of the types that a Func receives.
func Plain(v any, depth int) (any, error) {
	if depth == 0 {
		return nil, fmt.Errorf("a result is nested deeper than %d", depthMax)
	}
	switch v := v.(type) {
	case nil, bool, float64, string:
		return v, nil
	case float32:
		return float64(v), nil
	case json.Number:
		return spelled(v)
	case []any:
		return plainList(v, depth)
	case map[string]any:
		return plainMap(v, depth)
	}
	if i, ok := signed(v); ok {
		return whole(strconv.FormatInt(i, 10)), nil
	}
	if u, ok := unsigned(v); ok {
		return whole(strconv.FormatUint(u, 10)), nil
	}
	return nil, fmt.Errorf("a result of type %T cannot be passed to a script", v)
}

func plainList(list []any, depth int) (any, error) {
	plain := make([]any, len(list))
	for i, v := range list {
		var err error
		if plain[i], err = Plain(v, depth-1); err != nil {
			return nil, err
		}
	}
	return plain, nil
}

func plainMap(m map[string]any, depth int) (any, error) {
	plain := make(map[string]any, len(m))
	for key, v := range m {
		var err error
		if plain[key], err = Plain(v, depth-1); err != nil {
			return nil, err
		}
	}
	return plain, nil
}

func signed(v any) (int64, bool) {
	switch v := v.(type) {
	case int:
		return int64(v), true
	case int8:
		return int64(v), true
	case int16:
		return int64(v), true
	case int32:
		return int64(v), true
	case int64:
		return v, true
	}
	return 0, false
}

func unsigned(v any) (uint64, bool) {
	switch v := v.(type) {
	case uint:
		return uint64(v), true
	case uint8:
		return uint64(v), true
	case uint16:
		return uint64(v), true
	case uint32:
		return uint64(v), true
	case uint64:
		return v, true
	}
	return 0, false
}

// whole returns an integer as a float64 if that holds it, else as a json.Number.
func whole(text string) any {
	if x, exact := pure.Exact(text); exact {
		return x
	}
	return json.Number(text)
}

// spelled checks a json.Number.
func spelled(n json.Number) (any, error) {
	v, err := pure.Parse([]byte(n))
	if err != nil || v.Kind != pure.Number && v.Kind != pure.Big || math.IsNaN(v.Num) {
		return nil, fmt.Errorf("the result %q is not a JSON number", string(n))
	}
	return whole(string(n)), nil
}
