package pure_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/internal/document/pure"
	"github.com/perigeedb/perigee/internal/document/report"
)

// TestWritesToArrays writes to an array of a document that was not written to before.
func TestWritesToArrays(t *testing.T) {
	text := func(s string) pure.Value { return pure.Value{Kind: pure.String, Text: s} }
	for name, test := range map[string]struct {
		write func(a *pure.Container) error
		want  string
		err   error
	}{
		"element":         {func(a *pure.Container) error { return a.PutAt(1, text("new")) }, `{"n":1.0,"a":["new",2.0,{"b": 3}]}`, nil},
		"behind the end":  {func(a *pure.Container) error { return a.PutAt(4, text("new")) }, `{"n":1.0,"a":[1,2.0,{"b": 3},"new"]}`, nil},
		"insert":          {func(a *pure.Container) error { return a.Insert(2, text("new")) }, `{"n":1.0,"a":[1,"new",2.0,{"b": 3}]}`, nil},
		"remove":          {func(a *pure.Container) error { return a.RemoveAt(2) }, `{"n":1.0,"a":[1,{"b": 3}]}`, nil},
		"order":           {func(a *pure.Container) error { a.Permute([]int{2, 0, 1}); return nil }, `{"n":1.0,"a":[{"b": 3},1,2.0]}`, nil},
		"in an element":   {func(a *pure.Container) error { return a.At(3).Container.Put("b", text("new")) }, `{"n":1.0,"a":[1, 2.0, {"b": "new"}]}`, nil},
		"index 0":         {func(a *pure.Container) error { return a.PutAt(0, text("new")) }, `{"n":1.0,"a":[1, 2.0, {"b": 3}]}`, pure.ErrNoIndex},
		"fraction":        {func(a *pure.Container) error { return a.Insert(1.5, text("new")) }, `{"n":1.0,"a":[1, 2.0, {"b": 3}]}`, pure.ErrNoIndex},
		"past the end":    {func(a *pure.Container) error { return a.PutAt(5, text("new")) }, `{"n":1.0,"a":[1, 2.0, {"b": 3}]}`, pure.ErrNoIndex},
		"remove past end": {func(a *pure.Container) error { return a.RemoveAt(4) }, `{"n":1.0,"a":[1, 2.0, {"b": 3}]}`, pure.ErrNoIndex},
	} {
		var d pure.Document
		if err := d.Index([]byte(`{"n":1.0,"a":[1, 2.0, {"b": 3}]}`)); err != nil {
			t.Fatal(err)
		}
		if err := test.write(d.Root().Get("a").Container); !errors.Is(err, test.err) {
			t.Errorf("%s: error %v, want %v", name, err, test.err)
		}
		if got, err := d.Root().Append(nil); err != nil || string(got) != test.want {
			t.Errorf("%s: %s, %v, want %s", name, got, err, test.want)
		}
	}
}

// TestDepthOfWrittenValues writes values of the maximum depth, and one level deeper. Their deepest
// part is alone, before, after and between others.
func TestDepthOfWrittenValues(t *testing.T) {
	for _, form := range []string{`[%]`, `[%,[]]`, `[[],%]`, `[[[]],1,%]`, `{"a":{},"b":%}`, `[[],{"a":[]},%,"x",{}]`} {
		for _, inner := range []bool{false, true} {
			var d pure.Document
			if err := d.Index([]byte(`{"o":{}}`)); err != nil {
				t.Fatal(err)
			}
			to, room := d.Root(), report.MaxDepth-2 // the root and the value's outermost brackets
			if inner {
				to, room = to.Get("o").Container, room-1
			}
			for n, want := range map[int]error{room: nil, room + 1: pure.ErrTooDeep} {
				v, err := pure.Parse([]byte(strings.Replace(form, "%", strings.Repeat("[", n)+strings.Repeat("]", n), 1)))
				if err != nil {
					t.Fatal(err)
				}
				if err := to.Put("v", v); !errors.Is(err, want) {
					t.Errorf("%s with %d brackets, below the root %t: error %v, want %v", form, n, inner, err, want)
				}
			}
		}
	}
}
