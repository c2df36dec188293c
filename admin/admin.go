// Package admin provides the operations on a data folder: show, pause and resume its
// pipelines, manage their dead letters, and move the positions that they continue from.
//
// The operations are the same with and without a running engine. Open connects to the
// running engine through its socket, or locks the folder and works on its files. An
// engine creates an Admin with New and serves its Handlers on the socket.
//
//	a, err := admin.Open("perigee-data", nil)
//	if err != nil { … }
//	defer a.Close()
//	for letter, err := range a.DeadLetters(ctx, admin.Filter{Stage: "script"}) { … }
//
// An Admin is safe for concurrent use.
package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/datafolder"
	"github.com/perigeedb/perigee/internal/durable"
	"github.com/perigeedb/perigee/internal/nearest"
	"github.com/perigeedb/perigee/pipeline"
	"github.com/perigeedb/perigee/pipeline/deadletter"
	"github.com/perigeedb/perigee/pipeline/state"
	"github.com/perigeedb/perigee/pipeline/tap"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/source"
)

// ErrNoEngine is returned by operations that need a running engine if none runs in the
// data folder.
var ErrNoEngine = errors.New("no engine is running")

// An Admin operates on one data folder.
type Admin struct {
	data   string
	remote *client // nil when this process owns the folder

	engine      bool // this Admin belongs to a running engine
	pipelines   func() []Pipeline
	deadLetters *deadletter.Store // nil until their file exists
	logLevel    *slog.LevelVar    // nil if it cannot be changed
	closers     []io.Closer
}

// A Pipeline is a configured pipeline, and its execution if an engine runs it.
type Pipeline struct {
	Name    string
	Source  source.Source
	Sinks   []Sink
	Running *pipeline.Pipeline // nil without an engine
	Code    func() Code        // of the running script; nil if there is none
	Shadow  Shadow             // nil if there is none
	State   *state.Config      // nil without a state
	Tap     *tap.Hub           // nil without an engine
}

// A Code is the text of a script.
type Code struct {
	Name  string            `json:"name"`
	Text  []byte            `json:"text"`  // nil for a Go plugin
	Files map[string][]byte `json:"files"` // that it has required, by path
}

// A Sink is one sink of a Pipeline.
type Sink struct {
	Name string
	Sink sink.Sink
}

// New returns the Admin of a running engine, which owns the data folder. pipelines
// returns the present pipelines. level is that of the engine's log; nil if it cannot be changed.
func New(data string, deadLetters *deadletter.Store, pipelines func() []Pipeline, level *slog.LevelVar) *Admin {
	return &Admin{data: data, engine: true, deadLetters: deadLetters, pipelines: pipelines, logLevel: level}
}

// Open returns the Admin of a data folder. A running engine performs the operations.
// Without one, Open locks the folder until Close, and pipelines describes the pipelines
// of the configuration. It may be nil, but positions cannot be shown or moved then.
//
// Without pipelines, a folder in which no engine has run is an error.
func Open(data string, pipelines []Pipeline) (*Admin, error) {
	if c, err := dial(data); err != nil || c != nil {
		return &Admin{data: data, remote: c}, err
	}
	if pipelines == nil && !datafolder.Used(data) {
		return nil, event.WithHint(fmt.Errorf("no engine has run in data folder %s", data), hintOfFolder)
	}
	lock, err := datafolder.Lock(data)
	if _, inUse := errors.AsType[*datafolder.InUseError](err); inUse {
		// The owner may be an engine that has started meanwhile.
		if c, _ := dial(data); c != nil {
			return &Admin{data: data, remote: c}, nil
		}
	}
	if err != nil {
		return nil, err
	}
	a := &Admin{data: data, pipelines: func() []Pipeline { return pipelines }, closers: []io.Closer{lock}}
	if _, err := os.Stat(filepath.Join(data, deadletter.FileName)); err == nil {
		if a.deadLetters, err = deadletter.Open(data); err != nil {
			return nil, errors.Join(err, a.Close())
		}
		a.closers = append(a.closers, a.deadLetters)
	}
	return a, nil
}

const hintOfFolder = "name the engine's data folder with --data, or its configuration with --config"

// Data returns the data folder.
func (a *Admin) Data() string { return a.data }

// Remote reports whether a running engine performs the operations.
func (a *Admin) Remote() bool { return a.remote != nil }

