package event

import (
	"errors"
	"fmt"
	"testing"
)

func TestHintOf(t *testing.T) {
	cause := errors.New("connection refused")
	permanent := &PermanentError{Err: cause, Hint: "start the server"}
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{"nil", nil, ""},
		{"no hint", cause, ""},
		{"permanent", permanent, "start the server"},
		{"wrapped", fmt.Errorf("open: %w", permanent), "start the server"},
		{"outermost", WithHint(permanent, "look at the log"), "look at the log"},
		{"empty is skipped", &PermanentError{Err: permanent}, "start the server"},
		{"joined", errors.Join(cause, fmt.Errorf("open: %w", permanent)), "start the server"},
		{"joined without", errors.Join(cause, cause), ""},
	} {
		if got := HintOf(c.err); got != c.want {
			t.Errorf("%s: the hint is %q, want %q", c.name, got, c.want)
		}
	}
	if WithHint(nil, "look at the log") != nil {
		t.Error("a hint makes an error of nil")
	}
	hinted := WithHint(fmt.Errorf("open: %w", permanent), "look at the log")
	if !IsPermanent(hinted) || !errors.Is(hinted, cause) || hinted.Error() != "open: connection refused" {
		t.Errorf("%v loses what it wraps", hinted)
	}
	if IsPermanent(cause) || IsPermanent(nil) {
		t.Error("an error that retrying may fix is permanent")
	}
}
