package lua

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

var update = flag.Bool("update", false, "write docs/reference/nodedb-lua.md")

// An interpreter is a Lua for the tests, and the ABI of the shared object that it loads.
type interpreter struct{ command, abi string }

var interpreters = []interpreter{
	{"luajit", "5.1"}, {"lua5.1", "5.1"}, {"lua5.2", "5.2"}, {"lua5.3", "5.3"}, {"lua5.4", "5.4"},
}

// built builds the shared objects, once.
var built = sync.OnceValue(func() error {
	output, err := exec.Command("./build.sh").CombinedOutput()
	if err != nil {
		return &buildError{string(output)}
	}
	return nil
})

type buildError struct{ output string }

func (e *buildError) Error() string { return e.output }

// environment returns the environment in which the interpreter finds the modules. It skips the test
// if the interpreter or its shared object is missing.
func (i interpreter) environment(t *testing.T) []string {
	t.Helper()
	if _, err := exec.LookPath(i.command); err != nil {
		t.Skipf("%s is not installed; tools/setup.sh lua installs it", i.command)
	}
	if _, err := os.Stat("../../.build/lmdb/lib/liblmdb.a"); err != nil {
		t.Skip("LMDB is not built; tools/setup.sh build builds it")
	}
	if err := built(); err != nil {
		t.Fatalf("build.sh: %v", err)
	}
	objects, err := filepath.Abs("../../.build/nodedb-lua/" + i.abi)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(objects + "/nodedb/native.so"); err != nil {
		t.Skipf("the headers of Lua %s are not installed; tools/setup.sh lua installs them", i.abi)
	}
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	return append(os.Environ(), "LUA_INIT=", "LUA_PATH="+here+"/?.lua", "LUA_CPATH="+objects+"/?.so")
}

// run runs a script and returns its output.
func (i interpreter) run(t *testing.T, arguments ...string) (string, error) {
	t.Helper()
	command := exec.Command(i.command, arguments...)
	command.Env = i.environment(t)
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	err := command.Run()
	return output.String(), err
}

// each runs a test on each interpreter.
func each(t *testing.T, test func(t *testing.T, i interpreter)) {
	for _, i := range interpreters {
		t.Run(i.command, func(t *testing.T) { test(t, i) })
	}
}

// TestLua runs the tests in test/*.lua, except those that TestYottadbFace runs.
func TestLua(t *testing.T) {
	files, err := filepath.Glob("test/*.lua")
	if err != nil || len(files) == 0 {
		t.Fatal("no tests", err)
	}
	each(t, func(t *testing.T, i interpreter) {
		for _, file := range files {
			if base := filepath.Base(file); base == "run.lua" || base == "yottadb.lua" {
				continue
			}
			t.Run(strings.TrimSuffix(filepath.Base(file), ".lua"), func(t *testing.T) {
				if output, err := i.run(t, "test/run.lua", file, t.TempDir()); err != nil {
					t.Errorf("%v:\n%s", err, output)
				}
			})
		}
	})
}

// TestYottadbFace runs the tests of the module yottadb, which cover everything that lua-yottadb
// documents, on each interpreter, and counts the failures.
func TestYottadbFace(t *testing.T) {
	tests, failed, ran := 0, 0, 0
	each(t, func(t *testing.T, i interpreter) {
		output, err := i.run(t, "test/run.lua", "test/yottadb.lua", t.TempDir())
		ran++
		var all, bad int
		lines := strings.Split(strings.TrimSpace(output), "\n")
		if n, _ := fmt.Sscanf(lines[len(lines)-1], "%d tests, %d failed", &all, &bad); n != 2 {
			all, bad = 1, 1
		}
		tests, failed = tests+all, failed+bad
		if err != nil {
			t.Errorf("%v:\n%s", err, output)
		}
	})
	if ran > 0 {
		fmt.Printf("figure yottadb_face_tests %d\nfigure yottadb_face_failed %d\n", tests, failed)
	}
}

