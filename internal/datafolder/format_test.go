package datafolder

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/release"
)

// TestFormat locks folders of each format.
func TestFormat(t *testing.T) {
	current := fmt.Sprintf(formatText, Format, Since)
	for _, test := range []struct {
		name, text string // "": no file
		want       string // part of the error; "" means none
		hint       string
	}{
		{"of a version without formats", "", "", ""},
		{"of this version", current, "", ""},
		{"with a line of a later version", current + "feature x\n", "", ""},
		{"of a later version", fmt.Sprintf(formatText, Format+1, "7.1.0"), fmt.Sprintf("has format %d, and perigee %s reads formats up to %d", Format+1, release.Version, Format), "use perigee 7.1.0 or later"},
		{"empty", "\n", "perigee.format is damaged", "write the format"},
		{"negative", fmt.Sprintf(formatText, -1, "7.1.0"), "perigee.format is damaged", "write the format"},
	} {
		t.Run(test.name, func(t *testing.T) {
			folder := t.TempDir()
			name := filepath.Join(folder, formatName)
			if test.text != "" {
				if err := os.WriteFile(name, []byte(test.text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			lock, err := Lock(folder)
			if lock != nil {
				defer lock.Close()
			}
			want := test.text
			if test.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				if want == "" {
					want = current
				}
			} else {
				_, refused := errors.AsType[*FolderError](err)
				if !refused || !strings.Contains(err.Error(), test.want) || !strings.Contains(event.HintOf(err), test.hint) {
					t.Errorf("got %v (%s), want %q (%s)", err, event.HintOf(err), test.want, test.hint)
				}
				if Used(folder) {
					t.Error("the folder was changed")
				}
			}
			if text, err := os.ReadFile(name); err != nil || string(text) != want {
				t.Errorf("perigee.format has %q, %v, want %q", text, err, want)
			}
		})
	}
}

// TestFormatRaisedMeanwhile has a later version raise the format between check and lock.
func TestFormatRaisedMeanwhile(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, formatName), fmt.Appendf(nil, formatText, Format+1, "7.1.0"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := raiseFormat(folder); err == nil || !strings.Contains(event.HintOf(err), "7.1.0") {
		t.Errorf("got %v", err)
	}
}
