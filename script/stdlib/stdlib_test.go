package stdlib

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/script"
)

// function looks a function up.
func function(t *testing.T, module, name string) script.Func {
	t.Helper()
	all, err := Modules(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if m.Name != module {
			continue
		}
		if f := m.Pure[name]; f != nil {
			return f
		}
		if f := m.Functions[name]; f != nil {
			return f
		}
	}
	t.Fatalf("there is no %s.%s", module, name)
	return nil
}

type values = []any

// A call is one of a function, with what it gives or a part of its error.
type call struct {
	function string
	args     values
	want     values
	err      string
}

func check(t *testing.T, module string, calls []call) {
	for _, c := range calls {
		t.Run(fmt.Sprintf("%s%v", c.function, c.args), func(t *testing.T) {
			got, err := function(t, module, c.function)(t.Context(), c.args)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("got %v with the error %v, want the error %q", got, err, c.err)
				}
				return
			}
			if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
				t.Errorf("error %v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestModules(t *testing.T) {
	f := func(context.Context, []any) ([]any, error) { return nil, errors.New("not called") }
	tests := []struct {
		name   string
		own    []script.Module
		reason string
	}{
		{"one more", []script.Module{{Name: "users", Functions: map[string]script.Func{"find": f}}}, ""},
		{"one of ours", []script.Module{{Name: "hash"}}, "module hash"},
		{"one of the engines'", []script.Module{{Name: "json"}}, "module json"},
		{"two of a name", []script.Module{{Name: "a"}, {Name: "a"}}, "module a"},
		{"a function twice", []script.Module{{Name: "a", Functions: map[string]script.Func{"f": f}, Pure: map[string]script.Func{"f": f}}}, "f is both in"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			all, err := Modules(test.own, nil)
			if test.reason != "" {
				if err == nil || !strings.Contains(err.Error(), test.reason) {
					t.Errorf("error is %v, want %q", err, test.reason)
				}
				return
			}
			if err != nil || all[len(all)-1].Name != test.own[0].Name {
				t.Errorf("got %v, %v", all, err)
			}
		})
	}
}

// TestArguments passes every function what it does not expect.
func TestArguments(t *testing.T) {
	all, err := Modules(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	strange := []any{nil, true, values{}, map[string]any{}, "\xff", -1.0, "%"}
	for _, m := range all {
		for name, f := range m.Pure {
			for _, a := range strange {
				for _, b := range strange {
					for _, args := range [][]any{{}, {a}, {a, b}, {"x", a, b}, {"x", "y", a, b}} {
						if got, err := f(t.Context(), args); err == nil && len(got) == 0 {
							t.Errorf("%s.%s%v gave neither a value nor an error", m.Name, name, args)
						}
					}
				}
			}
		}
	}
}
