//go:build linux && cgo

package eventstore

import (
	"unsafe"

	"github.com/perigeedb/perigee/eventstore/internal/manifest"
)

// A keySet holds keys with the time at which their row arrived: a hash table with open
// addressing in parts that grow one by one, so that no append waits long for one that does.
// An entry has 16 bytes, and 58 to 88 % of the entries are used once there are many: a key
// takes 18 to 28 bytes.
type keySet struct {
	parts   [keyParts]keyPart
	partMax int // entries that a part may have
}

const (
	keyParts   = 64 // of the highest bits of the hash
	keyPartMin = 16 // entries of a part at first
	entrySize  = int64(unsafe.Sizeof(keyEntry{}))
)

type keyPart struct {
	entries []keyEntry
	used    int    // entries that are not free
	full    uint32 // time at which the part was found to be full of keys that count
}

type keyEntry struct {
	hash manifest.KeyHash
	time uint32
}

// Beside seconds since 1970, the time of an entry says what the entry is.
const (
	keyFree      = 0         // never used since the part has grown
	keyReleased  = 1         // given back: its append has failed
	keyAppending = 1<<32 - 1 // its append is under way
)

// newKeySet returns a set that takes so many bytes at most, or a few if they are less.
func newKeySet(memory int64) *keySet {
	return &keySet{partMax: max(int(memory/entrySize/keyParts), keyPartMin)}
}

// counts reports whether the entry is that of a key which arrived after oldest.
func (e *keyEntry) counts(oldest uint32) bool { return e.time > max(oldest, keyReleased) }

func (s *keySet) part(hash *manifest.KeyHash) *keyPart { return &s.parts[hash[0]>>26] }

// place returns where the entry of a hash is looked for first.
func (p *keyPart) place(hash *manifest.KeyHash) int {
	return int(uint64(hash[1]) * uint64(len(p.entries)) >> 32)
}

// find returns the entry of a hash, or nil. It is valid until the next add.
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

// add returns the entry of a hash, and makes one that was given back if there is none. now
// is the time, and keys up to oldest do not count any more. It returns nil if there is no
// room.
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

// grow makes room for more entries, first by dropping what does not count any more. It
// reports whether it could, and tries that once a second.
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
	if size-size/8-count < 1+size/64 { // fewer are not worth the work
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

// size returns the number of keys, including some that do not count any more, and the bytes
// that they take.
func (s *keySet) size() (keys int, memory int64) {
	for i := range s.parts {
		keys += s.parts[i].used
		memory += int64(len(s.parts[i].entries)) * entrySize
	}
	return keys, memory
}
