package file

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink/internal/positions"
)

// A record is one line of the journal: a change of the state.
type record struct {
	Partition string   `json:"partition,omitempty"`
	Own       uint64   `json:"own,omitempty"`      // the epoch of a new owner
	Ranges    []ranged `json:"ranges,omitempty"`   // committed or compacted
	Set       *uint64  `json:"set,omitempty"`      // the position that a person set
	Size      *int64   `json:"size,omitempty"`     // bytes of the open file that count
	File      uint64   `json:"file,omitempty"`     // the number of a new open file
	Suffix    string   `json:"ending,omitempty"`   // of its name
	When      int64    `json:"when,omitempty"`     // seconds since 1970
	Pipeline  string   `json:"pipeline,omitempty"` // that owns the files
	State     *state   `json:"state,omitempty"`    // what all earlier records come to; only in the first
}

// ranged is a range on disk: four bytes for each fingerprint, little endian.
type ranged struct {
	First        uint64 `json:"first"`
	Count        uint64 `json:"count"`
	Fingerprints []byte `json:"prints,omitempty"`
}

func toDisk(ranges ...event.Range) []ranged {
	all := make([]ranged, 0, len(ranges))
	for _, r := range ranges {
		one := ranged{First: r.First, Count: r.Count}
		for _, fingerprint := range r.Fingerprints {
			one.Fingerprints = binary.LittleEndian.AppendUint32(one.Fingerprints, fingerprint)
		}
		all = append(all, one)
	}
	return all
}

func (r ranged) end() uint64 { return r.First + r.Count }

func (r ranged) withoutFingerprints() event.Range { return event.Range{First: r.First, Count: r.Count} }

func (r ranged) head(n uint64) ranged {
	r.Count = n
	r.Fingerprints = r.Fingerprints[:min(len(r.Fingerprints), int(4*n))]
	return r
}

func (r ranged) toRange() event.Range {
	whole := r.withoutFingerprints()
	for i := 0; i+4 <= len(r.Fingerprints); i += 4 {
		whole.Fingerprints = append(whole.Fingerprints, binary.LittleEndian.Uint32(r.Fingerprints[i:]))
	}
	return whole
}

// A state is what all records of a journal come to.
type state struct {
	Pipeline   string                `json:"pipeline,omitempty"` // that owns the files
	File       uint64                `json:"file"`               // number of the open file
	Suffix     string                `json:"ending,omitempty"`   // of its name
	Size       int64                 `json:"size"`               // bytes of it that count
	Begun      int64                 `json:"begun"`              // when it got its first row, in seconds since 1970
	Partitions map[string]*partition `json:"partitions"`
}

type partition struct {
	Epoch   uint64  `json:"epoch"`
	Entries []entry `json:"entries"` // sorted, disjoint
}

type entry struct {
	ranged
	When int64 `json:"when"`
}

func (s *state) partition(name string) *partition {
	p := s.Partitions[name]
	if p == nil {
		p = &partition{}
		s.Partitions[name] = p
	}
	return p
}

// apply makes a record part of the state.
func (s *state) apply(r *record) {
	if r.State != nil {
		*s = *r.State
	}
	if r.File > 0 {
		s.File, s.Suffix, s.Size, s.Begun = r.File, r.Suffix, 0, r.When
	}
	if r.Pipeline != "" {
		s.Pipeline = r.Pipeline
	}
	if r.Size != nil {
		if s.Size == 0 {
			s.Begun = r.When
		}
		s.Size = *r.Size
	}
	if r.Partition == "" {
		return
	}
	p := s.partition(r.Partition)
	p.Epoch = max(p.Epoch, r.Own)
	for _, one := range r.Ranges {
		p.add(one, r.When)
	}
	if r.Set != nil {
		p.setPosition(*r.Set)
	}
}

// add adds a range and removes those that lie in it.
func (p *partition) add(r ranged, when int64) {
	p.Entries = slices.DeleteFunc(p.Entries, func(e entry) bool { return e.First >= r.First && e.end() <= r.end() })
	i := slices.IndexFunc(p.Entries, func(e entry) bool { return e.First > r.First })
	if i < 0 {
		i = len(p.Entries)
	}
	p.Entries = slices.Insert(p.Entries, i, entry{r, when})
}

// setPosition forgets what is committed at next and after, and counts everything
// before next as committed.
func (p *partition) setPosition(next uint64) {
	p.Epoch++
	var kept []entry
	var done event.Ranges
	for _, e := range p.Entries {
		if e.First >= next {
			break
		}
		if e.end() > next {
			e.ranged = e.head(next - e.First)
		}
		kept = append(kept, e)
		done.Add(e.withoutFingerprints())
	}
	p.Entries = kept
	for _, gap := range toDisk(done.Missing(event.Range{Count: next})...) {
		p.add(gap, 0)
	}
}

func (p *partition) toEntries() (all []positions.Entry) {
	now := time.Now()
	for _, e := range p.Entries {
		all = append(all, positions.Entry{Range: e.toRange(), Age: now.Sub(time.Unix(e.When, 0))})
	}
	return all
}
