package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/pipeline"
	"github.com/perigeedb/perigee/pipeline/deadletter"
	"github.com/perigeedb/perigee/sink"
)

// A ledger is the positions that the sinks of a configuration remember, in an
// engine, or in a command while none runs.
type ledger struct {
	parts     []part
	data      string
	pipelines []*pipeline.Pipeline // of the engine
}

func ledgerRoutes() map[string]func(context.Context, io.Writer, *ledger, url.Values) error {
	return map[string]func(context.Context, io.Writer, *ledger, url.Values) error{
		"GET /positions":  showPositions,
		"POST /positions": movePositions,
	}
}

// handlers answer "perigee position" beside a running engine.
func (l *ledger) handlers() map[string]http.Handler {
	handlers := map[string]http.Handler{}
	for pattern, answer := range ledgerRoutes() {
		handlers[pattern] = answering(func(w io.Writer, r *http.Request) error {
			return answer(r.Context(), w, l, r.URL.Query())
		})
	}
	return handlers
}

// A book is the ranges that one sink of a pipeline has, by partition.
type book struct {
	sink   string
	keeper sink.PositionStore
	ranges map[string]event.Ranges
}

// books reads what the sinks of a pipeline remember; only is one of them, or "".
func (p *part) books(ctx context.Context, only string) (books []book, err error) {
	for _, o := range p.sinks {
		keeper := o.sink.Traits().Positions
		if keeper == nil || only != "" && only != o.config.Name {
			continue
		}
		ranges, err := keeper.Positions(ctx)
		if err != nil {
			return nil, fmt.Errorf("pipeline %s, sink %s: %w", p.config.Name, o.config.Name, err)
		}
		books = append(books, book{o.config.Name, keeper, ranges})
	}
	return books, nil
}

func showPositions(ctx context.Context, w io.Writer, l *ledger, q url.Values) error {
	all := []position{}
	for i := range l.parts {
		p := &l.parts[i]
		if name := q.Get("pipeline"); name != "" && name != p.config.Name {
			continue
		}
		books, err := p.books(ctx, "")
		if err != nil {
			return err
		}
		bounds, err := p.bounds(ctx)
		for _, b := range books {
			for _, partition := range slices.Sorted(maps.Keys(b.ranges)) {
				if has := b.ranges[partition]; len(has) > 0 && (q.Has("retries") || !deadletter.IsRetryBatch(partition)) {
					one := position{Pipeline: p.config.Name, Partition: partition, Sink: b.sink,
						Next: has[0].End(), Has: has.String(), Events: eventsIn(has)}
					one.hold(has[len(has)-1].End(), bounds, err)
					all = append(all, one)
				}
			}
		}
	}
	return jsonEncoder(w).Encode(all)
}

// sourceTime is how long a source may take to tell what it has.
const sourceTime = 5 * time.Second

// bounds asks the source what it has, if it can tell.
func (p *part) bounds(ctx context.Context) (map[string]event.Range, error) {
	bounds := p.source.Traits().Bounds
	if bounds == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, sourceTime)
	defer cancel()
	return bounds(ctx)
}

// hold holds what a sink has, up to end, against what the source has.
func (p *position) hold(end uint64, bounds map[string]event.Range, err error) {
	if err != nil {
		p.Source = err.Error()
		return
	}
	if there, ok := bounds[p.Partition]; ok {
		p.Source = there.String()
		behind := there.End() - min(there.End(), max(there.First, end))
		p.Behind = &behind
	}
}

func eventsIn(ranges event.Ranges) (n uint64) {
	for _, r := range ranges {
		n += r.Count
	}
	return n
}
