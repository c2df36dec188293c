package console

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/perigeedb/perigee/admin"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/pipeline/tap"
)

const (
	sampleMax  = 500             // events that a measurement takes from a running pipeline
	sampleTime = 2 * time.Second // to wait for them
)

// A measured is a Measurement with the code that it is about.
type measured struct {
	*Measurement
	Name   string `json:"name"`
	Text   string `json:"text"`
	Sample string `json:"sample"` // where the events are from
}

// measure measures a script by line, on the events of the request or, without, on events that the
// source of the pipeline reads meanwhile.
func (c *Console) measure(ctx context.Context, q tryRequest) (*measured, error) {
	if c.settings.Measure == nil {
		return nil, &event.Fault{Message: "this program cannot measure scripts by line", Hint: "build it with cgo: then scripts run in LuaJIT"}
	}
	events, err := q.split()
	if err != nil {
		return nil, err
	}
	m := &measured{Sample: fmt.Sprintf("%d given events", len(events))}
	if len(events) == 0 && q.Pipeline != "" {
		if events, err = c.sample(ctx, q.Pipeline); err != nil {
			return nil, err
		}
		m.Sample = fmt.Sprintf("%d events that the source has just read", len(events))
	}
	if len(events) == 0 {
		return nil, &event.Fault{Message: "no event passed within two seconds", Hint: "give events of your own in the playground"}
	}
	ctx, release, err := c.beginTrial(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	p, err := c.load(ctx, q)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	switch {
	case p.State != nil:
		return nil, &event.Fault{Message: "a script with a state cannot be measured", Hint: "its runs follow each other: see the share of the script in the overview"}
	case len(p.Code.Text) == 0:
		return nil, &event.Fault{Message: "the pipeline has no script in Lua"}
	}
	if m.Measurement, err = c.settings.Measure(ctx, p.Stages, newBatch(events)); err != nil {
		return nil, err
	}
	m.Name, m.Text = p.Code.Name, string(p.Code.Text)
	return m, nil
}

// sample returns events that the source of a pipeline reads within a short time.
func (c *Console) sample(ctx context.Context, pipeline string) (events [][]byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, sampleTime)
	defer cancel()
	q := admin.TapRequest{Pipeline: pipeline, Request: tap.Request{Points: []tap.Point{tap.Source}}}
	for e, err := range c.host.Admin.Tap(ctx, q) {
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			return events, nil
		case err != nil:
			return nil, err
		}
		one := []byte(e.Event)
		if one == nil {
			one = []byte(e.Text)
		}
		if events = append(events, one); len(events) == sampleMax {
			break
		}
	}
	return events, nil
}
