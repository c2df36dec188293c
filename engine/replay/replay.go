package replay

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/perigeedb/perigee/engine"
	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/datafolder"
	"github.com/perigeedb/perigee/internal/durable"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/source"
)

// manifestName is the file that describes a replay. It exists once the events are copied.
const manifestName = "replay.json"

// A manifest describes a replay in its folder.
type manifest struct {
	ID       string            `json:"id"` // of the copied events, unlike that of any other replay
	Pipeline string            `json:"pipeline"`
	Events   string            `json:"events"` // where they come from
	Into     map[string]string `json:"into"`   // places by sink; "" for one that is skipped
	Count    uint64            `json:"count"`
	Begun    time.Time         `json:"begun"`
	Finished time.Time         `json:"finished,omitzero"`
}

// A Replay is a plan with its events. No other process has it open.
type Replay struct {
	Plan      *Plan
	Rate      float64 // events per second; 0 for no limit
	Continued bool    // its events were copied before

	manifest manifest
	folder   string
	lock     io.Closer

	mu    sync.Mutex
	acked event.Ranges
	saved time.Time
}

// Open locks the folder of a replay and copies the events there, unless that was done before.
// events says where they come from: a replay continues only with the same. read passes all
// events to add. The caller closes the Replay.
func Open(p *Plan, events string, read func(add func([]byte) error) error) (*Replay, error) {
	r := &Replay{Plan: p, folder: p.Folder()}
	if err := durable.MkdirAll(r.folder, 0o700); err != nil {
		return nil, fmt.Errorf("create the folder of the replay: %w", err)
	}
	lock, err := datafolder.LockFile(r.folder, "replay.lock")
	if inUse, ok := errors.AsType[*datafolder.InUseError](err); ok {
		return nil, event.WithHint(fmt.Errorf("replay %s runs in %s", p.Name, inUse.Owner), "wait for it, or give another replay another --name")
	}
	if err != nil {
		return nil, err
	}
	r.lock = lock
	if err := r.prepare(events, read); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return r, nil
}

func (r *Replay) prepare(events string, read func(add func([]byte) error) error) error {
	text, err := durable.ReadFile(filepath.Join(r.folder, manifestName))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return r.begin(events, read)
	case err != nil:
		return fmt.Errorf("read the state of the replay: %w", err)
	}
	if err := json.Unmarshal(text, &r.manifest); err != nil {
		return event.WithHint(fmt.Errorf("%s is damaged: %w", filepath.Join(r.folder, manifestName), err), r.forgetHint())
	}
	r.Continued = true
	if err := r.checkContinued(events); err != nil {
		return err
	}
	return r.readAcked()
}

func (r *Replay) forgetHint() string {
	return fmt.Sprintf("give a new replay another --name, or forget this one, and then clear what it wrote: rm -r %s", r.folder)
}

// checkContinued refuses to repeat a replay that has finished, or to continue one of something
// else.
func (r *Replay) checkContinued(events string) error {
	m, name := &r.manifest, r.Plan.Name
	if !m.Finished.IsZero() {
		return event.WithHint(fmt.Errorf("replay %s has finished: it delivered %d events on %s", name, m.Count, m.Finished.Format(time.DateTime)), r.forgetHint())
	}
	into := r.Plan.into()
	same := m.Pipeline == r.Plan.Pipeline.Name && len(into) == len(m.Into)
	for s, place := range into {
		before, known := m.Into[s]
		same = same && known && before == place
	}
	switch {
	case !same:
		return event.WithHint(fmt.Errorf("replay %s has begun with pipeline %s into other places", name, m.Pipeline), r.forgetHint())
	case m.Events != events:
		return event.WithHint(fmt.Errorf("replay %s has begun with other events: %s", name, m.Events),
			"continue it with these, or "+r.forgetHint())
	}
	return nil
}

// into returns the places by sink.
func (p *Plan) into() map[string]string {
	all := map[string]string{}
	for _, t := range p.Targets {
		all[t.Sink.Name] = t.Place
	}
	return all
}

func (r *Replay) begin(events string, read func(add func([]byte) error) error) error {
	count, err := writeEvents(r.folder, read)
	if err != nil {
		return err
	}
	if count == 0 {
		return errors.Join(errors.New("there are no events to replay"), os.Remove(filepath.Join(r.folder, eventsName)))
	}
	r.manifest = manifest{ID: rand.Text(), Pipeline: r.Plan.Pipeline.Name, Events: events, Into: r.Plan.into(), Count: count, Begun: time.Now().UTC().Truncate(time.Second)}
	return errors.Join(removeFile(r.ackedPath()), r.writeManifest())
}

