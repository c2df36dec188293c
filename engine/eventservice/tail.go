package eventservice

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/perigeedb/perigee/admin"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
)

const tailPath = "/tail"

// A tailHead is a batch of a tail as a line of JSON. The rows follow it.
type tailHead struct {
	catalog.TailBatch
	Size  int    `json:"size"`            // bytes of the rows
	Error string `json:"error,omitempty"` // reason for the end of the tail
}

// Tail calls each with the rows that the engine in a data folder appends to a table. It returns
// nil when ctx or the engine ends. It calls each once without rows when it has started.
func Tail(ctx context.Context, data string, q catalog.TailRequest, each func(*catalog.TailBatch) error) error {
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
		_ = w.CloseWithError(admin.Post(asking, data, tailPath, nil, bytes.NewReader(request), w, nil))
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
	return explainWhere(q.Where, err)
}

// readBatches reads the answer of serveTail.
func readBatches(r io.Reader, each func(*catalog.TailBatch) error) error {
	in := bufio.NewReaderSize(r, 64<<10)
	for {
		head, err := in.ReadBytes('\n')
		if err == io.EOF && len(head) == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		var b tailHead
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
		if err := each(&b.TailBatch); err != nil {
			return err
		}
	}
}
