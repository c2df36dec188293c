package gopherlua_test

import (
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/gopherlua"
)

// TestDeepSyntax loads scripts whose syntax tree would end the process when it is walked.
func TestDeepSyntax(t *testing.T) {
	const n = 20_000
	for name, text := range map[string]string{
		"blocks":    strings.Repeat("do ", n) + strings.Repeat("end ", n),
		"functions": strings.Repeat("return function() ", n) + strings.Repeat("end ", n),
		"tables":    "return " + strings.Repeat("{", n) + strings.Repeat("}", n),
		"unary":     "return " + strings.Repeat("not ", n) + "1",
		"powers":    "return " + strings.Repeat("1^", n) + "1",
		"concat":    "return " + strings.Repeat("a..", n) + "a",
		"sums":      "return " + strings.Repeat("a+", n) + "a",
		"fields":    "return a" + strings.Repeat(".a", n),
		"calls":     "return f" + strings.Repeat("()", n),
		"elseif":    "if a then " + strings.Repeat("elseif a then ", n) + "end",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := gopherlua.Language().Load(t.Context(), script.Code{Name: "deep.lua", Text: []byte(text)}, script.Options{Sinks: []script.Sink{{}}})
			if err == nil || !strings.Contains(err.Error(), "nested deeper than") {
				t.Errorf("got %.200v", err)
			}
		})
	}
}

// TestDepth builds values that are deeper than any one document, from parts that are not.
func TestDepth(t *testing.T) {
	for name, body := range map[string]string{
		"objects": `local p = event for i = 1, 80000 do p.x = json.decode('{"x":{}}') p = p.x end`,
		"arrays":  `event.x = json.decode('[[]]') local p = event.x for i = 1, 80000 do p[1] = json.decode('[[]]') p = p[1] end`,
		"tables and documents": `
			local inner = {}
			for i = 1, 20 do
				local d = json.decode(('{"x":'):rep(500) .. '{}' .. ('}'):rep(500))
				local p = d
				while p.x do p = p.x end
				p.t = {inner}
				inner = d
			end
			event.x = {inner}`,
		"encoded": `
			local t = json.decode(('['):rep(500) .. (']'):rep(500))
			for i = 1, 20 do t = {t} end
			json.encode(t)`,
	} {
		t.Run(name, func(t *testing.T) {
			text := "function main(event)\n" + body + "\nreturn event\nend"
			s, err := gopherlua.Language().Load(t.Context(), script.Code{Name: "deep.lua", Text: []byte(text)},
				script.Options{Sinks: []script.Sink{{}}, Limits: script.Limits{EventTime: 20 * time.Second, BatchTime: time.Minute}})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			var in event.Batch
			in.Append([]byte(`{"a":1}`))
			in.Range.Count = 1
			res := event.Result{Outputs: make([]event.Output, 1)}
			if err := s.Run(t.Context(), &in, &res); err != nil {
				t.Fatal(err)
			}
			if len(res.Dead) != 1 || !strings.Contains(res.Dead[0].Error, "nested deeper than 512") {
				t.Errorf("dead letters are %.300v, want one", res.Dead)
			}
		})
	}
}
