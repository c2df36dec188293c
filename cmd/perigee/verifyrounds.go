package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/engine"
	"github.com/perigeedb/perigee/engine/eventservice"
	"github.com/perigeedb/perigee/internal/chaos"
	"github.com/perigeedb/perigee/script/computed"
	"github.com/perigeedb/perigee/script/loader"
	"github.com/perigeedb/perigee/source/generate"
)

// sampleEvents is the size of the sample, whose events are sent in turn: one event of the
// sample stands for one in every thousand sent.
const sampleEvents = 1000

// rejectedEvery is the interval of the events in the sample that the example's script
// rejects.
const rejectedEvery = 100

// events returns the events of the sample.
func (v *verifyCommand) events() (*chaos.Events, error) {
	var sample [][]byte
	if v.Events == "" {
		for i := range uint64(sampleEvents) {
			one := generate.Append(nil, demoSeed, i)
			if i%rejectedEvery == rejectedEvery/2 {
				one = bytes.Replace(one, []byte("@"), nil, 1)
			}
			sample = append(sample, one)
		}
		return chaos.NewEvents(sample, v.ID)
	}
	file, err := os.Open(v.Events)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, engine.DefaultBatchBytes)
	for lines.Scan() && len(sample) < sampleEvents {
		if line := strings.TrimSpace(lines.Text()); line != "" {
			sample = append(sample, []byte(line))
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the sample: %w", err)
	}
	return chaos.NewEvents(sample, v.ID)
}

// rounds returns the rounds of the user's pipeline, or of the example.
func (v *verifyCommand) rounds(c *console, folder string) (rounds []chaos.Round, err error) {
	if v.Config != "" {
		rounds, err = v.userRounds(c)
	} else {
		rounds, err = v.exampleRounds(c, folder)
	}
	if err != nil {
		return nil, err
	}
	for i := range rounds {
		rounds[i].Seed = v.Seed + uint64(i)
		rounds[i].ScheduleFaults(v.Kills / len(rounds))
	}
	all := len(rounds)
	rounds = slices.DeleteFunc(rounds, func(r chaos.Round) bool { return !strings.Contains(r.Name, v.Round) })
	if len(rounds) == 0 {
		return nil, usageError(fmt.Sprintf("none of %d rounds has %q in its name", all, v.Round))
	}
	return rounds, nil
}

// userRounds returns rounds of the user's pipeline with one, two and three workers.
func (v *verifyCommand) userRounds(c *console) (rounds []chaos.Round, err error) {
	p, err := v.read(c, v.Config, v.Pipeline)
	if err != nil {
		return nil, err
	}
	for workers := 1; workers <= 3 && (workers == 1 || p.HasLeases()); workers++ {
		rounds = append(rounds, chaos.Round{Name: fmt.Sprintf("%s, workers: %d", p.Name, workers), Pipeline: p, Workers: workers})
	}
	return rounds, nil
}

