package file

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink/internal/positions"
)

// A record is one line of the journal: something that happened.
type record struct {
	Partition string   `json:"partition,omitempty"`
	Own       uint64   `json:"own,omitempty"`    // the epoch of a new owner
	Ranges    []ranged `json:"ranges,omitempty"` // landed or folded
	Fold      bool     `json:"fold,omitempty"`
	Set       *uint64  `json:"set,omitempty"`      // the position that a person set
	Size      *int64   `json:"size,omitempty"`     // of the open file that counts
	File      uint64   `json:"file,omitempty"`     // the number of a new open file
	Ending    string   `json:"ending,omitempty"`   // of its name
	When      int64    `json:"when,omitempty"`     // seconds since 1970
	Pipeline  string   `json:"pipeline,omitempty"` // whose files they are
	State     *state   `json:"state,omitempty"`    // all that was before; always the first
}

// ranged is a range on disk: four bytes for each fingerprint, little endian.
type ranged struct {
	First  uint64 `json:"first"`
	Count  uint64 `json:"count"`
	Prints []byte `json:"prints,omitempty"`
}

func toDisk(ranges ...event.Range) []ranged {
	all := make([]ranged, 0, len(ranges))
	for _, r := range ranges {
		one := ranged{First: r.First, Count: r.Count}
		for _, print := range r.Prints {
			one.Prints = binary.LittleEndian.AppendUint32(one.Prints, print)
		}
		all = append(all, one)
	}
	return all
}

func (r ranged) end() uint64 { return r.First + r.Count }

func (r ranged) bare() event.Range { return event.Range{First: r.First, Count: r.Count} }

func (r ranged) head(n uint64) ranged {
	r.Count = n
	r.Prints = r.Prints[:min(len(r.Prints), int(4*n))]
	return r
}

func (r ranged) whole() event.Range {
	whole := r.bare()
	for i := 0; i+4 <= len(r.Prints); i += 4 {
		whole.Prints = append(whole.Prints, binary.LittleEndian.Uint32(r.Prints[i:]))
	}
	return whole
}

// A state is what all records of a journal come to.
type state struct {
	Pipeline   string                `json:"pipeline,omitempty"` // whose files they are
	File       uint64                `json:"file"`               // number of the open file
	Ending     string                `json:"ending,omitempty"`   // of its name
	Size       int64                 `json:"size"`               // of it that counts
	Begun      int64                 `json:"begun"`
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
		s.File, s.Ending, s.Size, s.Begun = r.File, r.Ending, 0, r.When
	}
	if r.Pipeline != "" {
		s.Pipeline = r.Pipeline
	}
	if r.Size != nil {
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
		p.set(*r.Set)
	}
}

// add adds a range, in place of those that lie in it.
func (p *partition) add(r ranged, when int64) {
	p.Entries = slices.DeleteFunc(p.Entries, func(e entry) bool { return e.First >= r.First && e.end() <= r.end() })
	i := slices.IndexFunc(p.Entries, func(e entry) bool { return e.First > r.First })
	if i < 0 {
		i = len(p.Entries)
	}
	p.Entries = slices.Insert(p.Entries, i, entry{r, when})
}

// set forgets what is at and past next, and takes all before it as had.
func (p *partition) set(next uint64) {
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
		done.Add(e.bare())
	}
	p.Entries = kept
	for _, gap := range toDisk(done.Missing(event.Range{Count: next})...) {
		p.add(gap, 0)
	}
}

// ledger returns the entries as the ledger wants them.
func (p *partition) ledger() (all []positions.Entry) {
	now := time.Now()
	for _, e := range p.Entries {
		all = append(all, positions.Entry{Range: e.whole(), Age: now.Sub(time.Unix(e.When, 0))})
	}
	return all
}