// Close releases the folder.
func (a *Admin) Close() error {
	if a.remote != nil {
		a.remote.close()
	}
	var errs []error
	for _, c := range slices.Backward(a.closers) {
		errs = append(errs, c.Close())
	}
	a.closers = nil
	return errors.Join(errs...)
}

// A Status is the state of a pipeline of a running engine.
type Status struct {
	Pipeline    string         `json:"pipeline"`
	State       pipeline.State `json:"state"`
	Reason      string         `json:"reason,omitempty"`    // why it is retrying, paused or stopped
	Since       *time.Time     `json:"since,omitempty"`     // of a pause
	Next        *time.Time     `json:"next,omitempty"`      // next trial of a pipeline that paused itself
	WhyEmpty    string         `json:"why_empty,omitempty"` // why the source has no partition, as in "no file matches logs/*"
	Open        int            `json:"open_partitions"`
	Held        int            `json:"leased_partitions"` // by this worker
	Elsewhere   int            `json:"other_partitions"`  // leased by other workers
	Worker      string         `json:"worker"`            // name of this worker
	Workers     int            `json:"workers"`           // live workers; 0 if partitions are not shared
	Read        uint64         `json:"read"`              // events read since the start, including repeated reads
	Events      uint64         `json:"events"`            // committed in every sink since the start
	Dropped     uint64         `json:"dropped"`           // by the script
	Dead        uint64         `json:"dead"`              // events that became dead letters since the start
	Lag         uint64         `json:"lag"`               // events that wait in the source
	Circuit     bool           `json:"circuit_open"`      // reading has stopped because writing fails
	DeadLetters int            `json:"dead_letters"`      // stored, of all runs
	Retries     uint64         `json:"retries"`           // failed attempts to read, or to store what is not a row
	// The seconds are summed over lanes and partitions.
	ScriptSeconds       float64            `json:"script_seconds"`
	BackpressureSeconds float64            `json:"backpressure_seconds"` // in which reading waited for batches to commit
	Deliveries          pipeline.Latencies `json:"deliveries"`           // from reading a batch until every sink has it
	Sinks               []SinkStatus       `json:"sinks"`
	Shadow              *ShadowStatus      `json:"shadow,omitempty"`
}

// A SinkStatus describes one sink of a pipeline since the start.
type SinkStatus struct {
	Name    string             `json:"name"`
	Rows    uint64             `json:"rows"`
	Lag     uint64             `json:"lag"` // events not committed in this sink
	Retries uint64             `json:"retries"`
	Seconds float64            `json:"seconds"` // in the sink, summed over lanes
	Commits pipeline.Latencies `json:"commits"` // of the writes that it committed
}

// StatusOf describes a running pipeline, without its stored dead letters.
func StatusOf(p *pipeline.Pipeline) Status {
	s := p.Stats()
	status := Status{
		Pipeline: p.Name(), State: s.State, Open: s.OpenPartitions, Lag: s.Lag, Read: s.Read, Events: s.Committed, Dropped: s.Dropped, Circuit: s.CircuitOpen,
		Retries:       s.SourceRetries + s.DeadLetterRetries + s.OutboxRetries + s.Leases.Retries,
		ScriptSeconds: s.ScriptTime.Seconds(), BackpressureSeconds: s.BackpressureTime.Seconds(), Deliveries: s.Deliveries,
		Worker: s.Leases.Worker, Workers: s.Leases.Workers, Held: s.Leases.Held, Elsewhere: s.Leases.NotHeld,
	}
	for _, n := range s.Dead {
		status.Dead += n
	}
	if s.Err != nil {
		status.Reason = s.Err.Error()
	}
	status.WhyEmpty = s.WhyEmpty
	if pause := p.Paused(); pause != nil {
		status.Since, status.Next = &pause.Since, pause.Next
	}
	for _, one := range s.Sinks {
		status.Sinks = append(status.Sinks, SinkStatus{one.Name, one.Rows, one.Lag, one.Retries, one.Time.Seconds(), one.Commits})
	}
	return status
}

// Status returns the status of every pipeline of the running engine. Without an engine
// it returns ErrNoEngine.
func (a *Admin) Status(ctx context.Context) ([]Status, error) {
	if a.remote != nil {
		return call[[]Status](ctx, a.remote, "status", nil)
	}
	if !a.engine {
		return nil, event.WithHint(fmt.Errorf("%w in %s", ErrNoEngine, a.data), hintOfFolder)
	}
	sizes, err := a.deadLetters.Sizes()
	if err != nil {
		return nil, err
	}
	all := []Status{}
	for _, p := range a.pipelines() {
		status := StatusOf(p.Running)
		status.DeadLetters = sizes[p.Name]
		if p.Shadow != nil {
			shadow := p.Shadow.Status()
			status.Shadow = &shadow
		}
		all = append(all, status)
	}
	return all, nil
}

