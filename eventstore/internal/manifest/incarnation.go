package manifest

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"
)

// An Incarnation is the time of a store in one folder. A store that was restored from a backup,
// or whose folder was copied, begins another one: it assigns segment numbers and lake steps
// that the earlier incarnation may also have assigned. Together with an incarnation, each of
// these numbers is unique.
type Incarnation struct {
	ID    string    `json:"id"` // 16 hexadecimal digits
	Begun time.Time `json:"begun"`
	// The first numbers that it assigns.
	Segment uint64 `json:"segment"`
	Step    uint64 `json:"step"`
}

// An Opening is a part of an incarnation: the steps that the store assigned from one opening of its
// folder to the next. A disk that was set back to an earlier snapshot assigns steps again, but in
// another opening.
type Opening struct {
	ID   string `json:"id"`   // random
	Step uint64 `json:"step"` // the first that it assigned
}

// NewID returns a random ID for an incarnation or an opening.
func NewID() string {
	var id [8]byte
	rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}

// openingsMax bounds the openings that are kept for a lake that does not answer.
const openingsMax = 1000

// AssignStep assigns the next step in an opening. It drops an opening once every lake that was given an
// order covers a step of a later one.
func (m *Manifest) AssignStep(opening string) {
	m.LastStep++
	covered := m.LastStep
	for _, t := range m.Tables {
		if t.Lake != nil && t.Lake.Ordered > 0 {
			covered = min(covered, t.Lake.Step)
		}
	}
	all := slices.Clone(m.Openings)
	for len(all) > 1 && (all[1].Step <= covered || len(all) > openingsMax) {
		all = all[1:]
	}
	if len(all) == 0 || all[len(all)-1].ID != opening {
		all = append(all, Opening{opening, m.LastStep})
	}
	m.Openings = all
}

// unknownPlace is the Place of folders whose system does not tell them apart.
const unknownPlace = "unknown"

// BeginIncarnation begins an incarnation in the given place; see Place.
func (m *Manifest) BeginIncarnation(place string, now time.Time) {
	m.beginIncarnation(place, now, m.NextSegment)
}

// BeginAfterSetBack begins an incarnation of a store whose disk was set back to an earlier state. It
// owns every segment and step that no lake has yet, because the earlier incarnation may have
// published other files under those numbers.
func (m *Manifest) BeginAfterSetBack(now time.Time) {
	first := m.Incarnations[len(m.Incarnations)-1].Segment
	for _, t := range m.Tables {
		if t.Lake == nil {
			continue
		}
		for i, f := range t.Files {
			file := *f
			file.Replaces = coveredFiles(f.Replaces, t.Lake.Step)
			if f.Step > t.Lake.Step {
				file.Step = 0
			} else if f.Step > 0 {
				first = max(first, f.Segment+1)
			}
			t.Files[i] = &file
		}
	}
	m.beginIncarnation(m.Place, now, min(first, m.NextSegment))
}

// coveredFiles returns the files that a lake at step has: each replaced file with a step up to that,
// or else the files that it would have replaced.
func coveredFiles(replaced []LakeFile, step uint64) (covered []LakeFile) {
	for _, r := range replaced {
		if r.Step <= step {
			covered = append(covered, r)
		} else {
			covered = append(covered, coveredFiles(r.Replaces, step)...)
		}
	}
	return covered
}

func (m *Manifest) beginIncarnation(place string, now time.Time, segment uint64) {
	m.Place = place
	m.Incarnations = append(slices.Clone(m.Incarnations), Incarnation{ID: NewID(), Begun: now.UTC(), Segment: segment, Step: m.LastStep + 1})
}

// IsAt reports whether the current incarnation belongs to a place.
func (m *Manifest) IsAt(place string) bool { return len(m.Incarnations) > 0 && m.Place == place }

// IncarnationOf returns the incarnation that wrote a segment, or nil if the segment was
// written before stores had incarnations.
func (m *Manifest) IncarnationOf(segment uint64) *Incarnation {
	for i := range slices.Backward(m.Incarnations) {
		if m.Incarnations[i].Segment <= segment {
			return &m.Incarnations[i]
		}
	}
	return nil
}

func (m *Manifest) checkIncarnations() error {
	ids := map[string]bool{}
	for i, one := range m.Incarnations {
		_, err := hex.DecodeString(one.ID)
		switch {
		case err != nil || len(one.ID) != 16 || ids[one.ID]:
			return fmt.Errorf("incarnation %q is invalid or repeated", one.ID)
		case one.Segment > m.NextSegment || one.Step > m.LastStep+1:
			return fmt.Errorf("incarnation %s begins with a number that is not assigned yet", one.ID)
		case i > 0 && (one.Segment < m.Incarnations[i-1].Segment || one.Step < m.Incarnations[i-1].Step):
			return errors.New("the incarnations are out of order")
		}
		ids[one.ID] = true
	}
	for i, one := range m.Openings {
		if one.Step > m.LastStep || i > 0 && one.Step <= m.Openings[i-1].Step {
			return fmt.Errorf("opening %s begins with step %d, which is out of order", one.ID, one.Step)
		}
	}
	return nil
}
