package config

import (
	"strings"
	"testing"
)

// TestShortSecrets: a secret of a few letters is masked as a word, and not inside others.
func TestShortSecrets(t *testing.T) {
	_, err := Parse("file", "s3: {secret_key: x, region: [x,x], next: x}\npipelines: {}", known, func(string) (string, bool) { return "", false })
	got := err.Error()
	if !strings.Contains(got, "secret_key: (secret), region: [(secret),(secret)], next: (secret)}") || !strings.Contains(got, "for example:") && !strings.Contains(got, `"next"`) {
		t.Errorf("the error is %s", got)
	}
}

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
		"script: [\"https://me:a/hunter22@example.com/a.lua\", nothing]",
		"script: [\"https://me:hunter22@b@example.com/a.lua\", nothing]",
		"script: [\"https://me:a@hunter22@example.com/a.lua\", nothing]",
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
