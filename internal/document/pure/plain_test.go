package pure

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type encoder string

func (e encoder) AppendJSON(out []byte) ([]byte, error) { return append(out, e...), nil }

// A failingEncoder fails after some bytes.
type failingEncoder struct{ err error }

func (e failingEncoder) AppendJSON(out []byte) ([]byte, error) { return append(out, '{'), e.err }

// TestCopyOfWhatCannotBeWritten: the error of a copy says what cannot be written as JSON.
func TestCopyOfWhatCannotBeWritten(t *testing.T) {
	var d Document
	if err := d.Index([]byte(`{"a":1}`)); err != nil {
		t.Fatal(err)
	}
	why := errors.New("a function cannot be written as JSON")
	if err := d.Root().Put("new", Value{Kind: Foreign, Foreign: failingEncoder{why}}); err != nil {
		t.Fatal(err)
	}
	if c, err := d.Root().Copy(); !errors.Is(err, why) || c != nil {
		t.Errorf("copied %v, %v; want the error %v", c, err, why)
	}
}

func TestPlain(t *testing.T) {
	var d Document
	if err := d.Index([]byte(`{"a":1.50,"b":[null,true,"é\n",{}],"big":9007199254740993,"a":2,"gone":1}`)); err != nil {
		t.Fatal(err)
	}
	if err := d.Root().Remove("gone"); err != nil {
		t.Fatal(err)
	}
	if err := d.Root().Put("new", Value{Kind: Foreign, Foreign: encoder(`[1e400]`)}); err != nil {
		t.Fatal(err)
	}
	got, err := Plain(Value{Kind: Object, Container: d.Root()})
	want := map[string]any{
		"a": 2.0, "b": []any{nil, true, "é\n", map[string]any{}}, "big": json.Number("9007199254740993"),
		"new": []any{json.Number("1e400")},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
}
