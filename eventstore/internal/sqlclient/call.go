//go:build linux

package sqlclient

import (
	"context"
	"encoding/binary"

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
