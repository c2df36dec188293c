//go:build linux && cgo

package sqlclient

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
)

// TestEndOf decodes the messages that end an answer.
func TestEndOf(t *testing.T) {
	if err := endOf(protocol.DoneMessage, nil); err != io.EOF {
		t.Errorf("the end: %v", err)
	}
	for _, kind := range []protocol.Kind{protocol.RequestMessage, protocol.StreamMessage, 0, 99} {
		if err := endOf(kind, nil); err != protocol.ErrInvalidMessage {
			t.Errorf("message %d: %v", kind, err)
		}
	}
	if err := endOf(protocol.FailedMessage, []byte("{")); err == nil || err == io.EOF {
		t.Errorf("a failure that cannot be read: %v", err)
	}
	text, err := json.Marshal(protocol.NewFailure(&event.Fault{Message: "m", Line: 3}))
	if err != nil {
		t.Fatal(err)
	}
	if q, ok := errors.AsType[*event.Fault](endOf(protocol.FailedMessage, text)); !ok || *q != (event.Fault{Message: "m", Line: 3}) {
		t.Errorf("a failure: %v", q)
	}
}

// TestSendExternal sends the rows of tables in chunks of many rows. Each chunk is a JSON
// array, and together they hold all rows in order.
func TestSendExternal(t *testing.T) {
	rows := func(n, size int, last error) func(yield func(any, error) bool) {
		return func(yield func(any, error) bool) {
			for i := range n {
				if !yield(map[string]any{"i": i, "text": strings.Repeat("x", size)}, nil) {
					return
				}
			}
			if last != nil {
				yield(nil, last)
			}
		}
	}
	none, last := External{Name: "none", Rows: rows(0, 0, nil)}, 3<<8+2
	tables := append(slices.Repeat([]External{none}, last), External{Name: "one", Rows: rows(1, 3, nil)})
	tables[1] = External{Name: "large", Rows: rows(50, 100_000, nil)}
	var b bytes.Buffer
	w := protocol.NewWriter(&b)
	if err := errors.Join(sendExternal(w, tables), w.Flush()); err != nil {
		t.Fatal(err)
	}
	got, pieces := map[int]int{}, 0
	for in := protocol.NewReader(&b); ; pieces++ {
		kind, text, err := in.Read()
		if err != nil {
			break
		}
		index := int(text[0]) | int(text[1])<<8
		var some []struct{ I int }
		if err := json.Unmarshal(text[4:], &some); kind != protocol.RowsMessage || err != nil || len(some) == 0 || len(text) > 2*chunkBytes {
			t.Fatalf("message %d with %d rows in %d bytes: %v", kind, len(some), len(text), err)
		}
		for _, row := range some {
			if row.I != got[index] {
				t.Errorf("table %d: row %d comes instead of %d", index, row.I, got[index])
			}
			got[index]++
		}
	}
	if !maps.Equal(got, map[int]int{1: 50, last: 1}) || pieces < 5 || pieces > 10 {
		t.Errorf("rows %v in %d pieces", got, pieces)
	}
	failed := errors.New("failed")
	if err := sendExternal(w, []External{{Name: "t", Rows: rows(1, 1, failed)}}); !errors.Is(err, failed) || !strings.Contains(err.Error(), "copy t for the query") {
		t.Errorf("rows that fail: %v", err)
	}
	explained := &event.Fault{Message: "m"}
	if err := sendExternal(w, []External{{Name: "t", Rows: rows(1, 1, explained)}}); err != error(explained) {
		t.Errorf("rows that fail with an explanation: %v", err)
	}
	if err := sendExternal(w, []External{{Name: "t", Rows: func(yield func(any, error) bool) { yield(func() {}, nil) }}}); err == nil {
		t.Error("a row that is no JSON was sent")
	}
	for _, size := range []int{10, 2 << 20} {
		if err := sendExternal(protocol.NewWriter(failing{}), []External{{Name: "t", Rows: rows(3, size, nil)}}); size > chunkBytes && !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("rows of %d bytes, to where nobody reads: %v", size, err)
		}
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
