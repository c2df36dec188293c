package format

import (
	"bytes"
	"encoding/base64"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
)

func newFormat(t testing.TB, s Settings) Format {
	t.Helper()
	f, err := New(s)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestDecode(t *testing.T) {
	columns := Settings{Format: CSV, Columns: []string{"id", "name", "at"}}
	for _, c := range []struct {
		name         string
		settings     Settings
		record, want string
		reason       string // if the format does not allow the record
	}{
		{"json stays", Settings{}, ` {"a":1}`, ` {"a":1}`, ""},
		{"invalid JSON stays", Settings{Format: JSON}, "a\x00b", "a\x00b", ""},
		{"a line", Settings{Format: Lines}, `GET "/" \ ` + "\t\x01é", `{"line":"GET \"/\" \\ \t\u0001é"}`, ""},
		{"an empty line", Settings{Format: Lines}, "", `{"line":""}`, ""},
		{"a line that is JSON", Settings{Format: Lines}, `{"a":1}`, `{"line":"{\"a\":1}"}`, ""},
		{"a line that is not UTF-8", Settings{Format: Lines}, "a\xff\xfe", `{"line":"a` + "\ufffd" + `","line_base64":"Yf/+"}`, ""},
		{"csv", columns, `7,ada,2026-01-01`, `{"id":7,"name":"ada","at":"2026-01-01"}`, ""},
		{"csv, empty fields", columns, `,,`, `{}`, ""},
		{"csv, quotes", columns, `"7","a ""b"", c",` + "\"x\r\ny\"", `{"id":7,"name":"a \"b\", c","at":"x\ny"}`, ""},
		{"csv, values", columns, `true,007,-1.5e3`, `{"id":true,"name":"007","at":-1.5e3}`, ""},
		{"csv, another separator", Settings{Format: CSV, Separator: ";", Columns: []string{"a", "b"}}, `1;x,y`, `{"a":1,"b":"x,y"}`, ""},
		{"csv, tabs", Settings{Format: CSV, Separator: "tab", Columns: []string{"a", "b"}}, "1\tx", `{"a":1,"b":"x"}`, ""},
		{"csv, too few fields", columns, `7,ada`, "", "the record has 2 fields, not 3"},
		{"csv, too many fields", columns, `7,ada,x,y`, "", "the record has 4 fields, not 3"},
		{"csv that is an object", columns, `{"a":1}`, "", "field 1 has a quote inside"},
		{"csv, a quote inside", columns, `7,a"b,x`, "", "field 2 has a quote inside"},
		{"csv, text after a quote", columns, `7,"a"b,x`, "", "field 2 has text after its closing quote"},
		{"csv, an open quote", columns, `7,"a,x`, "", "the quote of field 2 is not closed"},
		{"csv, not UTF-8", columns, "7,\xff,x", "", "it is not UTF-8"},
		{"logfmt", Settings{Format: Logfmt}, `level=info n=3 ok msg="a \"b\"\n" empty= t=2026-01-01T00:00:00Z`, `{"level":"info","n":3,"ok":true,"msg":"a \"b\"\n","empty":"","t":"2026-01-01T00:00:00Z"}`, ""},
		{"logfmt, no pair", Settings{Format: Logfmt}, `hello world`, "", "it has no key=value"},
		{"logfmt, no key", Settings{Format: Logfmt}, `a=1 =2`, "", `no key before "=2"`},
		{"logfmt, twice", Settings{Format: Logfmt}, `a=1 a=2`, "", `key "a" is there twice`},
		{"logfmt, an open quote", Settings{Format: Logfmt}, `a="1`, "", `key "a": the quote is not closed`},
		{"logfmt, text after a quote", Settings{Format: Logfmt}, `a="1"2`, "", `key "a": text follows the closing quote`},
		{"logfmt, an escape", Settings{Format: Logfmt}, `a="\x"`, "", `key "a": unknown escape \x`},
		{"logfmt, not UTF-8", Settings{Format: Logfmt}, "a=\xff", "", "it is not UTF-8"},
	} {
		f := newFormat(t, c.settings)
		b := event.Batch{Range: event.Range{First: 5, Count: 2}}
		b.Append([]byte(c.record))
		b.Append([]byte(c.record))
		f.NewDecoder().Decode(&b)
		for i := range b.Len() {
			record, reason, refused := f.Refused(b.Doc(i))
			switch {
			case refused != (c.reason != ""):
				t.Errorf("%s: refused %v (%s), want %v", c.name, refused, reason, c.reason != "")
			case refused && (!strings.Contains(reason, c.reason) || string(record) != c.record):
				t.Errorf("%s: got %q for %q, want %q", c.name, reason, record, c.reason)
			case !refused && string(b.Doc(i)) != c.want:
				t.Errorf("%s: got %s, want %s", c.name, b.Doc(i), c.want)
			}
		}
	}
}

func TestHeader(t *testing.T) {
	for header, want := range map[string]string{
		"id,name":                        "",
		"\xef\xbb\xbfid,n":               "", // as spreadsheets write it
		`"id","a ""b"""`:                 "",
		"id,":                            `the name "" twice, or empty`,
		"id,id":                          `the name "id" twice, or empty`,
		`id,"x`:                          "the quote of field 2 is not closed",
		"id,\xff":                        "not UTF-8",
		strings.Repeat("a,", 4096) + "b": "names",
	} {
		d := newFormat(t, Settings{Format: CSV}).NewDecoder()
		if !d.HasHeader() {
			t.Fatal("CSV without columns has no header")
		}
		err := d.ReadHeader([]byte(header))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) && want != "names" {
			t.Errorf("header %.40q: got %v, want %q", header, err, want)
		}
		if err == nil {
			if got := string(d.Append(nil, []byte("1,x"))); !strings.HasPrefix(got, `{"id":1,`) {
				t.Errorf("after header %q: got %s", header, got)
			}
		}
	}
}

