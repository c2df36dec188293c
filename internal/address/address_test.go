package address

import (
	"strings"
	"testing"
)

func TestValidate(t *testing.T) {
	for _, s := range []string{"localhost:6379", "127.0.0.1:0", "[::1]:80", ":8080", "redis-1.example.com:65535", "база.example:1"} {
		if err := Validate(s); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
	for s, want := range map[string]string{
		"localhost":               "missing port in address",
		"localhost:":              `invalid port ""`,
		"localhost:http":          `invalid port "http"`,
		"localhost:65536":         `invalid port "65536"`,
		"localhost:-1":            `invalid port "-1"`,
		"::1:80":                  "too many colons",
		"redis://localhost:6379":  `invalid address "redis://localhost:6379"`,
		"user@localhost:6379":     `invalid host "user@localhost"`,
		"local host:6379":         `invalid host "local host"`,
		"localhost:6379/database": `invalid port "6379/database"`,
	} {
		if err := Validate(s); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), s) {
			t.Errorf("%s: %v, want %q in it", s, err, want)
		}
	}
}
