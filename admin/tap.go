package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/pipeline/tap"
)

// A TapRequest says which events of which pipeline to show.
type TapRequest struct {
	Pipeline string `json:"pipeline"` // may be empty if there is only one
	tap.Request
}

// Tap returns samples of the events that flow through a pipeline of the running engine, as they
// pass. It ends with ctx, or with the pipeline. A consumer that is slow lacks events; it delays
// nothing.
func (a *Admin) Tap(ctx context.Context, q TapRequest) iter.Seq2[tap.Event, error] {
	if a.remote != nil {
		return stream[tap.Event](ctx, a.remote, "tap", q)
	}
	return func(yield func(tap.Event, error) bool) {
		p, err := a.findTap(&q)
		if err != nil {
			yield(tap.Event{}, err)
			return
		}
		r := p.Tap.Read(q.Request)
		defer r.Close()
		for {
			e, err := r.Next(ctx)
			if errors.Is(err, tap.ErrClosed) {
				return
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// findTap returns the pipeline of a request that makes sense.
func (a *Admin) findTap(q *TapRequest) (*Pipeline, error) {
	if !a.engine {
		return nil, event.WithHint(fmt.Errorf("%w in %s", ErrNoEngine, a.data), hintOfFolder)
	}
	if all := a.pipelines(); q.Pipeline == "" && len(all) == 1 {
		q.Pipeline = all[0].Name
	}
	p, err := a.find(q.Pipeline)
	if err != nil {
		return nil, err
	}
	for _, point := range q.Points {
		if !slices.Contains(tap.Points, point) {
			return nil, fmt.Errorf("there is no point %q: choose source, output, sink or dead", point)
		}
	}
	if q.Sink == "" {
		return p, nil
	}
	var names []string
	for _, s := range p.Sinks {
		names = append(names, s.Name)
	}
	if !slices.Contains(names, q.Sink) {
		return nil, event.WithHint(fmt.Errorf("pipeline %s has no sink %q", p.Name, q.Sink), "its sinks are "+strings.Join(names, ", "))
	}
	return p, nil
}

// handleTap is handleStream that passes each event on at once.
func (a *Admin) handleTap() http.Handler {
	return Handler(func(w io.Writer, r *http.Request) error {
		var q TapRequest
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			return fmt.Errorf("decode the request: %w", err)
		}
		if _, err := a.findTap(&q); err != nil {
			return err
		}
		_, _ = io.WriteString(w, "\n") // the answer begins, though no event may pass for long
		flush(w)
		encoder := json.NewEncoder(w)
		for e, err := range a.Tap(r.Context(), q) {
			if err == nil {
				err = encoder.Encode(e)
			}
			if err != nil {
				return err
			}
			flush(w)
		}
		return nil
	})
}

func flush(w io.Writer) {
	if f, ok := w.(http.Flusher); ok {
		f.Flush()
	}
}
