package config

import (
	"strings"
	"testing"
)

// TestSecretsAreMasked makes faults beside secrets: no error shows one.
func TestSecretsAreMasked(t *testing.T) {
	for _, text := range []string{
		"pipelines: {p: {source: {redis: {password: hunter22}}, sink: {stdout: {}}, nothing: 1}}",
		"pipelines:\n  p:\n    sink: {http: {token: \"hunter22\", nothing: 1}}\n",
		"pipelines:\n  p:\n    sink: {mysql: {password: 'hunter22' nothing: 1}}\n",
		"s3: {secret_key: hunter22, nothing: 1}",
		"s3: {access_key: hunter22, nothing: 1}",
		"s3: {secret_key: hunter22",
		"script: [\"https://me:hunter22@example.com/a.lua\", nothing]",
		"api-key: hunter22",
		"\"Authorization\": \"hunter22\"",
		"data: x\npassword: hunter22\n  bad: indent",
		"password: hunter22\ndata: [hunter22]",
		"password:\thunter22",
	} {
		_, err := Parse("file", text, known, func(string) (string, bool) { return "", false })
		if err == nil {
			t.Errorf("%q has no fault", text)
			continue
		}
		if strings.Contains(err.Error(), "hunter22") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
