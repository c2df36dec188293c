package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"github.com/perigeedb/perigee/bench/dataset"
	"github.com/perigeedb/perigee/event"
)

//go:embed event.lua
var script []byte

//go:embed engine.yaml
var engineConfig string

var engineTemplate = template.Must(template.New("engine.yaml").Parse(engineConfig))

// An engine holds the variable parts of engine.yaml.
type engine struct {
	Data, Source, Script, Sink string
	Follow                     bool
}

const (
	intoStore  = `eventstore: {table: ` + dataset.Table + `}`
	intoStdout = `stdout: {}`
)

// pipelineRates are the events/s of the pipeline in each round.
type pipelineRates struct{ store, stdout []float64 }

// measurePipeline runs the pipeline into the store and into standard output in turns.
func (b *bench) measurePipeline(ctx context.Context) error {
	source := filepath.Join(b.folder, "events.ndjson")
	if err := b.writeDocuments(source, b.events); err != nil {
		return err
	}
	defer os.Remove(source)
	for round := range b.rounds {
		logf("round %d of %d: pipelines into the store and to standard output", round+1, b.rounds)
		stored, err := b.runPipeline(ctx, source, intoStore)
		if err != nil {
			return err
		}
		printed, err := b.runPipeline(ctx, source, intoStdout)
		if err != nil {
			return err
		}
		b.pipeline.store, b.pipeline.stdout = append(b.pipeline.store, stored), append(b.pipeline.stdout, printed)
	}
	return nil
}

// writeDocuments writes events as lines of JSON.
func (b *bench) writeDocuments(path string, n uint64) error {
	events, err := dataset.Open(b.data(), b.rows, dataset.Clock{Step: step})
	if err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<20)
	var out event.Output
	for first := uint64(0); first < n; first += largeBatch {
		events.Documents(&out, first, int(min(largeBatch, n-first)))
		for i := range out.Len() {
			_, _ = w.Write(out.Doc(i)) // Flush reports it
			_ = w.WriteByte('\n')
		}
	}
	return errors.Join(w.Flush(), f.Close())
}

// runPipeline runs the engine until it has written all events, and returns events/s.
func (b *bench) runPipeline(ctx context.Context, source, sink string) (float64, error) {
	config, err := b.writeConfig(engine{Source: source, Sink: sink})
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := b.runEngine(ctx, "run", config); err != nil {
		return 0, err
	}
	rate := float64(b.events) / time.Since(began).Seconds()
	if sink != intoStore {
		return rate, nil
	}
	text, err := exec.CommandContext(ctx, b.binary, "query", "--config", config, "--format", "csv",
		"SELECT count(*), count(DISTINCT id), count(weight) FROM "+dataset.Table).Output()
	if lines := strings.Fields(string(text)); err == nil && lines[len(lines)-1] != fmt.Sprintf("%[1]d,%[1]d,%[1]d", b.events) {
		err = fmt.Errorf("the pipeline stored %s of %d events", text, b.events)
	}
	return rate, err
}

// writeConfig writes the configuration of an engine with an empty folder.
func (b *bench) writeConfig(e engine) (path string, err error) {
	e.Data, e.Script = filepath.Join(b.folder, "engine"), filepath.Join(b.folder, "event.lua")
	var text bytes.Buffer
	if err := engineTemplate.Execute(&text, e); err != nil {
		return "", err
	}
	path = filepath.Join(b.folder, "engine.yaml")
	return path, errors.Join(os.RemoveAll(e.Data), os.WriteFile(e.Script, script, 0o600), os.WriteFile(path, text.Bytes(), 0o600))
}

// runEngine runs the binary, whose output goes nowhere.
func (b *bench) runEngine(ctx context.Context, args ...string) error {
	command := exec.CommandContext(ctx, b.binary, args...)
	var log bytes.Buffer
	command.Stderr = &log
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", args[0], err, log.String())
	}
	return nil
}
