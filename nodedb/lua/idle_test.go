package lua

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// idleScript reads, keeps an iteration, and waits for a line; then it continues the iteration.
const idleScript = `
local nodedb = require "nodedb"
nodedb.open(arg[1], {read_only = arg[2] == "read_only"})
assert(nodedb.get("^kept", 1) == "kept 1")
local values, state, control = nodedb.node("^kept"):values()
for i = 1, 3 do
  local value
  control, value = values(state, control)
  assert(control == i and value == "kept " .. i)
end
print "idle"
io.stdout:flush()
io.read()
for i = 4, 300 do
  local value
  control, value = values(state, control)
  assert(control == i and value == "kept " .. i, i)
end
assert(values(state, control) == nil)
print "done"`

const fillScript = `
local nodedb = require "nodedb"
nodedb.open(arg[1], {no_sync = true})
for i = 1, 300 do nodedb.set("^kept", i, "kept " .. i) end`

const writeScript = `
local nodedb = require "nodedb"
nodedb.open(arg[1], {no_sync = true})
for i = 1, 1800 do nodedb.tp(function() nodedb.set("^written", i % 50, i) end) end`

// TestIdle checks that an idle Lua process with an open store does not make the file grow while
// another process writes, and that it can continue an iteration that it has kept.
func TestIdle(t *testing.T) {
	for _, i := range []interpreter{interpreters[0], interpreters[4]} {
		run := func(script string, arguments ...string) *exec.Cmd {
			file := filepath.Join(t.TempDir(), "script.lua")
			if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
				t.Fatal(err)
			}
			command := exec.Command(i.command, append([]string{file}, arguments...)...)
			command.Env = i.environment(t)
			command.Stderr = os.Stderr
			return command
		}
		size := func(idle string) int64 {
			store := filepath.Join(t.TempDir(), "store")
			if err := run(fillScript, store).Run(); err != nil {
				t.Fatal(err)
			}
			if idle != "" {
				command := run(idleScript, store, idle)
				input, err := command.StdinPipe()
				if err != nil {
					t.Fatal(err)
				}
				output, err := command.StdoutPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := command.Start(); err != nil {
					t.Fatal(err)
				}
				lines := bufio.NewReader(output)
				wait := func(want string) {
					t.Helper()
					if line, err := lines.ReadString('\n'); strings.TrimSpace(line) != want {
						t.Fatalf("%s says %q, %v, want %s", i.command, line, err, want)
					}
				}
				wait("idle")
				time.Sleep(time.Second) // unused snapshots are released meanwhile
				defer func() {
					input.Close()
					wait("done")
					if err := command.Wait(); err != nil {
						t.Error(err)
					}
				}()
			}
			if err := run(writeScript, store).Run(); err != nil {
				t.Fatal(err)
			}
			about, err := os.Stat(filepath.Join(store, "data.mdb"))
			if err != nil {
				t.Fatal(err)
			}
			return about.Size()
		}
		alone := size("")
		for _, idle := range []string{"write", "read_only"} {
			if with := size(idle); with > 2*alone {
				t.Errorf("%s: the file has %d bytes beside an idle process (%s), %d without it: want at most twice as many", i.command, with, idle, alone)
			}
		}
	}
}