func TestSettings(t *testing.T) {
	for _, c := range []struct {
		s              Settings
		messages       bool
		message, hints string
	}{
		{Settings{Format: "ndjson"}, false, `unknown format "ndjson"`, "use json, lines, csv or logfmt"},
		{Settings{Separator: ";"}, false, "settings of format: csv", "add format: csv"},
		{Settings{Format: Lines, Columns: []string{"a"}}, false, "settings of format: csv", "add format: csv"},
		{Settings{Format: CSV, Separator: "::"}, false, `invalid separator "::"`, "one ASCII character"},
		{Settings{Format: CSV, Separator: `"`}, false, `invalid separator`, "one ASCII character"},
		{Settings{Format: CSV, Columns: []string{"a", "a"}}, false, `the name "a" twice`, ""},
		{Settings{Format: CSV}, true, "csv needs columns", "add columns: [FIRST, SECOND, …]"},
	} {
		check := New
		if c.messages {
			check = NewMessages
		}
		_, err := check(c.s)
		if err == nil || !strings.Contains(err.Error(), c.message) || !strings.Contains(event.HintOf(err), c.hints) {
			t.Errorf("%+v: got %v, hint %q, want %q and %q", c.s, err, event.HintOf(err), c.message, c.hints)
		}
	}
}

func TestDecodeAgain(t *testing.T) {
	b := event.Batch{}
	for _, doc := range []string{`{"line":"x"}`, `10.0.0.1 - -`, `{not JSON`, `17`} {
		b.Append([]byte(doc))
	}
	newFormat(t, Settings{Format: Lines}).NewDecoder().DecodeAgain(&b)
	want := []string{`{"line":"x"}`, `{"line":"10.0.0.1 - -"}`, `{"line":"{not JSON"}`, `{"line":"17"}`}
	for i := range b.Len() {
		if string(b.Doc(i)) != want[i] {
			t.Errorf("event %d: got %s, want %s", i, b.Doc(i), want[i])
		}
	}
}