// TestCollecting runs the Lua tests compiled on LuaJIT, with a full garbage collection before each
// call of C. PERIGEE_LUAJIT is a LuaJIT with the module built in, such as build.sh asan makes. With
// it, as in make torture-asan, the tests also run interpreted.
func TestCollecting(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	i := interpreters[0]
	modes := map[string]string{"compiled": "jit.opt.start('hotloop=3', 'hotexit=2')"}
	if command := os.Getenv("PERIGEE_LUAJIT"); command != "" {
		i.command, modes["interpreted"] = command, "jit.off()"
	}
	i.environment(t)
	t.Setenv("NODEDB_TEST_COLLECT", "1")
	escaped := 0
	for mode, options := range modes {
		for _, file := range []string{"iterate", "locks", "memory", "nodes", "transactions", "trees", "yottadb"} {
			t.Run(mode+"/"+file, func(t *testing.T) {
				t.Setenv("NODEDB_TEST_JIT", options)
				if output, err := i.run(t, "test/run.lua", "test/"+file+".lua", t.TempDir()); err != nil {
					escaped++
					t.Errorf("%v:\n%s", err, output)
				}
			})
		}
	}
	fmt.Printf("figure torture_escaped %d\n", escaped)
}

// TestReference checks that the reference page matches api.lua. -update writes the page.
func TestReference(t *testing.T) {
	const page = "../../docs/reference/nodedb-lua.md"
	folder := t.TempDir()
	if output, err := interpreters[0].run(t, "test/run.lua", "test/api.lua", folder, "print"); err != nil {
		t.Fatalf("%v:\n%s", err, output)
	}
	want, err := os.ReadFile(folder + "/page.md")
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(page, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, _ := os.ReadFile(page); !bytes.Equal(got, want) {
		t.Errorf("%s differs from nodedb/lua/nodedb/api.lua; run go test ./nodedb/lua -run TestReference -update", page)
	}
}

// TestRock builds and installs the rock, and uses it.
func TestRock(t *testing.T) {
	if _, err := exec.LookPath("luarocks"); err != nil {
		t.Skip("luarocks is not installed; tools/setup.sh lua installs it")
	}
	for _, version := range []string{"5.1", "5.4"} {
		t.Run(version, func(t *testing.T) {
			i := interpreter{"lua" + version, version}
			i.environment(t)
			// luarocks builds in the current folder and leaves native.so there.
			tree := t.TempDir()
			defer os.Remove("native.so")
			command := exec.Command("luarocks", "--lua-version", version, "--tree", tree, "make", "nodedb-dev-1.rockspec")
			command.Env = append(os.Environ(), "http_proxy=http://127.0.0.1:9", "https_proxy=http://127.0.0.1:9") // offline
			if output, err := command.CombinedOutput(); err != nil {
				t.Fatalf("luarocks make: %v\n%s", err, output)
			}
			commands := []string{i.command}
			if version == "5.1" {
				commands = append(commands, "luajit")
			}
			for _, name := range commands {
				script := `local ndb = require "nodedb" ndb.open(...) ndb.node("^a").x.__ = 5 ` +
					`print(require("yottadb").node("^a").x.__)`
				file := filepath.Join(t.TempDir(), "script.lua")
				if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
					t.Fatal(err)
				}
				command := exec.Command(name, file, t.TempDir())
				command.Env = append(os.Environ(), "LUA_INIT=", "LUA_PATH="+tree+"/share/lua/"+version+"/?.lua",
					"LUA_CPATH="+tree+"/lib/lua/"+version+"/?.so")
				if output, err := command.CombinedOutput(); err != nil || string(output) != "5\n" {
					t.Errorf("%s: %q, %v", name, output, err)
				}
			}
		})
	}
}

// TestSymbols checks that a shared object exports nothing but its function for Lua, so that
// it can be loaded beside another LMDB.
func TestSymbols(t *testing.T) {
	i := interpreters[len(interpreters)-1]
	i.environment(t)
	output, err := exec.Command("nm", "-D", "--defined-only", "../../.build/nodedb-lua/"+i.abi+"/nodedb/native.so").Output()
	if err != nil {
		t.Skip("nm:", err)
	}
	for _, line := range strings.Split(strings.TrimSpace(string(output)), "\n") {
		if !regexp.MustCompile(` (luaopen_nodedb_native|_init|_fini|__bss_start|_edata|_end)$`).MatchString(line) {
			t.Errorf("the shared object exports %s", line)
		}
	}
}
