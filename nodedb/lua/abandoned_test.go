package lua

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestAbandonedCoroutines kills processes that abandon coroutines inside transactions and then
// write. All writes reported as durable must be present, and none of the coroutines' writes.
// PERIGEE_NODE_KILLS is the number of kills.
func TestAbandonedCoroutines(t *testing.T) {
	kills := 4
	if text := os.Getenv("PERIGEE_NODE_KILLS"); text != "" {
		var err error
		if kills, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	total, lost := 0, 0
	for _, i := range []interpreter{interpreters[0], interpreters[4]} {
		t.Run(i.command, func(t *testing.T) {
			store, durable := filepath.Join(t.TempDir(), "store"), 0
			for range (kills + 1) / 2 {
				last := writeUntilKilled(t, i, store, durable)
				script := fmt.Sprintf(`local ndb = require "nodedb" ndb.open(...) local missing = 0
					for i = 1, %d do if ndb.get("^log", i) ~= i then missing = missing + 1 end end
					print(missing .. " " .. ndb.data("^lost") .. " " .. ndb.check())`, last)
				file := filepath.Join(t.TempDir(), "verify.lua")
				if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
					t.Fatal(err)
				}
				output, err := i.run(t, file, store)
				if err != nil || output != "0 0 0\n" {
					lost++
					t.Errorf("after %d durable entries: missing, ^lost and faults are %q, %v, want 0 0 0", last, output, err)
				}
				durable = last
			}
			if durable == 0 {
				t.Error("nothing was durable")
			}
			total += durable
		})
	}
	fmt.Printf("figure crash_nodes_abandoned %d\nfigure crash_nodes_abandoned_lost %d\n", total, lost)
}

// writeUntilKilled runs abandoned.lua for a while and returns the last number that it reported as
// durable.
func writeUntilKilled(t *testing.T, i interpreter, store string, first int) int {
	t.Helper()
	command := exec.Command(i.command, "test/processes/abandoned.lua", store, strconv.Itoa(first))
	command.Env, command.Stderr = i.environment(t), os.Stderr
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	slow := time.AfterFunc(30*time.Second, func() { command.Process.Kill() })
	defer slow.Stop()
	last, lines := first, bufio.NewScanner(output)
	stop := first + 10 + rand.IntN(20)
	for lines.Scan() {
		number, isProgress := strings.CutPrefix(lines.Text(), "durable ")
		if !isProgress {
			t.Errorf("%s said: %s", i.command, lines.Text())
			continue
		}
		if last, err = strconv.Atoi(number); err != nil {
			t.Fatal(err)
		}
		if last == stop {
			time.AfterFunc(time.Duration(rand.IntN(20000))*time.Microsecond, func() { command.Process.Kill() })
		}
	}
	command.Wait()
	return last
}
