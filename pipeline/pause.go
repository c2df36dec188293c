package pipeline

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/perigeedb/perigee/internal/durable"
)

// A Pause is why and since when a pipeline is paused.
type Pause struct {
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
}

// pauseFolder holds a file for each pipeline that is paused, in the data folder.
const pauseFolder = "paused"

func pauseFile(folder, pipeline string) string {
	return filepath.Join(folder, pauseFolder, url.PathEscape(pipeline)+".json")
}

// ReadPause returns the pause that a pipeline with this data folder starts in,
// or nil.
func ReadPause(folder, pipeline string) (*Pause, error) {
	text, err := os.ReadFile(pauseFile(folder, pipeline))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var pause Pause
	if err == nil {
		err = json.Unmarshal(text, &pause)
	}
	if err != nil {
		return nil, fmt.Errorf("read whether %s is paused: %w", pipeline, err)
	}
	return &pause, nil
}

// WritePause makes a pipeline with this data folder start paused, or not when
// pause is nil. It is for a folder that no engine runs in.
func WritePause(folder, pipeline string, pause *Pause) error {
	name := pauseFile(folder, pipeline)
	var err error
	if pause == nil {
		if err = durable.Remove(name); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	} else {
		err = replacePause(name, pause)
	}
	if err != nil {
		return fmt.Errorf("keep whether %s is paused: %w", pipeline, err)
	}
	return nil
}

func replacePause(name string, pause *Pause) error {
	text, err := json.Marshal(pause)
	if err != nil {
		return err
	}
	if err := durable.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	return durable.WriteFile(name, append(text, '\n'), 0o600)
}

// Pause stops reading until Resume, over restarts too. What is in flight is
// settled and every partition is let go of; it does not wait for that. An error
// says that the pause would not outlast a restart.
func (p *Pipeline) Pause(reason string) error {
	pause := Pause{Reason: reason, Since: time.Now().UTC().Truncate(time.Second)}
	p.gate.stop(pause)
	p.status.pause(errors.New(reason))
	p.log.Warn("pipeline paused: nothing is read until it is resumed",
		"reason", reason, "resume", "perigee resume "+p.config.Name)
	if p.config.Folder == "" {
		return nil
	}
	return WritePause(p.config.Folder, p.config.Name, &pause)
}

// Resume ends a pause, and does nothing when there is none.
func (p *Pipeline) Resume() error {
	if p.config.Folder != "" {
		if err := WritePause(p.config.Folder, p.config.Name, nil); err != nil {
			return err
		}
	}
	if p.gate.paused() != nil {
		p.log.Info("pipeline resumed")
	}
	p.status.pause(nil)
	p.gate.resume()
	return nil
}

// Paused returns why the pipeline is paused, or nil when it is not.
func (p *Pipeline) Paused() *Pause { return p.gate.paused() }

// recall pauses a pipeline that was paused when it last ran.
func (p *Pipeline) recall() error {
	if p.config.Folder == "" {
		return nil
	}
	pause, err := ReadPause(p.config.Folder, p.config.Name)
	if err != nil || pause == nil {
		return err
	}
	p.gate.stop(*pause)
	p.status.pause(errors.New(pause.Reason))
	p.log.Warn("pipeline is still paused: nothing is read until it is resumed",
		"reason", pause.Reason, "since", pause.Since, "resume", "perigee resume "+p.config.Name)
	return nil
}

// errPaused ends a turn at a partition whose pipeline has paused itself.
var errPaused = errors.New("the pipeline is paused")

// pauseItself is Pause where nobody is there to be told of an error.
func (p *Pipeline) pauseItself(reason string) error {
	if err := p.Pause(reason); err != nil {
		p.log.Error("the pause will not outlast a restart", "error", err)
	}
	return errPaused
}

// DiscardOutbox drops what the outbox holds of a partition: what the sinks lack of it
// must come from the source again. It is for a person who has set the sinks'
// positions while the pipeline is paused.
func (p *Pipeline) DiscardOutbox(partition string) error {
	if p.config.Outbox == nil {
		return nil
	}
	if p.counters.open.Load() > 0 {
		return fmt.Errorf("forget partition %s: pipeline %s has partitions open; pause it first", partition, p.config.Name)
	}
	return p.config.Outbox.Forget(p.config.Name, partition)
}