func TestHint(t *testing.T) {
	for doc, want := range map[string]string{
		`10.0.0.1 - - [01/Jan/2026:00:00:00 +0000] "GET / HTTP/1.1" 200 5 "-" "Mozilla/5.0 (X11, like Gecko)"`: "format: lines",
		`level=info msg="started" port=80`: "format: logfmt",
		`7,ada,2026-01-01`:                 "format: csv",
		`id;name;at`:                       "format: csv",
		`hello, world`:                     "format: lines",
		`{`:                                "jq -c .",
		`},`:                               "jq -c .",
		`  "a": 1,`:                        "jq -c .",
		`]`:                                "jq -c .",
		`{"a":`:                            "",
		"\x1f\x8b":                         "",
		"":                                 "",
		`[1,2]`:                            "",
		`entry 1-0 has no field "x": {}`:   "",
	} {
		if got := Hint([]byte(doc)); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q: got %q, want %q", doc, got, want)
		}
	}
}

func TestIsNumber(t *testing.T) {
	for field, want := range map[string]bool{
		"true": true, "false": true, "0": true, "9": true, "-1": true, "12.50": true, "1e9": true, "-0.5": true, "1E+2": true,
		"null": false, "True": false, "yes": false, "-": false, "01": false, "1 ": false, "+1": false, ".5": false, "1x": false, "": false,
		"{}": false, "[1]": false, `"1"`: false, "/": false, ":": false, " 1": false, "NaN": false, "1.": false, "1e": false, "1e+": false,
	} {
		if got := isPlain([]byte(field)); got != want {
			t.Errorf("%q: got %v, want %v", field, got, want)
		}
	}
}

