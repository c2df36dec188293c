package sinktest

import (
	"strings"
	"testing"

	"github.com/perigeedb/perigee/sink"
)

// IsOrdered checks that a sink has the order of its setting, source or any, and reports
// whether its rows follow the source. It closes the sink.
func IsOrdered(t *testing.T, s sink.Sink, setting string) bool {
	t.Helper()
	order := s.Traits().Order
	if (order == sink.AnyOrder) != (setting == "any") {
		t.Errorf("order %q makes a sink with Order %v", setting, order)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	return order != sink.AnyOrder
}

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
