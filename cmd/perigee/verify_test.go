package main

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"
)

const verifiedConfig = `
pipelines:
  orders:
    source: {redis: {address: ${NOWHERE}, list: orders}}
    script: orders.lua
    sink:
      mysql: {address: ${NOWHERE}, user: ${NOBODY}, database: shop, table: orders,
              columns: [{name: number, type: int64, field: no}, {name: part, type: int64, required: true}]}
`

// verifiedScript makes two rows of some events, none of others, fails on others, and
// makes a row that does not fit.
const verifiedScript = `
function main(event)
  if event.kind == "double" then return {{no = event.no, part = 1}, {no = event.no, part = 2}} end
  if event.kind == "drop" then return nil end
  if event.kind == "fail" then error("bad") end
  if event.kind == "misfit" then return {{no = event.no, part = 1}, {no = event.no, part = "two"}} end
  return {no = event.no, part = 1}
end`

const verifiedSample = `{"no":"x","kind":"double"}
{"no":"x","kind":"drop"}
{"kind":"fail"}

{"no":7,"kind":"misfit"}
{"no":8}
`

// TestVerifyOwnPipeline kills everything around a pipeline a few times.
func TestVerifyOwnPipeline(t *testing.T) {
	t.Setenv("NOWHERE", "127.0.0.1:1")
	t.Setenv("NOBODY", "nobody")
	folder := shortDir(t)
	config, sample := folder+"/own.yaml", folder+"/sample.ndjson"
	for path, text := range map[string]string{config: verifiedConfig, folder + "/orders.lua": verifiedScript, sample: verifiedSample} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out, errs bytes.Buffer
	code := perigee([]string{"verify", config, "--events", sample, "--id", "no", "--kills", "18", "--round", "workers: 2", "--seed", "3"},
		console{strings.NewReader(""), &out, &errs, os.LookupEnv, nil})
	said := out.String()
	if code != 0 || !strings.Contains(said, "figure verify_lost 0\nfigure verify_duplicated 0\n") || !strings.HasPrefix(said, "verify: seed 3\n") {
		t.Errorf("exit code %d\n%s%s", code, said, errs.String())
	}
	for _, pattern := range []string{`figure verify_kills [1-9]`, `kill worker at after-\w+ +│ [1-9]`, `kill mysql +│ 1`, `rows, dead letters +│ [1-9]\d*, [1-9]`} {
		if !regexp.MustCompile(pattern).MatchString(said) {
			t.Errorf("%s is not in\n%s", pattern, said)
		}
	}
}

func TestVerifyRefuses(t *testing.T) {
	config := write(t, "own.yaml", strings.Replace(verifiedConfig, "script: orders.lua", "", 1))
	t.Setenv("NOWHERE", "127.0.0.1:1")
	t.Setenv("NOBODY", "nobody")
	for _, test := range []struct{ args, says string }{
		{"verify " + config, `no column for the field "id"`},
		{"verify " + config + " --id no --pipeline orderz", `unknown pipeline "orderz"; known: orders`},
		{"verify " + config + " --id no --round nine", `none of 3 rounds has "nine"`},
	} {
		var out, errs bytes.Buffer
		code := perigee(strings.Fields(test.args), console{strings.NewReader(""), &out, &errs, os.LookupEnv, nil})
		if code != exitUsage || !strings.Contains(errs.String(), test.says) {
			t.Errorf("%s: exit code %d, and it says\n%s", test.args, code, errs.String())
		}
	}
}
