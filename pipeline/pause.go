package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"

	"path/filepath"
	"sync"
	"time"

	"github.com/perigeedb/perigee/internal/durable"
)

// A Pause tells why and since when a pipeline is paused.
type Pause struct {
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
	// Next is when a pipeline that paused itself tries a batch. It is nil in a pause that a
	// person ends.
	Next   *time.Time `json:"next,omitempty"`
	Pauses int        `json:"pauses,omitempty"` // in a row, with this one
	Script string     `json:"script,omitempty"` // name and version; another one ends the pause
}

// pauseFolder, in the data folder, holds a file for each paused pipeline.
const pauseFolder = "paused"

func pauseFile(folder, pipeline string) string {
	return filepath.Join(folder, pauseFolder, url.PathEscape(pipeline)+".json")
}

// ReadPause returns the pause in which a pipeline with this data folder starts, or
// nil.
func ReadPause(folder, pipeline string) (*Pause, error) {
	text, err := durable.ReadFile(pauseFile(folder, pipeline))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var pause Pause
	if err == nil {
		err = json.Unmarshal(text, &pause)
	}
	if err != nil {
		return nil, fmt.Errorf("read pause of pipeline %s: %w", pipeline, err)
	}
	return &pause, nil
}

// WritePause makes a pipeline with this data folder start paused, or unpaused if
// pause is nil. No engine may be running in the folder.
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
		return fmt.Errorf("store pause of pipeline %s: %w", pipeline, err)
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

// Pause stops reading until Resume, also across restarts. Batches in flight are
// delivered and all partitions are closed; Pause does not wait for that. An error
// means that a restart would end the pause.
func (p *Pipeline) Pause(reason string) error {
	pause := Pause{Reason: reason, Since: time.Now().UTC().Truncate(time.Second)}
	p.readGate.pause(pause)
	p.status.setPaused(errors.New(reason))
	p.log.Warn("pipeline paused; nothing is read until it is resumed",
		"reason", reason, "resume", "perigee resume "+p.config.Name)
	return p.storePause(&pause)
}

// Resume ends a pause. It does nothing if the pipeline is not paused.
func (p *Pipeline) Resume() error {
	if err := p.storePause(nil); err != nil {
		return err
	}
	if p.readGate.paused() != nil {
		p.log.Info("pipeline resumed")
	}
	p.resume()
	return nil
}

func (p *Pipeline) resume() {
	p.limits.reset()
	p.status.setPaused(nil)
	p.readGate.resume()
}

// Paused returns the pipeline's pause, or nil.
func (p *Pipeline) Paused() *Pause { return p.readGate.paused() }

// restorePause pauses a pipeline that was paused when it last ran.
func (p *Pipeline) restorePause() error {
	if p.config.Folder == "" {
		return nil
	}
	pause, err := ReadPause(p.config.Folder, p.config.Name)
	if err != nil || pause == nil {
		return err
	}
	p.readGate.pause(*pause)
	p.status.setPaused(errors.New(pause.Reason))
	attributes := []any{"reason", pause.Reason, "since", pause.Since, "resume", "perigee resume " + p.config.Name}
	if pause.Next != nil {
		p.log.Warn("pipeline is still paused; it tries one batch when the wait is over", append(attributes, "next", *pause.Next)...)
		return nil
	}
	p.log.Warn("pipeline is still paused; nothing is read until it is resumed", attributes...)
	return nil
}

// errPaused ends a session of a pipeline that paused itself.
var errPaused = errors.New("the pipeline is paused")

// DiscardOutbox removes the outbox's entries of a partition: sinks that lack them
// must get the events from the source again. Call it when a person has set the
// positions of the sinks while the pipeline is paused.
func (p *Pipeline) DiscardOutbox(partition string) error {
	if p.config.Outbox == nil {
		return nil
	}
	if p.counters.open.Load() > 0 {
		return fmt.Errorf("discard stored outputs of partition %s: pipeline %s has open partitions; pause it first", partition, p.config.Name)
	}
	return p.config.Outbox.RemovePartition(p.config.Name, partition)
}

// A readGate is open while a pipeline may read. A pause closes it for a time, a
// drain for good.
type readGate struct {
	mu      sync.Mutex
	open    context.Context // ends when the gate closes
	close   context.CancelFunc
	changed chan struct{} // closed at the next change
	current *Pause
	drained bool
}

func newReadGate() *readGate {
	g := &readGate{changed: make(chan struct{})}
	g.open, g.close = context.WithCancel(context.Background())
	return g
}

func (g *readGate) update(change func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
	close(g.changed)
	g.changed = make(chan struct{})
}

func (g *readGate) pause(pause Pause) {
	g.update(func() {
		g.current = &pause
		g.close()
	})
}

func (g *readGate) resume() {
	g.update(func() {
		if g.current != nil && !g.drained {
			g.open, g.close = context.WithCancel(context.Background())
		}
		g.current = nil
	})
}

// pauseUnlessPaused returns false if there is a pause already.
func (g *readGate) pauseUnlessPaused(pause Pause) (paused bool) {
	g.update(func() {
		if g.current == nil {
			paused = true
			g.current = &pause
			g.close()
		}
	})
	return paused
}

// resumeIf ends a pause, unless another has taken its place.
func (g *readGate) resumeIf(pause *Pause) (resumed bool) {
	g.update(func() {
		if g.current != pause {
			return
		}
		resumed = true
		g.current = nil
		if !g.drained {
			g.open, g.close = context.WithCancel(context.Background())
		}
	})
	return resumed
}

func (g *readGate) isDrained() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.drained
}

func (g *readGate) drain() {
	g.update(func() {
		g.drained = true
		g.close()
	})
}

// paused returns the current pause, or nil.
func (g *readGate) paused() *Pause {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.current
}

// waitUntilOpen waits until the pipeline may read, or is no longer in a pause, if that is not nil. It
// returns false if ctx ends first or nothing may be read any more.
func (g *readGate) waitUntilOpen(ctx context.Context, pause *Pause) bool {
	for {
		g.mu.Lock()
		changed, drained, open := g.changed, g.drained, g.current == nil || pause != nil && g.current != pause
		g.mu.Unlock()
		if drained || ctx.Err() != nil {
			return false
		}
		if open {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// context returns a context that ends with ctx and when the gate closes.
func (g *readGate) context(ctx context.Context) (context.Context, context.CancelFunc) {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(open, cancel)
	return ctx, func() { stop(); cancel() }
}
