//go:build linux && cgo

package eventservice

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/perigeedb/perigee/admin"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore"
	"github.com/perigeedb/perigee/eventstore/queryhttp"
)

// Tail calls each with the rows that the engine in a data folder appends to a table. It returns
// nil when ctx or the engine ends. It calls each once without rows when it has started.
func Tail(ctx context.Context, data string, q TailRequest, each func(*TailBatch) error) error {
	request, err := json.Marshal(q)
	if err != nil {
		return err
	}
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	r, w := io.Pipe()
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		_ = w.CloseWithError(admin.Post(asking, data, "/tail", nil, bytes.NewReader(request), w))
	}()
	err = readBatches(r, each)
	cancel()
	_ = r.Close()
	<-asked
	if errors.Is(err, admin.ErrNoEngine) {
		return event.WithHint(fmt.Errorf("%w in %s", err, data),
			"start the engine, or name its data folder with --data or --config; perigee query reads stored rows")
	}
	if ctx.Err() != nil {
		return nil
	}
	return whereError(q.Where, err)
}

// readBatches reads the answer of serveTail.
func readBatches(r io.Reader, each func(*TailBatch) error) error {
	in := bufio.NewReaderSize(r, 64<<10)
	for {
		head, err := in.ReadBytes('\n')
		if err == io.EOF && len(head) == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		var b TailBatch
		if err := json.Unmarshal(head, &b); err != nil {
			return err
		}
		if b.Error != "" {
			return errors.New(b.Error)
		}
		b.Rows = make([]byte, b.Size)
		if _, err := io.ReadFull(in, b.Rows); err != nil {
			return err
		}
		if err := each(&b); err != nil {
			return err
		}
	}
}

// serveTail answers with batches, each a line of JSON followed by the rows.
func (s *Store) serveTail(w io.Writer, r *http.Request) error {
	var q TailRequest
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
	request := eventstore.TailRequest{Table: q.Table, Where: q.Where, Client: queryhttp.ClientOf(r)}
	if q.Since != nil {
		request.Since = *q.Since
	}
	begun := false
	err = store.Tail(ctx, request, func(b *eventstore.TailBatch) error {
		begun = true
		return writeBatch(w, b)
	})
	if ctx.Err() != nil {
		return nil
	}
	if err != nil && begun {
		return json.NewEncoder(w).Encode(TailBatch{Error: err.Error()})
	}
	if e, ok := errors.AsType[*eventstore.QueryError](err); ok {
		return &admin.Error{Message: e.Message, Hint: e.Hint, Line: e.Line, Column: e.Column}
	}
	return err
}

func writeBatch(w io.Writer, from *eventstore.TailBatch) error {
	b := TailBatch{Size: len(from.Rows), Count: from.Count, Skipped: from.Skipped}
	for _, c := range from.Columns {
		b.Columns = append(b.Columns, Column{Name: c.Name, Type: c.Type})
	}
	if err := json.NewEncoder(w).Encode(b); err != nil {
		return err
	}
	if _, err := w.Write(from.Rows); err != nil {
		return err
	}
	if f, ok := w.(http.Flusher); ok {
		f.Flush()
	}
	return nil
}
