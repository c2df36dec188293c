//go:build linux && cgo

package eventservice

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/queryhttp"
)

// serveTail answers with batches, each a line of JSON followed by the rows.
func (s *Store) serveTail(w io.Writer, r *http.Request) error {
	var q catalog.TailRequest
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		return fmt.Errorf("decode the request: %w", err)
	}
	store, err := s.openExisting()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go func() {
		defer cancel()
		select {
		case <-s.closing:
		case <-ctx.Done():
		}
	}()
	q.Client = queryhttp.ClientOf(r)
	begun := false
	err = store.Tail(ctx, q, func(b *catalog.TailBatch) error {
		begun = true
		return writeBatch(w, b)
	})
	if ctx.Err() != nil {
		return nil
	}
	if err != nil && begun {
		return json.NewEncoder(w).Encode(tailHead{Error: err.Error()})
	}
	return err
}

func writeBatch(w io.Writer, b *catalog.TailBatch) error {
	if err := json.NewEncoder(w).Encode(tailHead{TailBatch: *b, Size: len(b.Rows)}); err != nil {
		return err
	}
	if _, err := w.Write(b.Rows); err != nil {
		return err
	}
	if f, ok := w.(http.Flusher); ok {
		f.Flush()
	}
	return nil
}
