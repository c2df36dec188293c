package protocol_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/eventstore/internal/protocol"
)

// TestMessages reads messages up to the maximum size, and streams that end within a message.
func TestMessages(t *testing.T) {
	var b bytes.Buffer
	w := protocol.NewWriter(&b)
	if err := errors.Join(w.Write(protocol.RowsMessage, []byte("ab"), nil, []byte("c")), w.Write(protocol.EndOfRequest), w.WriteJSON(protocol.DoneMessage, map[string]int{"a": 1}), w.Flush()); err != nil {
		t.Fatal(err)
	}
	whole := bytes.Clone(b.Bytes())
	in := protocol.NewReader(&b)
	for _, want := range []struct {
		kind protocol.Kind
		text string
	}{{protocol.RowsMessage, "abc"}, {protocol.EndOfRequest, ""}, {protocol.DoneMessage, `{"a":1}`}} {
		if kind, text, err := in.Read(); kind != want.kind || string(text) != want.text || err != nil {
			t.Errorf("read %d %q, %v; want %d %q", kind, text, err, want.kind, want.text)
		}
	}
	if _, _, err := in.Read(); err != io.ErrUnexpectedEOF {
		t.Errorf("behind the last message: %v", err)
	}
	for n := range protocol.HeadBytes + 3 {
		if kind, text, err := protocol.NewReader(bytes.NewReader(whole[:n])).Read(); err != io.ErrUnexpectedEOF {
			t.Errorf("the first %d bytes: %d %q, %v", n, kind, text, err)
		}
	}
	for size, want := range map[uint32]error{protocol.MaxBytes: nil, protocol.MaxBytes + 1: protocol.ErrInvalidMessage, math.MaxUint32: protocol.ErrInvalidMessage} {
		head := []byte{byte(protocol.StreamMessage), byte(size), byte(size >> 8), byte(size >> 16), byte(size >> 24)}
		if kind, n, err := protocol.NewReader(bytes.NewReader(head)).ReadHead(); err != want || err == nil && (kind != protocol.StreamMessage || n != int(size)) {
			t.Errorf("a message of %d bytes: %d bytes, %v; want %v", size, n, err, want)
		}
	}
	if err := w.WriteJSON(protocol.DoneMessage, func() {}); err == nil {
		t.Error("a function was written as JSON")
	}
	full := protocol.NewWriter(failing{})
	if err := errors.Join(full.Write(protocol.RowsMessage, make([]byte, 128<<10)), full.Flush()); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("to where nobody reads: %v", err)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// TestTextOfValues formats nested values for people, which uses JSON.
func TestTextOfValues(t *testing.T) {
	for _, test := range []struct {
		value any
		want  string
	}{
		{[]any{}, `[]`},
		{[]any{int64(1)}, `[1]`},
		{[]any{int64(1), nil, 2.5}, `[1,null,2.5]`},
		{[]any{[]any{"a", "<\""}, []any{true, false}}, `[["a","<\""],[true,false]]`},
		{protocol.Struct{}, `{}`},
		{protocol.Struct{{Name: "a", Value: uint64(1)}}, `{"a":1}`},
		{protocol.Struct{{Name: "a", Value: math.Inf(1)}, {Name: "b c", Value: protocol.JSON(`{"x":1}`)}, {Name: "d", Value: []any{protocol.Struct{{Name: "e", Value: float32(0.1)}, {Name: "f", Value: []byte{0xff}}}}}},
			`{"a":null,"b c":{"x":1},"d":[{"e":0.1,"f":"/w=="}]}`},
	} {
		if got := protocol.Text(test.value); got != test.want {
			t.Errorf("%v became %s, want %s", test.value, got, test.want)
		}
	}
}

func TestParamsAreEncoded(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	params := []protocol.Param{
		{Name: "a"}, {Value: true}, {Value: false}, {Value: int64(math.MinInt64)}, {Value: 1.5}, {Value: math.Inf(1)}, {Value: "x"}, {Value: ""},
		{Value: []byte{0, 255}}, {Value: at}, {Value: protocol.TimestampNS(-1)},
	}
	encoded, err := protocol.EncodeParams(params)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(encoded)
	if err != nil {
		t.Fatal(err)
	}
	var read []protocol.JSONParam
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	for i, got := range protocol.DecodeParams(read) {
		if !reflect.DeepEqual(params[i], got) {
			t.Errorf("%#v is passed on as %#v", params[i], got)
		}
	}
	if wide, err := protocol.EncodeParams([]protocol.Param{{Value: 7}}); err != nil || protocol.DecodeParams(wide)[0].Value != int64(7) {
		t.Errorf("an int: %v", err)
	}
	if _, err := protocol.EncodeParams([]protocol.Param{{Value: uint8(7)}}); err == nil || !strings.Contains(err.Error(), "a parameter cannot be a uint8") {
		t.Errorf("a type that no parameter has: %v", err)
	}
}
