// Package keyset is a set of hashed keys in bounded memory, each with the time at which its row
// arrived. A Set is not safe for concurrent use.
package keyset

import (
	"math"
	"unsafe"

	"github.com/perigeedb/perigee/eventstore/internal/manifest"
)

// A Set is a hash table of keys and the arrival time of their rows. It uses open
// addressing and consists of parts that grow one by one, so that no append waits long for
// growth. An entry takes 16 bytes. In a large set 58 to 88 % of the entries are used, so a
// key takes 18 to 28 bytes.
type Set struct {
	parts   [partCount]part
	partMax int // maximum entries of a part
}

const (
	partCount = 64 // selected by the highest bits of the hash
	partMin   = 16 // initial entries of a part
	entrySize = int64(unsafe.Sizeof(Entry{}))
)

// A part is one of the tables that a Set consists of.
type part struct {
	entries []Entry
	used    int    // entries that are not free
	full    uint32 // when the part last had no evictable key
}

// An Entry is a key in the set.
type Entry struct {
	hash manifest.KeyHash
	Time uint32 // seconds since 1970, Released or Appending
}

// Special values of an entry's time, which is otherwise in seconds since 1970.
const (
	free      = 0         // not used since the part last grew
	Released  = 1         // released: its append failed
	Appending = 1<<32 - 1 // its append is running
)

// New returns a set of at most memory bytes, or of the minimum size if that is larger.
func New(memory int64) *Set {
	return &Set{partMax: max(int(memory/entrySize/partCount), partMin)}
}

// SetLimit sets the maximum memory, as New does.
func (s *Set) SetLimit(memory int64) { s.partMax = New(memory).partMax }

// LiftLimit lets the set take any memory until restore is called.
func (s *Set) LiftLimit() (restore func()) {
	partMax := s.partMax
	s.partMax = math.MaxInt
	return func() { s.partMax = partMax }
}

// Counts reports whether the entry is in use and its key arrived after oldest.
func (e *Entry) Counts(oldest uint32) bool { return e.Time > max(oldest, Released) }

func (s *Set) partOf(hash *manifest.KeyHash) *part { return &s.parts[hash[0]>>26] }

// place returns the index at which probing for a hash starts.
func (p *part) place(hash *manifest.KeyHash) int {
	return int(uint64(hash[1]) * uint64(len(p.entries)) >> 32)
}

// Find returns the entry of a hash, or nil. The entry is valid until the next add.
func (s *Set) Find(hash *manifest.KeyHash) *Entry {
	p := s.partOf(hash)
	if len(p.entries) == 0 {
		return nil
	}
	for i := p.place(hash); p.entries[i].Time != free; {
		if p.entries[i].hash == *hash {
			return &p.entries[i]
		}
		if i++; i == len(p.entries) {
			i = 0
		}
	}
	return nil
}

// Add returns the entry of a hash. If there is none, it inserts one in the released state.
// Keys that arrived at oldest or before may be evicted. It returns nil if the set is full.
func (s *Set) Add(hash *manifest.KeyHash, oldest, now uint32) *Entry {
	if e := s.Find(hash); e != nil {
		return e
	}
	p := s.partOf(hash)
	if p.used+1 > len(p.entries)-len(p.entries)/8 && !p.grow(s.partMax, oldest, now) {
		return nil
	}
	e := p.freeEntry(hash)
	*e = Entry{hash: *hash, Time: Released}
	p.used++
	return e
}

func (p *part) freeEntry(hash *manifest.KeyHash) *Entry {
	i := p.place(hash)
	for p.entries[i].Time != free {
		if i++; i == len(p.entries) {
			i = 0
		}
	}
	return &p.entries[i]
}

// grow makes room for more entries, up to maxEntries; it evicts expired keys first. It reports whether it made
// room. After a failure it tries again once a second.
func (p *part) grow(maxEntries int, oldest, now uint32) bool {
	if p.full == now {
		return false
	}
	count := 0
	for i := range p.entries {
		if p.entries[i].Counts(oldest) {
			count++
		}
	}
	size := min(max(len(p.entries), count+count/2, partMin), maxEntries)
	if size-size/8-count < 1+size/64 { // too little room for the work
		p.full = now
		return false
	}
	old := p.entries
	p.entries, p.used = make([]Entry, size), count
	for i := range old {
		if old[i].Counts(oldest) {
			*p.freeEntry(&old[i].hash) = old[i]
		}
	}
	return true
}

// Size returns the number of keys and the bytes that they take. Some of the keys may have
// expired.
func (s *Set) Size() (keys int, memory int64) {
	for i := range s.parts {
		keys += s.parts[i].used
		memory += int64(len(s.parts[i].entries)) * entrySize
	}
	return keys, memory
}
