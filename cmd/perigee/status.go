package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
)

type statusCommand struct {
	storeFlags
	Format string `enum:"table,json" default:"table" help:"table or json."`
}

func (statusCommand) Help() string {
	return `Asks the engine that runs in the data folder. The rate is that of the last half second; lag is the
events that are not durable in a sink yet.

Exit code: 0 when every pipeline reads, 1 when one does not or no engine runs.

Examples:
  perigee status
  watch perigee status --config pipeline.yaml`
}

// running is what the engine says of a pipeline.
type running struct {
	Pipeline string     `json:"pipeline"`
	State    string     `json:"state"`
	Reason   string     `json:"reason,omitempty"`
	Since    *time.Time `json:"since,omitempty"`
	Open     int        `json:"open"`
	Settled  uint64     `json:"settled"`
	Rate     uint64     `json:"events_per_s"`
	Dead     int        `json:"dead_letters"`
	Sinks    []struct {
		Name string `json:"name"`
		Rows uint64 `json:"rows"`
		Lag  uint64 `json:"lag"`
	} `json:"sinks"`
}

const rateTime = 500 * time.Millisecond

func (s *statusCommand) Run(c *console) error {
	data, err := s.folder(c)
	if err != nil {
		return err
	}
	all, err := measured(data)
	if err != nil {
		return err
	}
	if s.Format == "json" {
		err = jsonEncoder(c.out).Encode(all)
	} else {
		err = statusTable(c.out, all)
	}
	for _, one := range all {
		if one.State != "running" && err == nil {
			err = exit(exitFailure)
		}
	}
	return err
}

// measured asks twice, to know how fast pipelines are.
func measured(data string) ([]running, error) {
	before, err := pipelinesOf(data)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	time.Sleep(rateTime)
	all, err := pipelinesOf(data)
	if err != nil {
		return nil, err
	}
	var sizes bytes.Buffer
	dead := map[string]int{}
	if _, err := askEngine(data, "GET", "/dlq/sizes", nil, nil, &sizes); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(sizes.Bytes(), &dead); err != nil {
		return nil, fmt.Errorf("read the engine's answer: %w", err)
	}
	for i := range all {
		all[i].Dead = dead[all[i].Pipeline]
		if i < len(before) {
			all[i].Rate = perSecond(all[i].Settled-before[i].Settled, time.Since(began))
		}
	}
	return all, nil
}

func statusTable(w io.Writer, all []running) error {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.AppendHeader(table.Row{"pipeline", "state", "events", "events/s", "dead letters", "sink", "rows", "lag"})
	for _, one := range all {
		row := table.Row{one.Pipeline, one.State, one.Settled, one.Rate, one.Dead}
		for _, sink := range one.Sinks {
			t.AppendRow(append(row, sink.Name, sink.Rows, sink.Lag))
			row = table.Row{"", "", "", "", ""}
		}
	}
	text := t.Render() + "\n"
	for _, one := range all {
		if one.Reason == "" {
			continue
		}
		text += one.Pipeline + " is " + one.State
		if one.Since != nil {
			text += " since " + one.Since.UTC().Format(timeLayout) + " UTC"
		}
		text += ": " + one.Reason + "\n"
	}
	_, err := io.WriteString(w, text)
	return err
}
