package console

import (
	"context"
	"sync"
	"time"

	"github.com/perigeedb/perigee/admin"
	"github.com/perigeedb/perigee/internal/rates"
)

const (
	freshTime = 900 * time.Millisecond // a reading serves all pages that ask within this time
	staleTime = 15 * time.Second       // nobody has looked for so long: the history begins again
)

// A watch keeps the rates of pipelines while pages ask for them.
type watch struct {
	status func(context.Context) ([]admin.Status, error)

	mu      sync.Mutex
	last    time.Time // of the last reading
	history rates.History
}

// A watched is an answer to a page.
type watched struct {
	Time      time.Time        `json:"time"`
	Pipelines []rates.Pipeline `json:"pipelines"`
}

// read returns the present rates.
func (w *watch) read(ctx context.Context, _ struct{}) (*watched, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if now.Sub(w.last) >= freshTime {
		all, err := w.status(ctx)
		if err != nil {
			return nil, err
		}
		if now.Sub(w.last) > staleTime {
			w.history = rates.History{}
		}
		w.history.Add(now, all)
		w.last = now
	}
	return &watched{w.last, w.history.Pipelines()}, nil
}
