//go:build linux && cgo

package eventstore

import (
	"unsafe"

	"github.com/perigeedb/perigee/eventstore/internal/manifest"
)

// A keySet is a hash table of keys and the arrival time of their rows. It uses open
// addressing and consists of parts that grow one by one, so that no append waits long for
// growth. An entry takes 16 bytes. In a large set 58 to 88 % of the entries are used, so a
// key takes 18 to 28 bytes.
type keySet struct {
	parts   [keyParts]keyPart
	partMax int // maximum entries of a part
}

const (
	keyParts   = 64 // selected by the highest bits of the hash
	keyPartMin = 16 // initial entries of a part
	entrySize  = int64(unsafe.Sizeof(keyEntry{}))
)

type keyPart struct {
	entries []keyEntry
	used    int    // entries that are not free
	full    uint32 // when the part last had no evictable key
}

type keyEntry struct {
	hash manifest.KeyHash
	time uint32
}

// Special values of an entry's time, which is otherwise in seconds since 1970.
const (
	keyFree      = 0         // not used since the part last grew
	keyReleased  = 1         // released: its append failed
	keyAppending = 1<<32 - 1 // its append is running
)

// newKeySet returns a set of at most memory bytes, or of the minimum size if that is larger.
func newKeySet(memory int64) *keySet {
	return &keySet{partMax: max(int(memory/entrySize/keyParts), keyPartMin)}
}

// counts reports whether the entry is in use and its key arrived after oldest.
func (e *keyEntry) counts(oldest uint32) bool { return e.time > max(oldest, keyReleased) }

func (s *keySet) part(hash *manifest.KeyHash) *keyPart { return &s.parts[hash[0]>>26] }

// place returns the index at which probing for a hash starts.
func (p *keyPart) place(hash *manifest.KeyHash) int {
	return int(uint64(hash[1]) * uint64(len(p.entries)) >> 32)
}

// find returns the entry of a hash, or nil. The entry is valid until the next add.
func (s *keySet) find(hash *manifest.KeyHash) *keyEntry {
	p := s.part(hash)
	if len(p.entries) == 0 {
		return nil
	}
	for i := p.place(hash); p.entries[i].time != keyFree; {
		if p.entries[i].hash == *hash {
			return &p.entries[i]
		}
		if i++; i == len(p.entries) {
			i = 0
		}
	}
	return nil
}

// add returns the entry of a hash. If there is none, it inserts one in the released state.
// Keys that arrived at oldest or before may be evicted. It returns nil if the set is full.
func (s *keySet) add(hash *manifest.KeyHash, oldest, now uint32) *keyEntry {
	if e := s.find(hash); e != nil {
		return e
	}
	p := s.part(hash)
	if p.used+1 > len(p.entries)-len(p.entries)/8 && !p.grow(s.partMax, oldest, now) {
		return nil
	}
	e := p.freeEntry(hash)
	*e = keyEntry{hash: *hash, time: keyReleased}
	p.used++
	return e
}

func (p *keyPart) freeEntry(hash *manifest.KeyHash) *keyEntry {
	i := p.place(hash)
	for p.entries[i].time != keyFree {
		if i++; i == len(p.entries) {
			i = 0
		}
	}
	return &p.entries[i]
}

// grow makes room for more entries; it evicts expired keys first. It reports whether it made
// room. After a failure it tries again once a second.
func (p *keyPart) grow(most int, oldest, now uint32) bool {
	if p.full == now {
		return false
	}
	count := 0
	for i := range p.entries {
		if p.entries[i].counts(oldest) {
			count++
		}
	}
	size := min(max(len(p.entries), count+count/2, keyPartMin), most)
	if size-size/8-count < 1+size/64 { // too little room for the work
		p.full = now
		return false
	}
	old := p.entries
	p.entries, p.used = make([]keyEntry, size), count
	for i := range old {
		if old[i].counts(oldest) {
			*p.freeEntry(&old[i].hash) = old[i]
		}
	}
	return true
}

// size returns the number of keys and the bytes that they take. Some of the keys may have
// expired.
func (s *keySet) size() (keys int, memory int64) {
	for i := range s.parts {
		keys += s.parts[i].used
		memory += int64(len(s.parts[i].entries)) * entrySize
	}
	return keys, memory
}
