package config

import (
	"strings"
	"testing"
	"time"
)

func TestQueryBlock(t *testing.T) {
	parse := func(query string) (*Config, error) {
		return Parse("folder/perigee.yaml", query+`
pipelines:
  mails:
    source: {redis: {lists: [emails]}}
    sink: {stdout: {}}
`, known, lookup)
	}
	c, err := parse(`query: {listen: "0.0.0.0:4292", token: secret, cert: a.pem, key: /b.pem, time: 1m, memory: 1GiB}`)
	if err != nil {
		t.Fatal(err)
	}
	q := c.Query
	if q.Listen != "0.0.0.0:4292" || q.Token != "secret" || !strings.HasSuffix(q.Cert, "/folder/a.pem") || q.Key != "/b.pem" || q.Time != time.Minute || q.Memory != 1<<30 {
		t.Errorf("%+v", q)
	}
	for query, want := range map[string]string{
		`query: {listen: "0.0.0.0:4292"}`:               "listening on 0.0.0.0:4292 needs a token: anybody there could read every table and state",
		`query: {listen: ":4292"}`:                      "needs a token",
		`query: {listen: localhost}`:                    "missing port",
		`query: {listen: "localhost:1", cert: a.pem}`:   "TLS needs both cert and key",
		`query: {token: secret}`:                        "token, cert and key need listen",
		`query: {memory: 1MiB}`:                         "memory must be at least 16MiB",
		`query: {time: -1s}`:                            "time must be a duration",
		`query: {listen: "localhost:1", tokn: "hello"}`: `unknown key "tokn"`,
	} {
		if _, err := parse(query); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", query, err, want)
		}
	}
	if _, err := parse(`query: {listen: "127.0.0.1:4292"}`); err != nil {
		t.Errorf("on loopback: %v", err)
	}
}
