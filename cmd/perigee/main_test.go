package main

import (
	"cmp"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/perigeedb/perigee/engine/eventservice"
	"github.com/perigeedb/perigee/internal/testserver"
	"github.com/perigeedb/perigee/nodedb"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/source"
)

// TestMain lets the test binary be the command: scripts and tests that need a
// process of its own start it under the name perigee.
func TestMain(m *testing.M) {
	eventservice.RunWorker()
	testscript.Main(withMaria{m}, map[string]func(){
		"perigee": main,
	})
}

// maria is the server of the tests that neither stop nor lose it.
var maria testserver.SharedMariaDB

// withMaria runs the tests and stops the server.
type withMaria struct{ m *testing.M }

func (w withMaria) Run() int {
	defer maria.Close()
	return w.m.Run()
}

// TestScripts runs each file in testdata/script: commands and their expected output.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup:               surroundings,
		Condition: func(kind string) (bool, error) {
			if kind == "nodedb" {
				return nodedb.Version() != "", nil
			}
			return slices.ContainsFunc(linked().Sinks, func(k sink.Kind) bool { return k.Name == kind }), nil
		},
		UpdateScripts: os.Getenv("UPDATE_SCRIPTS") != "",
	})
}

// surroundings tells scripts where the examples and the go command's cache are, and
// how check describes the Lua engine.
func surroundings(env *testscript.Env) error {
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		return err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	env.Setenv("EXAMPLES", examples)
	env.Setenv("LUA", describeLua())
	env.Setenv("NEWLINE", "\n")
	env.Setenv("GOCACHE", cmp.Or(os.Getenv("GOCACHE"), filepath.Join(cache, "go-build")))
	return nil
}

// TestPositionHint parses the command that sources put into hints.
func TestPositionHint(t *testing.T) {
	config := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(config, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	hint := strings.Replace(source.SetPosition("emails", "orders/3@x", 150), "CONFIG", config, 1)
	args := strings.Fields(strings.ReplaceAll(hint, "'", ""))
	parser, _ := newParser(console{out: io.Discard, err: io.Discard})
	if _, err := parser.Parse(args[1:]); err != nil {
		t.Fatalf("%s: %v", hint, err)
	}
	parsed := parser.Model.Target.Addr().Interface().(*commands).Position.Set
	if parsed.Pipeline != "emails" || parsed.Partition != "orders/3@x" || parsed.Next != 150 {
		t.Errorf("%s means %+v", hint, parsed)
	}
}
