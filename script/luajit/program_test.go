//go:build cgo && luajit

package luajit

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/script"
)

// TestFunctionsWithoutTailCalls fails the probe of tail calls: functions are called the long
// way, return the same, and the log says so.
func TestFunctionsWithoutTailCalls(t *testing.T) {
	defer func(probe func() error) { tailCalls = probe }(tailCalls)
	tailCalls = func() error { return errors.New("another stack") }
	var log bytes.Buffer
	calls := 0
	count := func(_ context.Context, args []any) ([]any, error) { calls++; return args, nil }
	f, err := LoadCallable(t.Context(), script.Code{Name: "f.lua", Text: []byte(`
local host = require "host"
function drop(a) host.count(a) end
function give(a) return host.count(a) end
`)}, script.Options{
		Log:     slog.New(slog.NewTextHandler(&log, nil)),
		Modules: []script.Module{{Name: "host", Pure: map[string]script.Func{"count": count}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for i := range 200 {
		dropped, err := f.Invoke(t.Context(), "drop", i)
		if err != nil || len(dropped) != 0 {
			t.Fatal(dropped, err)
		}
		given, err := f.Invoke(t.Context(), "give", i)
		if err != nil || len(given) != 1 || given[0] != float64(i) {
			t.Fatal(given, err)
		}
	}
	if calls != 400 {
		t.Errorf("Go was called %d times", calls)
	}
	if !strings.Contains(log.String(), "another stack") {
		t.Errorf("the log says nothing of it: %s", log.String())
	}
}
