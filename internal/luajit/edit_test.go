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

// An edit is a Lua statement, and the equivalent change of the same document in Go.
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

// luaPath formats a path of keys for Lua.
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

// anyValue returns a random value in Lua syntax and in Go.
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

// anyEdit returns a random write to, or removal from, an object with fields k0, k1, …, its object
// o, or the array in either.
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

// TestEditsAgainstGo edits documents in C and in Go, and compares them. The numbers of fields are
// close to the sizes of words and blocks in C. Several documents of one form are followed by one of
// another.
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

// editedDocument has fields k0, k1, …, one of them twice and some with white space, an object o
// with a few fields, and an array in both.
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

// TestEditsBesideAWord writes and removes fields around the 64th value of a document, in all
// combinations, with a field far before them written or not.
func TestEditsBesideAWord(t *testing.T) {
	const first, last, fields = 59, 66, 70 // field k0 is the value after the document itself
	code := fmt.Sprintf(`
		function main(event)
			local mask, removes = event.k0, event.k1
			if event.k2 == 1 then event.k3 = nil elseif event.k2 == 2 then event.k3 = "early" end
			for i = %d, %d do
				if mask %% 2 == 1 then
					if removes %% 2 == 1 then event["k" .. i] = nil else event["k" .. i] = "w" .. i end
				end
				mask, removes = math.floor(mask / 2), math.floor(removes / 2)
			end
			return event
		end`, first, last)
	var docs, want []string
	for mask := range 1 << (last - first + 1) {
		for _, removes := range []int{0, 0xff, 0x55, 0xcc, mask >> 1} {
			before, after := "{", "{"
			early := (mask + removes) % 3
			for i := range fields {
				value := fmt.Sprint(i)
				switch i {
				case 0:
					value = fmt.Sprint(mask)
				case 1:
					value = fmt.Sprint(removes)
				case 2:
					value = fmt.Sprint(early)
				}
				before += fmt.Sprintf(`"k%d":%s,`, i, value)
				switch bit := i - first; {
				case i == 3 && early == 1:
					continue
				case i == 3 && early == 2:
					value = `"early"`
				case bit >= 0 && i <= last && mask>>bit&1 == 1:
					if removes>>bit&1 == 1 {
						continue
					}
					value = fmt.Sprintf(`"w%d"`, i)
				}
				after += fmt.Sprintf(`"k%d":%s,`, i, value)
			}
			docs, want = append(docs, before[:len(before)-1]+"}"), append(want, after[:len(after)-1]+"}")
		}
	}
	for _, interpreted := range []bool{false, true} {
		opts := defaults()
		opts.NoJIT = interpreted
		for begin := 0; begin < len(docs); begin += 100 {
			some := docs[begin:min(begin+100, len(docs))]
			out := runOn(t, opts, code, some...)
			at := uint32(0)
			for i, end := range out.Ends {
				if got := string(out.Data[at:end]); got != want[begin+i] {
					t.Fatalf("%s became\n%s, want\n%s", some[i], got, want[begin+i])
				}
				at = end
			}
			if len(out.Ends) != len(some) {
				t.Fatalf("%d documents from %d, %v", len(out.Ends), len(some), out.DeadEvents())
			}
		}
	}
}

// TestReplacedValues checks that a replaced value is distinct from its replacement, and that
// containers keep their identity where they are put.
func TestReplacedValues(t *testing.T) {
	for body, want := range map[string]string{
		`event.k = 1 event.k = json.decode('{}') local t = event.k t.x = 5 event.k.y = 6`:                                                 `{"a":1,"k":{"x":5,"y":6}}`,
		`local t = json.decode('{}') event.k = 1 event.k = t t.x = 5 event.k.y = 6 event.l = 7`:                                           `{"a":1,"k":{"y":6},"l":7}`,
		`event.k = json.decode('{}') local t = event.k event.k = 5 event.l = 6 pcall(function() t.x = 1 end)`:                             `{"a":1,"k":5,"l":6}`,
		`event.k = "one" event.k = "two" event.k = 3 event.k = true event.k = "four\n"`:                                                   `{"a":1,"k":"four\n"}`,
		`event.a = "one" event.b = 2 event.a = 3 event.b = "four" event.a = nil event.a = 5`:                                              `{"a":5,"b":"four"}`,
		`event.a = nil event.b = 1 event.b = nil`:                                                                                         `{}`,
		`event.b = 1 event.b = nil event.c = 2`:                                                                                           `{"a":1,"c":2}`,
		`event.a = event.a + 1 event.b = event.a event.a = event.b + 1`:                                                                   `{"a":3,"b":2}`,
		`event.l = json.decode('[1,[2],3]') local t = event.l[2] table.remove(event.l, 1) t[1] = "x"`:                                     `{"a":1,"l":[["x"],3]}`,
		`event.l = json.decode('[]') for i = 1, 9 do event.l[i] = i end table.insert(event.l, 5, "in") table.insert(event.l, 11, "last")`: `{"a":1,"l":[1,2,3,4,"in",5,6,7,8,9,"last"]}`,
		`event.l = json.decode('[1,2,3]') for i = 1, 3 do table.remove(event.l, 1) end event.l[1] = json.null`:                            `{"a":1,"l":[null]}`,
		`event.e = tostring(pcall(function() event.l = json.decode('[1]') event.l.x = 1 end)) event.l = nil`:                              `{"a":1,"e":"false"}`,
		`event.l = json.decode('[1,2]') local l, ok = event.l, {} for i, n in ipairs({0, 1, 1.5, 3, -1, 5, 2^32 + 1}) do ok[i] = tostring(pcall(function() l[n] = "w" end)):sub(1, 1) end event.e = table.concat(ok)`: `{"a":1,"l":["w",2,"w"],"e":"ftftfff"}`,
	} {
		for _, interpreted := range []bool{false, true} {
			opts := defaults()
			opts.NoJIT = interpreted
			out := runOn(t, opts, "function main(event)\n"+body+"\nreturn event end", `{"a":1}`)
			if got := string(out.Data); got != want {
				t.Errorf("%s\nmakes %s, %v\nwant  %s", body, got, out.DeadEvents(), want)
			}
		}
	}
}
