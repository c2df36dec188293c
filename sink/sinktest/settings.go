package sinktest

import (
	"strings"
	"testing"
)

// Refused holds what a kind says of its settings against what it should: an error
// with want in it or, when want is empty, none. No error may have a secret in it.
func Refused(t *testing.T, err error, want string, secrets ...string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("refused: %v", err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("error %v, want one with %q", err, want)
	}
	for _, secret := range secrets {
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("a secret is in %v", err)
		}
	}
}
