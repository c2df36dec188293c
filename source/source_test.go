package source

import (
	"bytes"
	"log/slog"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSetPosition has a shell split the command.
func TestSetPosition(t *testing.T) {
	for _, partition := range []string{"orders/3@abc", "it's a \"list\" $HOME `x` {tag}:perigee", "☾"} {
		command := SetPosition("emails", partition, 150)
		out, err := exec.Command("sh", "-c", "printf '%s\\n' "+command).Output()
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
		want := []string{"perigee", "position", "set", "CONFIG", "emails", "150", "--partition", partition}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", command, diff)
		}
	}
}

func TestEmptyReason(t *testing.T) {
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, nil))
	var e EmptyReason
	for _, reason := range []string{"", "nothing", "nothing", "", "nothing"} {
		e.Set(reason, log)
		if e.Get() != reason {
			t.Errorf("the reason is %q, want %q", e.Get(), reason)
		}
	}
	if n := strings.Count(text.String(), "msg=nothing"); n != 2 {
		t.Errorf("logged %d times, want when it is new: %s", n, &text)
	}
	e.Set("other", nil) // a source without a log
}
