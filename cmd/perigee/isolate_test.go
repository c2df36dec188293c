//go:build linux

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/perigeedb/perigee/internal/testseed"
	"github.com/perigeedb/perigee/internal/testsize"
)

const isolatedConfig = `
data: data
http: "off"
reload: 1s
pipelines:
  mails:
    source: {generate: {events: 100000000, rate: 20000}}
    lanes: 4
    batch: {events: 200}
    script: {lua: main.lua, isolate: process}
    sink: {file: {folder: out}}
`

// startIsolated runs a pipeline with an isolated script.
func startIsolated(t *testing.T) (folder string, p *process) {
	t.Helper()
	folder = t.TempDir()
	writeFile(t, filepath.Join(folder, "main.lua"), "function main(event) return {id = event.id} end")
	config := filepath.Join(folder, "perigee.yaml")
	writeFile(t, config, isolatedConfig)
	return folder, runEngine(t, config)
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestKilledScripts kills script workers at random while events flow, and replaces the
// script meanwhile: each event comes out once. "make crash-scripts" kills 500.
func TestKilledScripts(t *testing.T) {
	t.Parallel()
	kills := killsOf(t)
	folder, p := startIsolated(t)
	waitForText(t, p, "partition opened")
	random := testseed.New(t)
	seen := map[int]bool{}
	for n := range kills {
		worker := waitForWorker(t, p, seen, random)
		time.Sleep(time.Duration(random.IntN(60)) * time.Millisecond)
		if syscall.Kill(worker, syscall.SIGKILL) == nil {
			seen[worker] = true
		}
		if n == kills/2 {
			writeFile(t, filepath.Join(folder, "main.lua"), "function main(event) return {id = event.id, version = 2} end")
		}
	}
	waitForText(t, p, "script replaced", "refused new version")
	if !strings.Contains(p.log.String(), "script replaced") { // each worker that loaded it was killed
		writeFile(t, filepath.Join(folder, "main.lua"), "function main(event) return {id = event.id, version = 3} end")
		waitForText(t, p, "script replaced")
	}
	for _, worker := range workersOf(p.cmd.Process.Pid) {
		seen[worker] = true
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-p.done; err != nil {
		t.Fatalf("%v\n%s", err, &p.log)
	}
	events := countEvents(t, filepath.Join(folder, "out"))
	if strings.Contains(p.log.String(), "dead=0") == false {
		t.Errorf("events became dead letters:\n%s", &p.log)
	}
	wantGone(t, seen)
	t.Logf("%d workers killed, %d events", kills, events)
	fmt.Printf("figure script_kills %d\nfigure script_kills_events %d\n", kills, events)
}

// killsOf returns how many processes to kill.
func killsOf(t *testing.T) int {
	t.Helper()
	kills, err := strconv.Atoi(cmp.Or(os.Getenv("PERIGEE_KILLS"), fmt.Sprint(testsize.Count(8, 20))))
	if err != nil {
		t.Fatal(err)
	}
	return kills
}

// TestKilledShadow kills the processes of a script and of its shadow at random, while the shadow begins to use
// up its memory: each event comes out once, of the script, and the shadow stops.
func TestKilledShadow(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	writeFile(t, filepath.Join(folder, "main.lua"), "function main(event) return {id = event.id} end")
	writeFile(t, filepath.Join(folder, "next.lua"), `function main(event)
  local kept = {}
  if event.id > 15000 then for i = 1, 1e9 do kept[i] = ("x"):rep(1e6) .. i end end
  return {id = event.id}
end`)
	config := filepath.Join(folder, "perigee.yaml")
	writeFile(t, config, strings.NewReplacer("isolate: process", "isolate: process, memory: 8MiB", // soon used up
		"    sink:", "    shadow: {script: next.lua, sample: 100%}\n    sink:").Replace(isolatedConfig))
	p := runEngine(t, config)
	waitForText(t, p, "shadow started")
	waitForText(t, p, "partition opened")
	random := testseed.New(t)
	seen := map[int]bool{}
	for range killsOf(t) {
		worker := waitForWorker(t, p, seen, random)
		time.Sleep(time.Duration(random.IntN(60)) * time.Millisecond)
		if syscall.Kill(worker, syscall.SIGKILL) == nil {
			seen[worker] = true
		}
	}
	if !strings.Contains(p.log.String(), "shadow=true") {
		t.Error("no process of the shadow was killed")
	}
	waitForText(t, p, "shadow stopped; the pipeline runs without it")
	for _, worker := range workersOf(p.cmd.Process.Pid) {
		seen[worker] = true
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-p.done; err != nil {
		t.Fatalf("%v\n%s", err, &p.log)
	}
	t.Logf("%d events", countEvents(t, filepath.Join(folder, "out")))
	if !strings.Contains(p.log.String(), "dead=0") {
		t.Error("events became dead letters")
	}
	wantGone(t, seen)
}

// waitForWorker returns a worker that was not killed yet.
func waitForWorker(t *testing.T, p *process, killed map[int]bool, random *rand.Rand) int {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		workers := workersOf(p.cmd.Process.Pid)
		random.Shuffle(len(workers), func(i, j int) { workers[i], workers[j] = workers[j], workers[i] })
		for _, worker := range workers {
			if !killed[worker] {
				return worker
			}
		}
	}
	t.Fatalf("no worker runs\n%s", &p.log)
	return 0
}

// waitForText waits until the log has one of the texts.
func waitForText(t *testing.T, p *process, texts ...string) {
	t.Helper()
	in := func(text string) bool { return strings.Contains(p.log.String(), text) }
	for end := time.Now().Add(patience); !slices.ContainsFunc(texts, in); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the log lacks %q:\n%s", texts, &p.log)
		}
	}
}

// workersOf returns the children of a process.
func workersOf(pid int) (workers []int) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, file := range files {
		text, _ := os.ReadFile(file)
		for _, field := range strings.Fields(string(text)) {
			worker, _ := strconv.Atoi(field)
			workers = append(workers, worker)
		}
	}
	return workers
}

// countEvents checks that the files hold each event from the first on once, and returns
// how many.
func countEvents(t *testing.T, folder string) int {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil {
		t.Fatal(err)
	}
	times := map[int]int{}
	least := -1
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
			var row struct{ ID *int }
			if json.Unmarshal(lines.Bytes(), &row) != nil || row.ID == nil {
				continue // the journal beside the rows
			}
			times[*row.ID]++
			if least < 0 || *row.ID < least {
				least = *row.ID
			}
		}
	}
	if len(times) == 0 {
		t.Fatalf("no events in %v", files)
	}
	for id := least; id < least+len(times); id++ {
		if times[id] != 1 {
			t.Fatalf("event %d of %d came out %d times", id, len(times), times[id])
		}
	}
	return len(times)
}

// wantGone fails if a worker is left.
func wantGone(t *testing.T, workers map[int]bool) {
	t.Helper()
	end := time.Now().Add(patience)
	for worker := range workers {
		for syscall.Kill(worker, 0) == nil {
			if time.Now().After(end) {
				t.Fatalf("worker %d is left", worker)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// TestKilledEngine: workers end with the engine, however it ends.
func TestKilledEngine(t *testing.T) {
	t.Parallel()
	_, p := startIsolated(t)
	waitForText(t, p, "partition opened")
	waitForWorker(t, p, nil, rand.New(rand.NewPCG(1, 0)))
	workers := map[int]bool{}
	for _, worker := range workersOf(p.cmd.Process.Pid) {
		workers[worker] = true
	}
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.done
	wantGone(t, workers)
}
