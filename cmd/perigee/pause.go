package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/pipeline"
)

type pauseCommand struct {
	Pipeline string `arg:"" help:"Name of the pipeline."`
	storeFlags
	Reason string `help:"Said by perigee status and in the log."`
}

func (pauseCommand) Help() string {
	return `Stops reading, finishes what was read and lets go of every partition, so that other workers can have
them. The pipeline stays paused, also when the engine is started anew, until it is resumed. Without a
running engine, the pipeline starts paused when one runs.

Examples:
  perigee pause emails --reason 'the table is being rebuilt'
  perigee pause emails --config pipeline.yaml`
}

// settleTime bounds how long pause waits for what is in flight.
const settleTime = 10 * time.Second

func (p *pauseCommand) Run(c *console) error {
	data, err := p.folder(c)
	if err != nil {
		return err
	}
	asked, err := order(data, p.Pipeline, "pause", url.Values{"reason": {p.Reason}})
	if err != nil {
		return err
	}
	if !asked {
		return p.whileNoneRuns(c, data, &pipeline.Pause{Reason: orElse(p.Reason, "paused by hand"), Since: time.Now().UTC().Truncate(time.Second)})
	}
	left, err := letGo(data, p.Pipeline, settleTime)
	if err != nil {
		return err
	}
	if left > 0 {
		fmt.Fprintf(c.out, "%s reads no more; %s to finish: perigee status\n", p.Pipeline, counted(left, "partition"))
		return nil
	}
	fmt.Fprintf(c.out, "%s is paused: nothing is read until perigee resume %s\n", p.Pipeline, p.Pipeline)
	return nil
}

func (p *pauseCommand) whileNoneRuns(c *console, data string, pause *pipeline.Pause) error {
	if err := rememberPause(data, p.Pipeline, pause); err != nil {
		return err
	}
	fmt.Fprintf(c.out, "no engine runs in %s: %s starts paused when one does\n", data, p.Pipeline)
	return nil
}

type resumeCommand struct {
	Pipeline string `arg:"" help:"Name of the pipeline."`
	storeFlags
}

func (resumeCommand) Help() string {
	return `Lets a paused pipeline read again.

Examples:
  perigee resume emails
  perigee resume emails --config pipeline.yaml`
}

func (r *resumeCommand) Run(c *console) error {
	data, err := r.folder(c)
	if err != nil {
		return err
	}
	asked, err := order(data, r.Pipeline, "resume", nil)
	if err != nil {
		return err
	}
	if !asked {
		if err := rememberPause(data, r.Pipeline, nil); err != nil {
			return err
		}
		fmt.Fprintf(c.out, "no engine runs in %s: %s reads when one does\n", data, r.Pipeline)
		return nil
	}
	fmt.Fprintf(c.out, "%s reads again\n", r.Pipeline)
	return nil
}

// order makes the engine in a data folder do something to a pipeline. asked is
// false when none runs there.
func order(data, name, what string, q url.Values) (asked bool, err error) {
	var answer bytes.Buffer
	return askEngine(data, "POST", "/pipelines/"+url.PathEscape(name)+"/"+what, q, nil, &answer)
}

// letGo waits until a paused pipeline has no partition open, and returns how many
// it still has when it has waited long enough.
func letGo(data, name string, most time.Duration) (left int, err error) {
	for deadline := time.Now().Add(most); ; time.Sleep(50 * time.Millisecond) {
		all, err := pipelinesOf(data)
		if err != nil {
			return 0, err
		}
		left = 0
		for _, one := range all {
			if one.Pipeline == name {
				left = one.Open
			}
		}
		if left == 0 || time.Now().After(deadline) {
			return left, nil
		}
	}
}

// pipelinesOf asks the engine in a data folder what its pipelines do. None is an
// error.
func pipelinesOf(data string) (all []running, err error) {
	var answer bytes.Buffer
	asked, err := askEngine(data, "GET", "/pipelines", nil, nil, &answer)
	if err != nil {
		return nil, err
	}
	if !asked {
		return nil, event.WithHint(fmt.Errorf("no engine runs in %s", data),
			"name the engine's data folder with --data, or its configuration with --config")
	}
	if err := json.Unmarshal(answer.Bytes(), &all); err != nil {
		return nil, fmt.Errorf("read the engine's answer: %w", err)
	}
	return all, nil
}

// rememberPause keeps a pause, or none, in a data folder in which no engine runs.
func rememberPause(data, name string, pause *pipeline.Pause) error {
	lock, err := own(data)
	if err != nil {
		return err
	}
	defer lock.Close()
	return pipeline.WritePause(data, name, pause)
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
