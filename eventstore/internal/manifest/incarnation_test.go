package manifest

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestIncarnationOf checks that each segment belongs to the incarnation that assigned its
// number, and that a backup belongs to none.
func TestIncarnationOf(t *testing.T) {
	m := sample() // segments 1 to 8 are older than incarnations
	m.BeginIncarnation("a", time.Now())
	first := m.Incarnations[0].ID
	if m.IncarnationOf(8) != nil || m.IncarnationOf(9).ID != first || !m.IsAt("a") || m.IsAt("b") {
		t.Errorf("segments 8 and 9 of %+v, at %s", m.Incarnations, m.Place)
	}
	m.NextSegment, m.LastStep = 20, 3
	m.BeginIncarnation("b", time.Now())
	if second := m.IncarnationOf(20); m.IncarnationOf(19).ID != first || second.ID == first || second.Step != 4 || !m.IsAt("b") {
		t.Errorf("segments 19 and 20 of %+v, at %s", m.Incarnations, m.Place)
	}
	folder := t.TempDir()
	text, err := m.Encode()
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, Name), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	restored, err := Load(folder)
	if err != nil || restored.IsAt("b") || len(restored.Incarnations) != 2 {
		t.Errorf("restored: %+v, %v", restored, err)
	}
}

// TestPlace checks that a folder keeps its place when it is renamed, and that another folder
// of the same name and contents has another one.
func TestPlace(t *testing.T) {
	parent := t.TempDir()
	folder, moved := filepath.Join(parent, "a"), filepath.Join(parent, "b")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	place := Place(folder)
	if err := os.Rename(folder, moved); err != nil {
		t.Fatal(err)
	}
	if got := Place(moved); got != place || place == unknownPlace {
		t.Errorf("renamed: %s, before: %s", got, place)
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if got := Place(folder); got == place {
		t.Errorf("another folder: %s, as the first", got)
	}
}

// TestAssignStepDropsOpenings restarts a store often. The openings that no lake needs must go, also beside
// a table that has no rows to publish, and beside a lake that does not answer.
func TestAssignStepDropsOpenings(t *testing.T) {
	covers, empty, silent := &Lake{Ordered: 1}, &Lake{}, &Lake{Ordered: 1}
	for name, test := range map[string]struct {
		other *Lake
		want  int
	}{"no rows": {empty, 2}, "no answer": {silent, openingsMax}} {
		m := &Manifest{Tables: []*Table{{ID: 1, Lake: covers}, {ID: 2, Lake: test.other}}}
		covers.Step = 0
		for range openingsMax + 10 {
			m.AssignStep(NewID())
			covers.Step = m.LastStep
		}
		if got := len(m.Openings); got > test.want+1 || m.Openings[got-1].Step != m.LastStep {
			t.Errorf("beside a lake with %s: %d openings, the last one from step %d, want %d and step %d", name, got, m.Openings[got-1].Step, test.want, m.LastStep)
		}
	}
}