// FuzzLines holds the promise that a line is never lost: its document has its bytes.
func FuzzLines(f *testing.F) {
	for _, line := range []string{"", "a\xffb", "\x00", `"\`, "\u2028", "\xed\xa0\x80", "x\r"} {
		f.Add([]byte(line))
	}
	d := Format{name: Lines}.NewDecoder()
	f.Fuzz(func(t *testing.T, line []byte) {
		doc := d.Append(nil, line)
		var got struct {
			Line  *string `json:"line"`
			Bytes *string `json:"line_base64"`
		}
		if err := json.Unmarshal(doc, &got); err != nil || got.Line == nil {
			t.Fatalf("%q becomes %s: %v", line, doc, err)
		}
		back := []byte(*got.Line)
		if got.Bytes != nil {
			back, _ = base64.StdEncoding.DecodeString(*got.Bytes)
		}
		if !bytes.Equal(back, line) {
			t.Errorf("%q comes back as %q", line, back)
		}
	})
}

// FuzzLogfmt looks for documents that are not JSON objects, and for lost records.
func FuzzLogfmt(f *testing.F) {
	for _, line := range []string{`a=1 b="x\n" c`, `a="`, `=`, `a="\`, `a==b`, "a=\xff", `a b=1`} {
		f.Add([]byte(line))
	}
	d := Format{name: Logfmt}.NewDecoder()
	f.Fuzz(func(t *testing.T, line []byte) {
		doc := d.Append(nil, line)
		if record, _, refused := d.Refused(doc); refused {
			if !bytes.Equal(record, line) {
				t.Errorf("%q is refused as %q", line, record)
			}
		} else if !isObject(doc) {
			t.Errorf("%q becomes %s", line, doc)
		}
	})
}

// FuzzCSV compares records and documents with those of encoding/csv, which imports use.
func FuzzCSV(f *testing.F) {
	for _, text := range []string{"a,b\n1,2\n", "a,b\r\n\"x\r\ny\",\"\"\"\"\n\n3,", "a,b\n1,\"2\n", "a,b\n1,x\"y\n3,4", "a,b\n\"1\"2,3\n4,5\n", "a,b\n1\n2,3,4\n", "\"\"\r"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		as := Format{name: CSV, separator: ','}
		with, err := as.withNames([]string{"a", "b"})
		if err != nil {
			t.Fatal(err)
		}
		row, err := NewRow([]string{"a", "b"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var got, want []string
		d := with.NewDecoder()
		var joined []byte
		ours := true // as long as every record is CSV
		for record := range with.Records(text) {
			joined = append(joined, record...)
			if with.IsBlank(record) {
				continue
			}
			doc := d.Append(nil, record)
			if original, _, refused := with.Refused(doc); refused {
				ours = ours && !bytes.Equal(original, record)
			} else if !isObject(doc) {
				t.Errorf("%q becomes %s", record, doc)
			}
			got = append(got, string(doc))
		}
		bare := func(b []byte) string { return strings.NewReplacer("\r", "", "\n", "").Replace(string(b)) }
		if bare(joined) != bare(text) {
			t.Errorf("the records of %q are %q", text, joined)
		}
		reader := csv.NewReader(bytes.NewReader(text))
		reader.FieldsPerRecord = 2
		all, err := reader.ReadAll()
		if err != nil || !ours || bytes.Contains(text, []byte("\r\r")) {
			return
		}
		for _, fields := range all {
			want = append(want, string(row.Append(nil, fields)))
		}
		if !slices.Equal(got, want) && !strings.Contains(strings.Join(want, ""), "\ufffd") {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	})
}

// TestDecodeDoesNotAllocate: records like those before take no memory but that of the batch.
func TestDecodeDoesNotAllocate(t *testing.T) {
	columns := []string{"id", "name", "path"}
	for _, c := range []struct {
		settings Settings
		record   string
	}{
		{Settings{Format: Lines}, `10.0.0.1 "GET /a/path" \ é` + "\t\x01"},
		{Settings{Format: CSV, Columns: columns}, `17,"ada lovelace",/a/path`},
		{Settings{Format: CSV, Columns: columns}, `17,"ada ""the first"" é",C:\path`},
		{Settings{Format: CSV, Columns: columns, Separator: "tab"}, "17\tada\t\"two\nlines\""},
		{Settings{Format: Logfmt}, `id=17 name="ada \"the first\"" path=/a/path seen`},
	} {
		d := newFormat(t, c.settings).NewDecoder()
		record, dst := []byte(c.record), []byte(nil)
		decode := func() { dst = d.Append(dst[:0], record) }
		decode()
		if allocs := testing.AllocsPerRun(100, decode); allocs != 0 || !isObject(dst) {
			t.Errorf("%s: %v allocations for %s", c.settings.Format, allocs, dst)
		}
	}
}

// TestLogfmtKeys: a key that an earlier record has is new in the next one, and one that is there
// twice is refused, however many keys came before.
func TestLogfmtKeys(t *testing.T) {
	d := newFormat(t, Settings{Format: Logfmt}).NewDecoder()
	var record []byte
	for i := range 2*seenMax + 1 {
		record = fmt.Appendf(record, "k%d=1 ", i)
	}
	for range 3 {
		for _, c := range []struct {
			record string
			wrong  bool
		}{{string(record), false}, {"k0=1 a=2", false}, {"a=1 k7=2 a=3", true}, {string(record) + "k0=1", true}} {
			doc := d.Append(nil, []byte(c.record))
			if _, _, refused := d.Refused(doc); refused != c.wrong {
				t.Errorf("%.40q… becomes %.40q…", c.record, doc)
			}
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	access := `10.0.0.1 - - [01/Jan/2026:00:00:00 +0000] "GET /a/path HTTP/1.1" 200 5123 "-" "Mozilla/5.0 (X11; Linux x86_64)"`
	for name, c := range map[string]struct {
		settings Settings
		record   string
	}{
		Lines:  {Settings{Format: Lines}, access},
		CSV:    {Settings{Format: CSV, Columns: []string{"id", "name", "at", "path", "bytes"}}, `123456,"ada lovelace",2026-01-01T00:00:00Z,/a/path,5123`},
		Logfmt: {Settings{Format: Logfmt}, `id=123456 name="ada lovelace" at=2026-01-01T00:00:00Z path=/a/path bytes=5123`},
	} {
		b.Run(name, func(b *testing.B) {
			d := newFormat(b, c.settings).NewDecoder()
			var dst []byte
			b.SetBytes(int64(len(c.record)))
			b.ReportAllocs()
			for b.Loop() {
				dst = d.Append(dst[:0], []byte(c.record))
			}
		})
	}
}

// TestAppendText compares strings with those of encoding/json, with each byte at each place
// of a word.
func TestAppendText(t *testing.T) {
	for c := range 128 {
		for at := range 17 {
			text := bytes.Repeat([]byte("x"), 17)
			text[at] = byte(c)
			var got string
			if err := json.Unmarshal(appendText(nil, text), &got); err != nil || got != string(text) {
				t.Errorf("%q becomes %s, which is %q: %v", text, appendText(nil, text), got, err)
			}
		}
	}
}
