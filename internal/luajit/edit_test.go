//go:build cgo && luajit

package luajit

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/internal/document/pure"
)

// An edit is a statement of Lua, and what it does to the same document in Go.
type edit struct {
	lua   string
	apply func(root *pure.Container) error
}

// container returns the object or array at a path of keys.
func container(c *pure.Container, path []string) *pure.Container {
	for _, key := range path {
		c = c.Get(key).Container
	}
	return c
}

// luaPath spells a path of keys.
func luaPath(path []string) string {
	text := "event"
	for _, key := range path {
		text += "[" + luaString(key) + "]"
	}
	return text
}

func luaString(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		fmt.Fprintf(&b, `\%03d`, c)
	}
	return `"` + b.String() + `"`
}

// anyValue is a value as Lua spells it, and in Go.
func anyValue(random *rand.Rand) (lua string, value func() pure.Value) {
	scalar := func(v pure.Value) func() pure.Value { return func() pure.Value { return v } }
	switch random.IntN(9) {
	case 0:
		return "true", scalar(pure.Value{Kind: pure.True})
	case 1:
		return "false", scalar(pure.Value{Kind: pure.False})
	case 2:
		return "json.null", scalar(pure.Value{Kind: pure.Null})
	case 3, 4:
		numbers := []float64{0, -1, 7, 0.5, -0.001, 123456.789, 1e15, 999999999999.5, 1e300, 5e-324, 1.0 / 3, 1 << 53, -9007199254740993, 1e22, 0.1 + 0.2, 100}
		x := numbers[random.IntN(len(numbers))]
		return strconv.FormatFloat(x, 'g', 17, 64), scalar(pure.Value{Kind: pure.Number, Num: x})
	case 5:
		texts := []string{`{}`, `[]`, `{"a":{"b":[1,2]}}`, `[{"a":1},[ ],"x"]`, `{"k0":1,"k0":2}`}
		text := texts[random.IntN(len(texts))]
		return "json.decode(" + luaString(text) + ")", func() pure.Value {
			v, err := pure.Parse([]byte(text))
			if err != nil {
				panic(err)
			}
			return v
		}
	}
	texts := []string{"", "x", "\"", "\\", "\b\f\n\r\t\x01\x1f", "é日😀", "0123456789abcde", "0123456789abcdef", strings.Repeat("long", 40), strings.Repeat("p", 63) + "\"", "/</>"}
	text := texts[random.IntN(len(texts))]
	return luaString(text), scalar(pure.Value{Kind: pure.String, Text: text})
}

// anyEdit writes to, or removes from, an object with so many fields k0, k1, …, or its object o,
// or the array in either.
func anyEdit(random *rand.Rand, fields int) edit {
	paths := [][]string{nil, {"o"}}
	path := paths[random.IntN(2)]
	lua, value := anyValue(random)
	if random.IntN(4) == 0 {
		path = append(append([]string{}, path...), "list")
		array := luaPath(path)
		switch random.IntN(3) {
		case 0:
			return edit{fmt.Sprintf("table.insert(%s, 1, %s)", array, lua), func(root *pure.Container) error {
				return container(root, path).Insert(1, value())
			}}
		case 1:
			return edit{fmt.Sprintf("table.remove(%s, 1)", array), func(root *pure.Container) error {
				if c := container(root, path); c.Len() > 0 {
					return c.RemoveAt(1)
				}
				return nil
			}}
		}
		return edit{fmt.Sprintf("%s[#%[1]s + %d] = %s", array, random.IntN(2), lua), nil}
	}
	key := "k" + strconv.Itoa(random.IntN(fields+3)) // some are new
	if random.IntN(8) == 0 {
		key = []string{"", "é", "a\"b", "new\nline", strings.Repeat("k", 44), strings.Repeat("k", 45), "dup"}[random.IntN(7)]
	}
	field := luaPath(append(append([]string{}, path...), key))
	switch random.IntN(5) {
	case 0, 1:
		return edit{field + " = nil", func(root *pure.Container) error { return container(root, path).Remove(key) }}
	}
	return edit{field + " = " + lua, func(root *pure.Container) error { return container(root, path).Put(key, value()) }}
}

// TestEditsAgainstGo edits documents in C and in Go: with as many fields as lie beside the words
// and blocks that the C keeps them in, several of one form, and then one of another.
func TestEditsAgainstGo(t *testing.T) {
	random := rand.New(rand.NewPCG(22, 16))
	for _, fields := range []int{0, 1, 2, 5, 13, 14, 15, 16, 17, 29, 30, 31, 32, 33, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 70, 127, 128, 129, 300} {
		for round := range 6 {
			doc := editedDocument(random, fields)
			docs := []string{doc, doc, doc, doc, doc, doc, editedDocument(random, fields), doc, strings.Replace(doc, `:`, ` : `, 1)}
			var edits []edit
			code := "function main(event)\n"
			for range 1 + random.IntN(12) {
				e := anyEdit(random, fields)
				if e.apply == nil {
					continue
				}
				edits = append(edits, e)
				code += e.lua + "\n"
			}
			code += "return event end"
			opts := defaults()
			opts.NoJIT = round%2 == 1
			out := runOn(t, opts, code, docs...)
			if dead := out.DeadEvents(); len(dead) > 0 || len(out.Ends) != len(docs) {
				t.Fatalf("%d documents from %d, %v\n%s\n%s", len(out.Ends), len(docs), dead, doc, code)
			}
			begin := uint32(0)
			for i, end := range out.Ends {
				var d pure.Document
				if err := d.Index([]byte(docs[i])); err != nil {
					t.Fatal(err)
				}
				for _, e := range edits {
					if err := e.apply(d.Root()); err != nil {
						t.Fatalf("%s: %v", e.lua, err)
					}
				}
				want, err := d.Root().Append(nil)
				if err != nil {
					t.Fatal(err)
				}
				if got := string(out.Data[begin:end]); got != string(want) {
					t.Fatalf("document %d: %s\nwith\n%s\nbecame %s\nwant   %s", i, docs[i], code, got, want)
				}
				begin = end
			}
		}
	}
}

// editedDocument has so many fields k0, k1, …, one of them twice and some with white space, an
// object o with a few, and an array in both.
func editedDocument(random *rand.Rand, fields int) string {
	var all []string
	values := []string{`1`, `-2.50`, `"text"`, `"e\u0073c\n"`, `null`, `true`, `{"a":[1]}`, `[ ]`, `123456789012345678901`, `"` + strings.Repeat("v", 70) + `"`}
	for i := range fields {
		all = append(all, fmt.Sprintf(`"k%d":%s`, i, values[random.IntN(len(values))]))
	}
	all = append(all, `"list":[1,"two",{"x":3}]`, fmt.Sprintf(`"o": { "k0":1, "k1" : "%s" ,"list":[], "k2":{} }`, strings.Repeat("z", random.IntN(20))))
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	if random.IntN(2) == 0 {
		all = append(all, `"dup":1`, `"d\u0075p":2`)
	}
	return "{" + strings.Join(all, []string{",", " , ", ",\n\t"}[random.IntN(3)]) + "}"
}
