package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/perigeedb/perigee/engine/compare"
	"github.com/perigeedb/perigee/event"
)

// A Shadow is a new version of a script that runs beside the one of a pipeline.
type Shadow interface {
	Status() ShadowStatus
	// Report returns what differs, or nil if the new version has never run.
	Report() *compare.Report
	// Reset begins a new report, and starts a shadow that has stopped.
	Reset(ctx context.Context) error
	// Promote makes the new version that of the pipeline, between two batches. Without force, it
	// refuses one that has stopped.
	Promote(ctx context.Context, force bool) error
}

// A ShadowState is what a shadow does.
type ShadowState string

// The states of a shadow.
const (
	ShadowRunning  ShadowState = "running"
	ShadowFailed   ShadowState = "failed"   // it does not load
	ShadowStopped  ShadowState = "stopped"  // it has failed on too many events
	ShadowPromoted ShadowState = "promoted" // it is the script of the pipeline
)

// A ShadowStatus is the state of a shadow. Its figures are since the report began.
type ShadowStatus struct {
	Script    string      `json:"script"` // name of the code of the new version
	Sample    float64     `json:"sample"` // share of the events
	State     ShadowState `json:"state"`
	Reason    string      `json:"reason,omitempty"` // why it does not run
	Since     time.Time   `json:"since"`            // of the state
	Events    uint64      `json:"events"`           // whose results were compared
	Different uint64      `json:"different"`        // events with other results
	Skipped   uint64      `json:"skipped"`          // sampled events that were not compared, while the new version was busy
}

// A ShadowReport is the state of a shadow and what differs.
type ShadowReport struct {
	Pipeline string `json:"pipeline"`
	ShadowStatus
	Report *compare.Report `json:"report,omitempty"`
}

// A Promotion is a shadow that has become the script of its pipeline.
type Promotion struct {
	Pipeline string `json:"pipeline"`
	Script   string `json:"script"` // name of the code of the new version
	Before   string `json:"before"` // name of the code that it has replaced, which a restart runs again
}

type shadowRequest struct {
	Pipeline string `json:"pipeline"`
	Reset    bool   `json:"reset,omitempty"`
	Force    bool   `json:"force,omitempty"`
}

// Shadow returns the report of the shadow of a pipeline of the running engine. With reset it begins a new
// one, and starts a shadow that has stopped.
func (a *Admin) Shadow(ctx context.Context, name string, reset bool) (ShadowReport, error) {
	if a.remote != nil {
		return call[ShadowReport](ctx, a.remote, "shadow", shadowRequest{Pipeline: name, Reset: reset})
	}
	p, err := a.findShadow(name)
	if err != nil {
		return ShadowReport{}, err
	}
	if reset {
		if err := p.Shadow.Reset(ctx); err != nil {
			return ShadowReport{}, fmt.Errorf("pipeline %s: %w", name, err)
		}
	}
	return ShadowReport{Pipeline: name, ShadowStatus: p.Shadow.Status(), Report: p.Shadow.Report()}, nil
}

// Promote makes the shadow of a pipeline of the running engine its script, between two batches, until the
// engine or the pipeline is started again. Without force, it refuses a shadow that has stopped.
func (a *Admin) Promote(ctx context.Context, name string, force bool) (Promotion, error) {
	if a.remote != nil {
		return call[Promotion](ctx, a.remote, "promote", shadowRequest{Pipeline: name, Force: force})
	}
	p, err := a.findShadow(name)
	if err != nil {
		return Promotion{}, err
	}
	before := p.Code().Name
	if err := p.Shadow.Promote(ctx, force); err != nil {
		return Promotion{}, fmt.Errorf("pipeline %s: %w", name, err)
	}
	return Promotion{Pipeline: name, Script: p.Shadow.Status().Script, Before: before}, nil
}

// findShadow returns a pipeline of the running engine that has a shadow.
func (a *Admin) findShadow(name string) (*Pipeline, error) {
	if !a.engine {
		return nil, event.WithHint(fmt.Errorf("%w in %s", ErrNoEngine, a.data), hintOfFolder)
	}
	p, err := a.find(name)
	if err != nil {
		return nil, err
	}
	if p.Shadow == nil {
		return nil, event.WithHint(fmt.Errorf("pipeline %s has no shadow", name), "add one to the pipeline in the configuration, such as shadow: {script: next.lua}, and reload it")
	}
	return p, nil
}
