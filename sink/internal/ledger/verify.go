package ledger

import (
	"context"
	"errors"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
)

// Verify implements sink.Writer. What was committed last speaks for all before
// it: a database that is set back loses that first.
func (w *Writer) Verify(ctx context.Context) error {
	w.lanes.RLock()
	defer w.lanes.RUnlock()
	w.mu.Lock()
	last, err := w.last, w.ended
	w.mu.Unlock()
	if err != nil {
		return err
	}
	there, err := w.book.Has(ctx, last)
	if err == nil && !there && last.Count > 0 {
		err = forgotten(event.Ranges{last}, nil)
	}
	if event.IsPermanent(err) || errors.Is(err, sink.ErrFenced) {
		w.end(err)
	}
	return err
}
