package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestValueFiles: NAME_FILE names a file with the value of NAME.
func TestValueFiles(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	one := write("one", "s3cret\n")
	for _, c := range []struct {
		name        string
		environment map[string]string
		raw         string
		want, fault string
	}{
		{"a file", map[string]string{"A_FILE": one}, "${A}", "s3cret", ""},
		{"a file of Windows", map[string]string{"A_FILE": write("windows", "s3cret\r\n")}, "${A}", "s3cret", ""},
		{"only the last line break is removed", map[string]string{"A_FILE": write("lines", " a\n\nb \n\n")}, "${A}", " a\n\nb \n", ""},
		{"an empty variable beside a file", map[string]string{"A": "", "A_FILE": one}, "${A}", "s3cret", ""},
		{"a file before a default", map[string]string{"A_FILE": one}, "${A:-default}", "s3cret", ""},
		{"a file that is required", map[string]string{"A_FILE": one}, "${A:?message}", "s3cret", ""},
		{"an empty file, and a default", map[string]string{"A_FILE": write("empty", "\n")}, "${A:-default}", "default", ""},
		{"an empty name", map[string]string{"A": "a", "A_FILE": ""}, "${A}", "a", ""},
		{"a value is no variable", map[string]string{"A_FILE": write("variable", "${B}")}, "${A}", "${B}", ""},
		{"the name itself", map[string]string{"A_FILE": one}, "${A_FILE}", one, ""},
		{"neither", nil, "${A}", "", "environment variable A is not set"},
		{"both", map[string]string{"A": "a", "A_FILE": one}, "${A}", "", "environment variables A and A_FILE: both are set: unset one of them"},
		{"no such file", map[string]string{"A_FILE": filepath.Join(folder, "absent")}, "${A:-default}", "", "environment variables A and A_FILE: open " + filepath.Join(folder, "absent") + ": no such file"},
		{"a folder", map[string]string{"A_FILE": folder}, "${A}", "", folder + ": is a directory"},
		{"a large file", map[string]string{"A_FILE": write("large", strings.Repeat("a", valueMax+1))}, "${A}", "", "large is larger than 1048576 bytes"},
	} {
		got, err := variableUse{raw: c.raw}.evaluate(func(name string) (string, bool) {
			value, ok := c.environment[name]
			return value, ok
		})
		switch {
		case c.fault == "" && (err != nil || got != c.want):
			t.Errorf("%s: %q, %v, want %q", c.name, got, err, c.want)
		case c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)):
			t.Errorf("%s: %v, want %q in it", c.name, err, c.fault)
		}
	}
}

// TestSecretsOfWrongTypes: no error shows the value of a key that holds a secret.
func TestSecretsOfWrongTypes(t *testing.T) {
	for _, text := range []string{
		"pipelines: {p: {source: {redis: {password: [hunter22]}}, sink: {stdout: {}}}}",
		"pipelines: {p: {source: {redis: {password: hunter22, nothing: 1}}, sink: {stdout: {}}}}",
		"s3: {secret_key: [hunter22]}\npipelines: {}",
		"s3: {secret_key: {a: hunter22}}\npipelines: {}",
		"s3:\n  secret_key:\n    - hunter22\npipelines: {}",
	} {
		c, err := Parse("file", text, known, lookup)
		errs := []error{err}
		for _, p := range c.Pipelines {
			errs = append(errs, p.Source.Decode(&redisSettings{}))
		}
		all, _ := Join(errs...).(Errors)
		if len(all) == 0 {
			t.Errorf("%s: no fault", text)
		}
		for _, one := range all {
			if strings.Contains(one.Hint, "hunter22") || strings.Contains(one.Source, "hunter22") {
				t.Errorf("%s: hint %q, source %q", text, one.Hint, one.Source)
			}
		}
	}
}
