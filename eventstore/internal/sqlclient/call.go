//go:build linux

package sqlclient

import (
	"context"
	"encoding/binary"
	"encoding/json"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
)

// answerCall answers a call of a query. The answer's context cancels it.
func (a *answer) answerCall(body []byte) error {
	return a.answerCallBy(body, func(ctx context.Context, index int, documents [][]byte) ([][]byte, error) {
		if index >= len(a.process.functions) {
			return nil, protocol.ErrInvalidMessage
		}
		return a.process.functions[index].Call(ctx, documents)
	})
}

// fetchFiles answers a query's request for files. Meanwhile the query does not count as blocked by
// others.
func (a *answer) fetchFiles(body []byte) error {
	var files []protocol.NeededFile
	if err := json.Unmarshal(body, &files); err != nil || a.fetch == nil {
		return protocol.ErrInvalidMessage
	}
	a.setWaits(false)
	err := a.fetch(a.ctx, files)
	a.setWaits(true)
	out := protocol.NewWriter(a.socket)
	if err == nil {
		err = out.Write(protocol.FilesHere)
	} else {
		err = out.WriteJSON(protocol.FilesHere, protocol.NewFailure(event.FaultOf(err)))
	}
	if err != nil {
		return err
	}
	return out.Flush()
}

// setWaits records whether the query waits for its worker.
func (a *answer) setWaits(waits bool) {
	c := a.process.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.waits = waits; waits && a.long != nil && !a.ended {
		a.long.Reset(longTime)
	}
}

// answerCallBy answers a call with the results of call.
func (a *answer) answerCallBy(body []byte, call func(ctx context.Context, index int, documents [][]byte) ([][]byte, error)) error {
	if len(body) < 4 {
		return protocol.ErrInvalidMessage
	}
	documents, err := protocol.SplitTexts(body[4:])
	if err != nil {
		return protocol.ErrInvalidMessage
	}
	status := []byte{0}
	values, err := call(a.ctx, int(binary.LittleEndian.Uint32(body)), documents)
	if err != nil {
		status[0], values = 1, [][]byte{[]byte(err.Error())}
	}
	body = protocol.AppendTexts(nil, values)
	if len(body) >= protocol.MaxBytes {
		status[0], body = 1, protocol.AppendTexts(nil, [][]byte{[]byte("the values of a function are too large")})
	}
	out := protocol.NewWriter(a.socket)
	if err := out.Write(protocol.ValuesMessage, status, body); err != nil {
		return err
	}
	return out.Flush()
}
