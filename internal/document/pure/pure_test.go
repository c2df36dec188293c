package pure_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/perigeedb/perigee/internal/document/pure"
)

var seeds = []string{
	`{}`, `{"a":1}`, ` { "a" : [ 1 , { "b" : "\u00e9\\" } ] , "c" : -1.5e+3 } `, `{"a":"x`, `{"a":01}`, `{"a":1,"a":2,"A":3}`,
	"{\"k\":\"v\x01\"}", "{\"k\":\"\xff\"}", `{"a":1}x`, `{"a":true,"b":null,"c":false,"d":[],"e":{}}`, `{"k\u0065y":"\ud800"}`,
	`{"a":tru`, `{"a":[1,]}`, `{"":""}`, `{"a":9007199254740993,"b":1e400,"c":0.1000000000000000055511151231257827}`,
	"[{}]", "\xef\xbb\xbf{}", "\xef\xbb", "\xff\xfe{", " \xfe\xff{", "\x1f\x8b\x08{", "\x1f",
	`{"a":{"b":{"c":[[1],[2,[3]]]}},"time":"2026-11-22T10:00:00.5+01:00","n":1795305600.25}`,
}

// FuzzIndex holds the index to encoding/json: the same documents, except that
// ours must be objects in UTF-8 and not nested too deep, the same values, and
// the same bytes when nothing was written.
func FuzzIndex(f *testing.F) {
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		if bytes.Count(doc, []byte("["))+bytes.Count(doc, []byte("{")) > 512 {
			return
		}
		trimmed := bytes.Trim(doc, " \t\r\n")
		valid := json.Valid(doc) && utf8.Valid(doc) && trimmed[0] == '{'
		var d pure.Document
		if err := d.Index(doc); (err == nil) != valid {
			t.Fatalf("%q: got %v, want valid %v", doc, err, valid)
		}
		if !valid {
			return
		}
		if got, err := d.Root().Append(nil); err != nil || !bytes.Equal(got, trimmed) {
			t.Errorf("untouched %q left as %q, %v", doc, got, err)
		}
		if want, got := decode(t, doc), plain(t, d.Root()); !reflect.DeepEqual(got, want) {
			t.Errorf("%q reads as %#v, want %#v", doc, got, want)
		}
	})
}

func decode(t *testing.T, doc []byte) any {
	t.Helper()
	var v any
	decoder := json.NewDecoder(bytes.NewReader(doc))
	decoder.UseNumber()
	if err := decoder.Decode(&v); err != nil {
		t.Fatalf("%q: %v", doc, err)
	}
	return exact(v)
}

// exact makes the numbers floats that hold them, as the documents do.
func exact(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key := range v {
			v[key] = exact(v[key])
		}
	case []any:
		for i := range v {
			v[i] = exact(v[i])
		}
	case json.Number:
		if x, ok := pure.Exact(string(v)); ok {
			return x
		}
	}
	return v
}

// plain turns a container into what encoding/json makes of it.
func plain(t *testing.T, c *pure.Container) any {
	if c.Kind() == pure.Array {
		list := make([]any, c.Len())
		for i := range list {
			list[i] = plainValue(t, c.At(float64(i+1)))
		}
		return list
	}
	object := map[string]any{}
	for at, key, v := c.Step(-1); at >= 0; at, key, v = c.Step(at) {
		object[key] = plainValue(t, v)
		if got := plainValue(t, c.Get(key)); !reflect.DeepEqual(got, object[key]) {
			t.Errorf("field %q is %v when stepped to and %v when read", key, object[key], got)
		}
	}
	return object
}

func plainValue(t *testing.T, v pure.Value) any {
	switch v.Kind {
	case pure.False, pure.True:
		return v.Kind == pure.True
	case pure.String:
		return v.Text
	case pure.Object, pure.Array:
		return plain(t, v.Container)
	case pure.Number:
		return v.Num
	case pure.Big:
		return json.Number(v.Text)
	}
	return nil
}

// FuzzEdit holds writes to a model of ordered fields.
func FuzzEdit(f *testing.F) {
	for _, seed := range seeds {
		f.Add([]byte(seed), []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9})
		f.Add([]byte(seed), []byte("remove and put again"))
	}
	f.Fuzz(func(t *testing.T, doc, ops []byte) {
		var d pure.Document
		if d.Index(doc) != nil {
			return
		}
		model := modelOf(&d)
		for len(ops) >= 2 {
			edit(t, d.Root(), model, ops[0], ops[1])
			ops = ops[2:]
		}
		got, err := d.Root().Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		var again pure.Document
		if err := again.Index(got); err != nil {
			t.Fatalf("%q became %q, which is no document: %v", doc, got, err)
		}
		if got, want := modelOf(&again).String(), model.String(); got != want {
			t.Errorf("%q became %s, want %s", doc, got, want)
		}
	})
}

// A model is the top level of an object: its fields in order, as they are
// spelled. A removed field keeps its place.
type model struct{ fields []field }

type field struct {
	key, value string
	removed    bool
}

func modelOf(d *pure.Document) *model {
	m := &model{}
	for at, key, v := d.Root().Step(-1); at >= 0; at, key, v = d.Root().Step(at) {
		text, _ := pure.AppendValue(nil, v)
		m.fields = append(m.fields, field{key: key, value: string(text)})
	}
	return m
}

func (m *model) String() string {
	var s strings.Builder
	for _, f := range m.fields {
		if !f.removed {
			fmt.Fprintf(&s, "%q: %s, ", f.key, f.value)
		}
	}
	return s.String()
}

func (m *model) find(key string) *field {
	for i := range m.fields {
		if m.fields[i].key == key {
			return &m.fields[i]
		}
	}
	m.fields = append(m.fields, field{key: key, removed: true})
	return &m.fields[len(m.fields)-1]
}

// edit puts or removes one of a few keys, those of the document among them.
func edit(t *testing.T, c *pure.Container, m *model, op, value byte) {
	keys := []string{"a", "b", "new", "k\"é"}
	for _, f := range m.fields {
		keys = append(keys, f.key)
	}
	key := keys[int(op>>1)%len(keys)]
	if op&1 == 0 {
		*m.find(key) = field{key: key, value: strconv.Itoa(int(value))}
		if err := c.Put(key, pure.Value{Kind: pure.Number, Num: float64(value)}); err != nil {
			t.Fatal(err)
		}
		return
	}
	if slices.ContainsFunc(m.fields, func(f field) bool { return f.key == key }) {
		m.find(key).removed = true
	}
	if err := c.Remove(key); err != nil {
		t.Fatal(err)
	}
}