// exampleRounds returns rounds of the example with every distinct combination of source and
// sink.
func (v *verifyCommand) exampleRounds(c *console, folder string) ([]chaos.Round, error) {
	folder, err := createFolder(folder, "example")
	if err != nil {
		return nil, err
	}
	if err := os.CopyFS(folder, emailExample()); err != nil {
		return nil, fmt.Errorf("write the example: %w", err)
	}
	files := map[string]*chaos.Pipeline{"redis-mysql.yaml": nil, "redis-postgres.yaml": nil}
	for name := range files {
		if files[name], err = v.read(c, filepath.Join(folder, name), ""); err != nil {
			return nil, err
		}
	}
	mysql, postgres := files["redis-mysql.yaml"], files["redis-postgres.yaml"]
	both, documents := mysql.WithSinksOf(postgres), mysql.WithoutSinks()
	rounds := []chaos.Round{
		{Name: "lists into MariaDB, workers: 2", Pipeline: mysql, Workers: 2},
		{Name: "streams into PostgreSQL, workers: 3", Pipeline: postgres.WithStreams(), Workers: 3},
	}
	if v.Quick {
		return rounds, nil
	}
	fix, err := poison(folder)
	if err != nil {
		return nil, err
	}
	shadow, err := hostileShadow(folder)
	if err != nil {
		return nil, err
	}
	remembering, err := rememberingScript(folder)
	if err != nil {
		return nil, err
	}
	rounds = append(rounds,
		chaos.Round{Name: "streams into MariaDB, workers: 1", Pipeline: mysql.WithStreams(), Workers: 1},
		chaos.Round{Name: "lists into PostgreSQL, workers: 2", Pipeline: postgres, Workers: 2},
		chaos.Round{Name: "lists into MariaDB and PostgreSQL, workers: 2", Pipeline: both, Workers: 2},
		chaos.Round{Name: "streams into MariaDB, workers: 3", Pipeline: mysql.WithStreams(), Workers: 3},
		chaos.Round{Name: "lists into Redis, workers: 2", Pipeline: documents.WithSink(chaos.Redis), Workers: 2},
		chaos.Round{Name: "lists into files, workers: 1", Pipeline: documents.WithSink(chaos.File), Workers: 1},
		chaos.Round{Name: "lists into MariaDB, Redis and files, workers: 2", Pipeline: mysql.WithSink(chaos.Redis).WithSink(chaos.File), Workers: 2},
		chaos.Round{Name: "an error in every thousandth event, then a fixed script", Pipeline: mysql.WithScript(fix.Path), Workers: 1, Fix: fix},
		chaos.Round{Name: "a state in MariaDB and in files, workers: 1", Pipeline: mysql.WithSink(chaos.File).WithState(remembering), Workers: 1},
		chaos.Round{Name: "a shadow that loops, crashes and eats memory, workers: 2", Pipeline: mysql.WithShadow(shadow), Workers: 2},
	)
	if eventservice.Available() == nil {
		store, err := v.read(c, filepath.Join(folder, "embedded.yaml"), "")
		if err != nil {
			return nil, err
		}
		rounds = append(rounds, chaos.Round{Name: "lists into the event store, workers: 1", Pipeline: store, Workers: 1})
	}
	return rounds, nil
}

// poison returns the example's script, and one that fails on every thousandth event.
func poison(folder string) (*chaos.ScriptFix, error) {
	text, err := os.ReadFile(filepath.Join(folder, "email.lua"))
	if err != nil {
		return nil, err
	}
	const fails = "\nlocal good = main\nfunction main(event)\n  if event.id %% %d == 1 then error(\"poison\") end\n  return good(event)\nend\n"
	return &chaos.ScriptFix{
		Path:   filepath.Join(folder, "poison.lua"),
		Broken: string(text) + fmt.Sprintf(fails, sampleEvents), Fixed: string(text),
	}, nil
}

// hostileShadow writes a script for a shadow, and returns its path: for some events it loops, matches for
// ever, or uses up its memory. The faults of the round kill its process.
func hostileShadow(folder string) (string, error) {
	const script = `
function main(event)
  local way = event.id % 400
  if way == 100 then while true do end end
  if way == 200 then return {a = string.find(("a"):rep(200), ("a*"):rep(100) .. "b")} end
  if way >= 300 then
    local kept = {}
    for i = 1, 1e9 do kept[i] = ("x"):rep(1e6) .. i end
  end
  return event
end
`
	path := filepath.Join(folder, "hostile.lua")
	return path, os.WriteFile(path, []byte(script), 0o600)
}

// rememberingScript writes the example's script with a state, and returns its path: each event that
// does not fail is remembered once.
func rememberingScript(folder string) (string, error) {
	text, err := os.ReadFile(filepath.Join(folder, "email.lua"))
	if err != nil {
		return "", err
	}
	const remembers = `
local seen = require("nodedb").node "^seen"
local forgetful = main
function main(event)
  seen[event.id]:incr()
  return forgetful(event)
end
`
	path := filepath.Join(folder, "remembering.lua")
	return path, os.WriteFile(path, append(text, remembers...), 0o600)
}

// read reads a pipeline from a configuration, which must have no faults.
func (v *verifyCommand) read(c *console, file, name string) (*chaos.Pipeline, error) {
	conf, err := configFlags{Config: file}.load(context.Background(), c)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	locate := func(code string) (string, error) {
		if loader.IsCode(code) || computed.IsBuilt(code) {
			return code, nil
		}
		origin, err := loader.Locate(code, conf.Folder, "code")
		return origin.String(), err
	}
	p, err := chaos.ReadPipeline(string(text), name, v.ID, locate)
	if err != nil {
		return nil, usageError(fmt.Sprintf("%s: %v", file, err))
	}
	return p, nil
}
