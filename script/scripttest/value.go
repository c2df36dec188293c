package scripttest

import (
	"strings"
	"testing"

	"github.com/perigeedb/perigee/script"
)

// testValues: the value that main returns is the one row of its event.
func testValues(t *testing.T, lang script.Language) {
	const text = `
function main(row)
  local what = row.what
  if what == "text" then return json.encode(row) end
  if what == "number" then return row.n * 2 end
  if what == "big" then return row.n end
  if what == "bool" then return row.n == 1 end
  if what == "nil" then return nil end
  if what == "null" then return json.null end
  if what == "table" then return {a = {1, 2}} end
  if what == "list" then return {} end
  if what == "row" then row.what = nil return row end
  if what == "part" then return row.n end
  if what == "two" then return 1, 2 end
  if what == "function" then return main end
  if what == "nan" then return 0/0 end
  if what == "bytes" then return "\255" end
  if what == "error" then error("on purpose") end
end`
	s := load(t, lang, text, script.Options{ReturnsValue: true})
	docs := []string{
		`{"what":"text"}`, `{"what":"number","n":1.5}`, `{"what":"big","n":9007199254740993}`, `{"what":"bool","n":1}`,
		`{"what":"nil"}`, `{"what":"null"}`, `{"what":"table"}`, `{"what":"list"}`, `{"what":"row","n": 1.0}`,
		`{"what":"part","n":[ 1.0 ]}`, `{"what":"two"}`, `{"what":"nothing"}`,
		`{"what":"function"}`, `{"what":"nan"}`, `{"what":"bytes"}`, `{"what":"error"}`, `[]`,
	}
	res := run(t, s, docs...)
	want := []string{
		`0 "{\"what\":\"text\"}"`, `1 3`, `2 9007199254740993`, `3 true`, `4 null`, `5 null`, `6 {"a":[1,2]}`, `7 {}`,
		`8 {"n": 1.0}`, `9 [ 1.0 ]`, `10 1`, `11 null`,
	}
	if got := outLines(&res.Outputs[0]); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("values are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if len(res.Dead) != 5 || res.Dropped != 0 {
		t.Errorf("%d dead, %d dropped, want 5 and 0: %v", len(res.Dead), res.Dropped, res.Dead)
	}
	one := run(t, s, docs[1])
	if got := strings.Join(outLines(&one.Outputs[0]), ""); got != "0 3" {
		t.Errorf("alone, the value is %s, want 3", got)
	}
}

// testFunction calls another function than main.
func testFunction(t *testing.T, lang script.Language) {
	code := script.Code{Name: scriptName, Text: []byte("function label(row) return row.a end"), Func: "label"}
	s, err := lang.Load(t.Context(), code, withModules(script.Limits{}))
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		t.Error(err)
	}
	code.Func = "other"
	if _, err := lang.Load(t.Context(), code, withModules(script.Limits{})); err == nil || !strings.Contains(err.Error(), "other") {
		t.Errorf("error is %v, want one about the missing function", err)
	}
}