// RunningCode returns the code that a pipeline of the running engine runs. Its file may have
// changed since.
func (a *Admin) RunningCode(ctx context.Context, name string) (Code, error) {
	if a.remote != nil {
		return call[Code](ctx, a.remote, "running-code", codeRequest{name})
	}
	if !a.engine {
		return Code{}, event.WithHint(fmt.Errorf("%w in %s", ErrNoEngine, a.data), hintOfFolder)
	}
	p, err := a.find(name)
	switch {
	case err != nil:
		return Code{}, err
	case p.Code == nil:
		return Code{}, fmt.Errorf("pipeline %s has no script", name)
	}
	return p.Code(), nil
}

// Pause stops a pipeline from reading, now and after restarts, until Resume. It does not
// wait for batches in flight; Status reports the open partitions. Without an engine the
// pipeline starts paused.
func (a *Admin) Pause(ctx context.Context, name, reason string) error {
	if reason == "" {
		reason = "paused by an operator"
	}
	if a.remote != nil {
		_, err := call[struct{}](ctx, a.remote, "pause", pauseRequest{name, reason})
		return err
	}
	if a.engine {
		p, err := a.find(name)
		if err != nil {
			return err
		}
		return p.Running.Pause(reason)
	}
	if err := a.checkName(name); err != nil {
		return err
	}
	return pipeline.WritePause(a.data, name, &pipeline.Pause{Reason: reason, Since: time.Now().UTC().Truncate(time.Second)})
}

// Resume ends a pause. It does nothing if the pipeline is not paused.
func (a *Admin) Resume(ctx context.Context, name string) error {
	if a.remote != nil {
		_, err := call[struct{}](ctx, a.remote, "resume", pauseRequest{Pipeline: name})
		return err
	}
	if a.engine {
		p, err := a.find(name)
		if err != nil {
			return err
		}
		return p.Running.Resume()
	}
	if err := a.checkName(name); err != nil {
		return err
	}
	return pipeline.WritePause(a.data, name, nil)
}

// find returns the pipeline with a name.
func (a *Admin) find(name string) (*Pipeline, error) {
	all := a.pipelines()
	i := slices.IndexFunc(all, func(p Pipeline) bool { return p.Name == name })
	if i < 0 {
		return nil, a.checkName(name)
	}
	return &all[i], nil
}

// namesFile lists the pipelines of the folder's last engine, so that a command without
// a configuration can check names.
const namesFile = "pipelines"

// WriteNames stores the names of an engine's pipelines in its data folder.
func WriteNames(data string, names []string) error {
	text := strings.Join(names, "\n") + "\n"
	if err := durable.WriteFileNoSync(filepath.Join(data, namesFile), []byte(text), 0o600); err != nil {
		return fmt.Errorf("store the names of pipelines: %w", err)
	}
	return nil
}

// names returns the names of the configured pipelines, or those of the folder's last
// engine.
func (a *Admin) names() (names []string, err error) {
	for _, p := range a.pipelines() {
		names = append(names, p.Name)
	}
	if len(names) > 0 {
		return names, nil
	}
	text, err := durable.ReadFile(filepath.Join(a.data, namesFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the names of pipelines: %w", err)
	}
	return strings.Fields(string(text)), nil
}

// checkName returns an error with the nearest name if no pipeline has this name. also
// lists further valid names.
func (a *Admin) checkName(name string, also ...string) error {
	names, err := a.names()
	if err != nil || slices.Contains(names, name) || slices.Contains(also, name) {
		return err
	}
	err = fmt.Errorf("unknown pipeline %q in data folder %s", name, a.data)
	known := slices.Compact(slices.Sorted(slices.Values(append(names, also...))))
	if len(known) == 0 {
		return event.WithHint(err, "no engine has run there: "+hintOfFolder)
	}
	hint := "known: " + strings.Join(known, ", ")
	if near := nearest.Name(name, known); near != "" {
		hint = fmt.Sprintf("did you mean %q? %s", near, hint)
	}
	return event.WithHint(err, hint)
}
