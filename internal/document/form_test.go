package document_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/document"
)

// formColumns are all fields of the documents below, as text.
var formColumns = []event.Column{
	{Name: "id", Path: []string{"id"}, Type: event.JSON},
	{Name: "name", Path: []string{"name"}, Type: event.JSON},
	{Name: "meta", Path: []string{"meta"}, Type: event.JSON},
	{Name: "tags", Path: []string{"meta", "tags"}, Type: event.JSON},
	{Name: "empty", Path: []string{"meta", "empty"}, Type: event.JSON},
	{Name: "long", Path: []string{"a name that is longer than sixteen bytes"}, Type: event.JSON},
	{Name: "é", Path: []string{"é"}, Type: event.JSON},
}

// extracted is the result for the last of the documents.
func extracted(t *testing.T, docs ...string) []string {
	t.Helper()
	data, ends := batch(docs...)
	var cols event.Columns
	report, err := document.NewExtractor(formColumns).Extract(slices.Clip(data), ends, &cols)
	if err != nil {
		t.Fatal(err)
	}
	row := len(docs) - 1
	var values []string
	for i := range cols.Vectors {
		text := "absent"
		if v := &cols.Vectors[i]; v.Null[row] == 0 {
			text = string(v.Text(row))
		}
		values = append(values, text)
	}
	for _, bad := range report.Rejected {
		if bad.Row == row {
			values = append(values, bad.Reason)
		}
	}
	return values
}

// sameAlone checks that a document gives the same result after others as by itself.
func sameAlone(t *testing.T, before, doc string) {
	t.Helper()
	behind := append(slices.Repeat([]string{before}, 8), doc)
	if diff := cmp.Diff(extracted(t, doc), extracted(t, behind...)); diff != "" {
		t.Errorf("%q behind %q (-alone +behind):\n%s", doc, before, diff)
	}
}

const formed = `{"id":1,"name":"ann","meta":{"tags":["a",{"k":null}],"empty":{ },"n":-2.5e3},` +
	`"a name that is longer than sixteen bytes": true ,"\u00e9":""}`

func TestForm(t *testing.T) {
	swap := func(old, with string) string { return strings.Replace(formed, old, with, 1) }
	long := strings.Repeat("0123456789", 20)
	for _, doc := range []string{
		formed, "", `{}`, formed + " ", " " + formed, formed + "}", formed[:len(formed)-1], formed[:20], formed + formed,
		swap(`1,`, `123456789012345678901234567890,`), swap(`1,`, `-,`), swap(`1,`, `01,`), swap(`1,`, `"1",`),
		swap(`1,`, `{},`), swap(`1,`, `[1,2],`), swap(`1,`, ` 1,`), swap(`1,`, `,`),
		swap(`ann`, ``), swap(`ann`, long), swap(`ann`, `\"\\`), swap(`ann`, `\x`), swap(`ann`, "\n"), swap(`ann`, "\xff"),
		swap(`ann`, "日本"), swap(`"ann"`, `null`), swap(`"ann"`, `"ann`), swap(`"ann"`, `ann"`), swap(`"ann"`, `{"x":[]}`),
		swap(`["a",`, `["a","b",`), swap(`{ }`, `{}`), swap(`{ }`, `{"x":1}`), swap(`null`, `nul`), swap(`null`, long),
		swap(`"id"`, `"if"`), swap(`"name"`, `"nam"`), swap(`bytes`, `bites`), swap(` true `, ` false `), swap(` true `, `true`),
		swap(`\u00e9`, `é`), swap(`\u00e9`, `\u00ea`), swap(`""}`, `""]`), swap(`""}`, `"}"}`), swap(`-2.5e3`, `-2.5e`),
	} {
		sameAlone(t, formed, doc)
	}
}

// TestFormOfMany checks the same for many fields.
func TestFormOfMany(t *testing.T) {
	for _, n := range []int{15, 16, 17, 63, 64, 65, 300, 600} {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`"f%d":"%s"`, i, strings.Repeat("x", i%70)))
		}
		doc := "{" + strings.Join(all, ",") + `,"id":7}`
		sameAlone(t, doc, strings.Replace(doc, `"f3":"xxx"`, `"f3":"xxxx"`, 1))
		sameAlone(t, doc, strings.Replace(doc, `"f3":"xxx"`, `"f3":3`, 1))
	}
}

// TestFormOfTexts changes each byte between two values, which are up to 40 bytes apart.
func TestFormOfTexts(t *testing.T) {
	for _, first := range []string{`{"name":"longer than sixteen bytes"`, `{"name":12`} {
		for _, last := range []string{`"id":"x"`, `"id":7`} {
			for n := range 32 {
				between := "," + strings.Repeat(" ", n) + last
				for i := range len(between) - 1 {
					sameAlone(t, first+between+"}", first+between[:i]+"!"+between[i+1:]+"}")
				}
			}
		}
	}
}

// TestFormAfterEscapes reads texts after one with escapes, with their special characters at each
// place of a block.
func TestFormAfterEscapes(t *testing.T) {
	for _, before := range []string{`{"id":"\n","name":"x"}`, `{"id":"` + strings.Repeat("x", 70) + `\u00e9","name":"x"}`} {
		for _, special := range []string{"x", "é", `\"`, `\\`, `\\\\\"`, `\u00e9`, `\x`, `\u00g9`, `\`, "\x01", "\x01\\x", "\\x\x01", "\xff", "\\n\xff"} {
			for n := range 130 {
				sameAlone(t, before, `{"id":"`+strings.Repeat("y", n)+special+`","name":"z"}`)
			}
		}
	}
}

func FuzzForm(f *testing.F) {
	f.Add(formed, formed)
	f.Add(`{"id":[[],{"a":[1]}],"name":1}`, `{"id":[[],{"a":["x"]}],"name":1}`)
	f.Add(`{"id":1}`, `{"id":"\u00e9"}`)
	f.Add(`{"id":"`+strings.Repeat("x", 130)+`","name":2}`, `{"id":"x","name":2}`)
	f.Fuzz(func(t *testing.T, before, doc string) {
		sameAlone(t, before, doc)
	})
}
