package config

import (
	"strings"
	"testing"
)

func TestTracesBlock(t *testing.T) {
	parse := func(traces string) (*Config, error) {
		return Parse("folder/perigee.yaml", traces+`
pipelines:
  mails:
    source: {redis: {lists: [emails]}}
    sink: {stdout: {}}
`, known, lookup)
	}
	for endpoint, want := range map[string]string{
		"http://localhost:4318":           "http://localhost:4318/v1/traces",
		"http://localhost:4318/":          "http://localhost:4318/v1/traces",
		"https://example.com/otlp/traces": "https://example.com/otlp/traces",
	} {
		c, err := parse(`traces: {endpoint: "` + endpoint + `", sample: 25%, headers: {x-team: mail}}`)
		if err != nil {
			t.Fatal(err)
		}
		u, err := c.Traces.URL()
		if err != nil || u.String() != want || c.Traces.Sample != 0.25 || c.Traces.Headers["x-team"] != "mail" {
			t.Errorf("%s: %v, %v, %+v", endpoint, u, err, c.Traces)
		}
	}
	for traces, want := range map[string]string{
		`traces: {endpoint: "localhost:4318"}`:                      "endpoint must be an http:// or https:// URL",
		`traces: {endpoint: "http://"}`:                             "endpoint must be an http:// or https:// URL",
		`traces: {endpoint: "http://a", sample: 1.5}`:               `invalid sample`,
		`traces: {endpoint: "http://a", sample: -1}`:                `invalid sample`,
		`traces: {endpoint: "http://a", sample: NaN}`:               "invalid sample",
		`traces: {endpoint: "http://a", headers: {"a b": c}}`:       `the header "a b" has a name or a value that HTTP does not allow`,
		`traces: {endpoint: "http://a", headers: {a: "b\r\nc: d"}}`: "does not allow",
		`traces: {endpont: "http://a"}`:                             `unknown key "endpont"`,
	} {
		if _, err := parse(traces); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", traces, err, want)
		}
	}
}
