//go:build linux && cgo

package eventstore

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/event"
)

// TestSetPositionForgetsFingerprints checks that forgotten positions do not return from the
// fingerprints in a file.
func TestSetPositionForgetsFingerprints(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	table := openTable(t, s, TableConfig{})
	appendPrinted(t, take(t, table), 0, 100)
	seal(t, s)
	if err := table.SetPosition(t.Context(), "pipe", "part", 50); err != nil {
		t.Fatal(err)
	}
	for step := range 3 {
		have, err := committedRanges(table, "pipe", "part")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(event.Ranges{{Count: 50}}, withoutPrints(have)); diff != "" {
			t.Errorf("step %d: committed (-want +got):\n%s", step, diff)
		}
		if step == 0 {
			seal(t, s)
		}
		if step == 1 {
			s.Close()
			s = openStore(t, folder)
			table = openTable(t, s, TableConfig{})
		}
	}
}
