package sinktest

import (
	"strings"
	"testing"
)

// ExpectError checks the error that a kind returns for its settings: it must contain
// want, or be nil if want is empty. It must not contain a secret.
func ExpectError(t *testing.T, err error, want string, secrets ...string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("rejected: %v", err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("error %v, want one with %q", err, want)
	}
	for _, secret := range secrets {
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("a secret is in %v", err)
		}
	}
}