func (r *Replay) writeManifest() error {
	text, err := json.MarshalIndent(&r.manifest, "", "  ")
	if err != nil {
		return err
	}
	if err := durable.WriteFile(filepath.Join(r.folder, manifestName), append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("write the state of the replay: %w", err)
	}
	return nil
}

// Config returns the configuration of an engine that runs the replay. It has no port, and reloads no
// scripts.
func (r *Replay) Config() *config.Config {
	c, p := *r.Plan.config, r.Plan.Pipeline
	p.Name, p.Source, p.Sinks = prefix+r.Plan.Name, config.NewSource(sourceKind), nil
	p.Shadow = nil // which compares versions on the pipeline's own events
	for _, t := range r.Plan.Targets {
		switch {
		case t.Skip:
			p.Sinks = append(p.Sinks, t.Sink.WithKind(discardKind))
		case t.Key == "":
			p.Sinks = append(p.Sinks, t.Sink)
		default:
			p.Sinks = append(p.Sinks, t.Sink.WithSetting(t.Key, t.Place, "--into"))
		}
	}
	c.Pipelines, c.HTTP, c.Reload, c.Query, c.Functions = []config.Pipeline{p}, config.HTTPOff, 0, config.Query{}, nil
	c.Tables = r.Plan.tables()
	c.UseData(r.folder)
	return &c
}

// tables returns the declared tables of the event store that the replay writes to. One that is
// not declared is declared like the table that it stands for.
func (p *Plan) tables() (tables []config.Table) {
	declared := func(name string) *config.Table {
		i := slices.IndexFunc(p.config.Tables, func(t config.Table) bool { return strings.EqualFold(t.Name, name) })
		if i < 0 {
			return nil
		}
		return &p.config.Tables[i]
	}
	for place, from := range p.EventTables() {
		if own := declared(place); own != nil {
			tables = append(tables, *own)
		} else if like := declared(from); like != nil {
			table := *like
			table.Name = place
			tables = append(tables, table)
		}
	}
	return tables
}

// eventStoreKind is the kind of sinks that write to the event store of the data folder.
const eventStoreKind = "eventstore"

// EventTables returns the tables of the event store that the replay writes to, and the table of
// the pipeline that each stands for.
func (p *Plan) EventTables() map[string]string {
	tables := map[string]string{}
	for _, t := range p.Targets {
		if t.Sink.Kind == eventStoreKind && !t.Skip {
			tables[t.Place] = t.From
		}
	}
	return tables
}

// Kinds returns the kinds of an engine that runs the replay.
func (r *Replay) Kinds(k engine.Kinds) engine.Kinds {
	k.Sources = append(append([]source.Kind(nil), k.Sources...), r.sourceKind())
	k.Sinks = append(append([]sink.Kind(nil), k.Sinks...), discard())
	return k
}

// Folder returns the folder of the replay, which has its dead letters.
func (r *Replay) Folder() string { return r.folder }

// Count returns the number of events.
func (r *Replay) Count() uint64 { return r.manifest.Count }

// Done returns the number of events that are delivered, dropped or dead. Any goroutine may
// call it.
func (r *Replay) Done() (n uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.acked {
		n += one.Count
	}
	return n
}

// Close ends the replay, and finishes it if all events are done: then it deletes the copy of
// the events.
func (r *Replay) Close() error {
	var err error
	if r.Done() == r.manifest.Count && r.manifest.Finished.IsZero() {
		r.manifest.Finished = time.Now().UTC().Truncate(time.Second)
		if err = r.writeManifest(); err == nil {
			err = errors.Join(removeFile(filepath.Join(r.folder, eventsName)), removeFile(r.ackedPath()))
		}
	} else {
		err = r.saveAcked()
	}
	return errors.Join(err, r.lock.Close())
}

// removeFile removes a file that may not exist.
func removeFile(name string) error {
	if err := durable.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func (r *Replay) ackedPath() string { return filepath.Join(r.folder, "done.json") }

// savedEvery is the interval in which progress is saved. Sinks that remember positions do not
// need it.
const savedEvery = time.Second

// ack records delivered events.
func (r *Replay) ack(done event.Range) error {
	r.mu.Lock()
	r.acked.Add(event.Range{First: done.First, Count: done.Count})
	due := time.Since(r.saved) > savedEvery
	r.mu.Unlock()
	if !due {
		return nil
	}
	return r.saveAcked()
}

func (r *Replay) saveAcked() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	text, err := json.Marshal(r.acked)
	if err == nil {
		err = durable.WriteFile(r.ackedPath(), text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("save the progress of the replay: %w", err)
	}
	r.saved = time.Now()
	return nil
}

func (r *Replay) readAcked() error {
	text, err := durable.ReadFile(r.ackedPath())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(text, &r.acked)
	}
	if err != nil {
		return fmt.Errorf("read the progress of the replay: %w", err)
	}
	return nil
}
