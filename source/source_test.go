package source

import (
	"bytes"
	"log/slog"
	"os/exec"
	"strings"
	"testing"
	"unicode/utf8"

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

// TestUnitName makes names of units of whatever a source may read: they stay different.
func TestUnitName(t *testing.T) {
	seen := map[string]string{}
	long := strings.Repeat("☾", 400)
	for name, want := range map[string]string{
		"topic/7": "topic/7", "/var/log/☾.log": "/var/log/☾.log", strings.Repeat("x", 1000): strings.Repeat("x", 1000),
		"a\xff": "", "a\xfe": "", "a\x00": "", "a_": "a_", long: "", long + "x": "", strings.Repeat("x", 1001): "", "\xff\xff": "",
	} {
		got := UnitName(name)
		if want != "" && got != want {
			t.Errorf("%.20q becomes %.20q", name, got)
		}
		if want == "" && (got == name || !strings.Contains(got, "~")) || len(got) > 1000 || !utf8.ValidString(got) || strings.Contains(got, "\x00") {
			t.Errorf("%.20q becomes %.20q… of %d bytes", name, got, len(got))
		}
		if other, twice := seen[got]; twice {
			t.Errorf("%.20q and %.20q both become %.20q", name, other, got)
		}
		seen[got] = name
	}
	unitOf := UnitBefore("@")
	for partition, want := range map[string]string{"key@1": "key", "a@b@1": "a@b", "plain": "plain", "@1": "@1"} {
		if got := unitOf(partition); got != want {
			t.Errorf("the unit of %q is %q, want %q", partition, got, want)
		}
	}
}
