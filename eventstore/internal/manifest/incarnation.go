package manifest

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"
)

// An Incarnation is a life of a store in one folder. A store that was restored from a backup,
// or whose folder was copied, begins another one: it assigns segment numbers and lake steps
// that the store before may also have assigned. Together with an incarnation, each of these
// numbers is unique.
type Incarnation struct {
	ID    string    `json:"id"` // 16 hexadecimal digits
	Begun time.Time `json:"begun"`
	// The first numbers that it assigns.
	Segment uint64 `json:"segment"`
	Step    uint64 `json:"step"`
}

// unknownPlace is the Place of folders whose system does not tell them apart.
const unknownPlace = "unknown"

// BeginIncarnation begins an incarnation in the given place; see Place.
func (m *Manifest) BeginIncarnation(place string, now time.Time) {
	var id [8]byte
	rand.Read(id[:]) // never fails
	m.Place = place
	m.Incarnations = append(slices.Clone(m.Incarnations), Incarnation{ID: hex.EncodeToString(id[:]), Begun: now.UTC(), Segment: m.NextSegment, Step: m.LastStep + 1})
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
			return fmt.Errorf("incarnation %s begins with a number that is not given out yet", one.ID)
		case i > 0 && (one.Segment < m.Incarnations[i-1].Segment || one.Step < m.Incarnations[i-1].Step):
			return errors.New("the incarnations are out of order")
		}
		ids[one.ID] = true
	}
	return nil
}
