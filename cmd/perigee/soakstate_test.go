package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/perigeedb/perigee/admin"
	"github.com/perigeedb/perigee/internal/testserver"
)

// soakedLua keeps the events of a minute, each by its id: a third of the nodes expire, a third are
// removed by timers, and the others by the event that comes a minute later. The counters of 10,000 users
// stay.
const soakedLua = `
local nodedb, timers = require "nodedb", require "timer"
local events, users = nodedb.node "^events", nodedb.node "^users"
local behind = %d

function main(event)
  local node = events[event.id]
  node.__ = event.email
  if event.id %% 3 == 0 then node:expire(60)
  elseif event.id %% 3 == 1 then timers.after(60, tostring(event.id))
  end
  if event.id > behind and (event.id - behind) %% 3 == 2 then events[event.id - behind]:kill() end
  return {id = event.id, n = users[event.id %% 10000]:incr()}
end

function timer(key)
  events[tonumber(key)]:kill()
  return nil
end
`

const soakedConfig = `
data: %[1]s
http: off
pipelines:
  soaked:
    source: {generate: {events: 1000000000, rate: %[2]d}}
    script: soaked.lua
    state: {name: soaked, archive: {to: archive, keep: 1m}}
    sink: {mysql: {address: %[3]q, user: root, database: %[4]s, table: soaked, create: true, columns: [{name: id, type: int64}, {name: n, type: int64}]}}
`

// soakRate is how many events pass in a second.
const soakRate = 4000

// soakedSizes are what the state of a pipeline takes, in bytes.
type soakedSizes struct{ memory, folder, notes, archive float64 }

// TestSoakState lets events pass for a long time, as many as are forgotten by expiry, timers and
// deletes. From half of the time on memory, the file of the state, the notes at the home and the
// archive do not grow.
func TestSoakState(t *testing.T) {
	duration, err := time.ParseDuration(os.Getenv("SOAK_STATE"))
	if err != nil || duration <= 0 {
		t.Skip("make soak-state sets SOAK_STATE to a duration")
	}
	folder, maria := shortDir(t), testserver.MariaDB(t)
	data := filepath.Join(folder, "data")
	file := write(t, "soaked.yaml", fmt.Sprintf(soakedConfig, data, soakRate, maria.Address(), maria.Database(t)))
	writeFile(t, filepath.Join(filepath.Dir(file), "soaked.lua"), fmt.Sprintf(soakedLua, 60*soakRate))
	engine := runEngine(t, file)
	var sizes []soakedSizes
	for began := time.Now(); time.Since(began) < duration; time.Sleep(duration / 180) {
		one, err := measureSoaked(engine.cmd.Process.Pid, file, filepath.Join(data, "state"), filepath.Join(filepath.Dir(file), "archive"))
		if err != nil {
			t.Logf("after %s: %v", time.Since(began).Round(time.Second), err)
			continue
		}
		sizes = append(sizes, one)
	}
	third, fourth := sizes[len(sizes)/2:len(sizes)*3/4], sizes[len(sizes)*3/4:]
	for _, one := range []struct {
		name      string
		of        func(soakedSizes) float64
		maxGrowth float64 // growth from the third quarter to the fourth
	}{
		{"memory", func(s soakedSizes) float64 { return s.memory }, 1.1},
		{"folder", func(s soakedSizes) float64 { return s.folder }, 1.1},
		{"notes", func(s soakedSizes) float64 { return s.notes }, 1.25},
		{"archive", func(s soakedSizes) float64 { return s.archive }, 1.25},
	} {
		before, after := medianOf(third, one.of), medianOf(fourth, one.of)
		fmt.Printf("figure soak_state_%s_mb %.1f\nfigure soak_state_%s_growth %.3f\n", one.name, after/(1<<20), one.name, after/before)
		if !(after <= before*one.maxGrowth) {
			t.Errorf("%s: %.0f bytes in the third quarter, %.0f in the fourth, want at most %.2f times as many", one.name, before, after, one.maxGrowth)
		}
	}
}

func medianOf(all []soakedSizes, of func(soakedSizes) float64) float64 {
	var values []float64
	for _, one := range all {
		values = append(values, of(one))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

func measureSoaked(pid int, config, folder, archive string) (s soakedSizes, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return s, err
	}
	found := regexp.MustCompile(`RssAnon:\s+(\d+) kB`).FindSubmatch(status)
	if found == nil {
		return s, fmt.Errorf("no RssAnon in %s", status)
	}
	kilobytes, err := strconv.ParseFloat(string(found[1]), 64)
	if err != nil {
		return s, err
	}
	s.memory = kilobytes * 1024
	if s.folder, err = allocated(folder); err != nil {
		return s, err
	}
	if s.archive, err = allocated(archive); err != nil {
		return s, err
	}
	out, err := exec.Command("perigee", "state", "list", config, "--format", "json").Output()
	if err != nil {
		return s, err
	}
	var units []admin.StateUnit
	if err := json.Unmarshal(out, &units); err != nil {
		return s, err
	}
	for _, u := range units {
		s.notes += float64(u.Bytes)
	}
	return s, nil
}

// allocated returns the bytes that the files of a folder take on the disk.
func allocated(folder string) (bytes float64, err error) {
	err = filepath.WalkDir(folder, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return nil // it was removed meanwhile
		}
		bytes += float64(info.Sys().(*syscall.Stat_t).Blocks) * 512
		return nil
	})
	return bytes, err
}
