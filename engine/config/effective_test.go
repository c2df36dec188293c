package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEffectiveSecrets: the effective configuration shows no secret, wherever the configuration has it.
func TestEffectiveSecrets(t *testing.T) {
	file := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(file, []byte("hunter22\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	environment := map[string]string{"PW": "hunter22/@x", "API_TOKEN": "hunter22", "PLAIN_FILE": file, "AWS_SECRET_ACCESS_KEY": "hunter22", "HOST": "shown"}
	lookup := func(name string) (string, bool) {
		value, ok := environment[name]
		return value, ok
	}
	described := Describe(known, []Kind{{Name: "redis", Fields: []Field{
		{Key: "address", Kind: "string"}, {Key: "password", Kind: "string", Secret: true}, {Key: "params", Kind: "mapping to string"},
	}}}, []Kind{{Name: "stdout"}}, nil)
	for setting, shown := range map[string]string{
		"password: hunter22":                    "(secret)",
		"password: ${PLAIN}":                    "(secret)",
		"password: a${PW}b":                     "(secret)",
		"address: ${PLAIN}":                     "(secret)",
		"address: x-${API_TOKEN}-y":             "x-(secret)-y",
		"address: ${SOME_PASSWORD:-hunter22}":   "(secret)",
		"address: nats://me:hunter22@host":      "nats://me:(secret)@host",
		"address: nats://me:${PW}@${HOST}":      "nats://me:(secret)@shown",
		"address: ${HOST}:6379":                 "shown:6379",
		"params: {sslpassword: hunter22, b: c}": "(secret)",
		"address: ''":                           "",
	} {
		c, err := Parse("p.yaml", "pipelines: {p: {source: {redis: {"+setting+"}}, sink: {stdout: {}}}}\n", known, lookup)
		if err != nil {
			t.Fatal(err)
		}
		texts := textsOf(c.Effective(described))
		if all := strings.Join(texts, "\n"); strings.Contains(all, "hunter22") || !strings.Contains("\n"+all+"\n", "\n"+shown+"\n") {
			t.Errorf("%s shows %q, want %q among it", setting, texts, shown)
		}
	}
}

func textsOf(values []Value) (texts []string) {
	for _, v := range values {
		texts = append(append(texts, v.Text), textsOf(v.Values)...)
	}
	return texts
}
