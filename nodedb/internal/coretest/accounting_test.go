//go:build cgo && lmdb

package coretest

import (
	"strings"
	"testing"
)

// TestMergeInSlices merges large values in a transaction: one call copies about 1 MiB, and the
// session's memory includes the copies.
func TestMergeInSlices(t *testing.T) {
	store, err := openCoreStore(t.TempDir(), coreOptions{noSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.close()
	s, err := store.session()
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	const nodes, size = 50, 1 << 20
	value := str(strings.Repeat("x", size))
	for i := range nodes {
		key, err := coreEncode("^from", []coreScalar{num(float64(i))})
		if err != nil {
			t.Fatal(err)
		}
		if got := s.do(coreCall{what: doSet, key: key, a: &value}); got != "" {
			t.Fatal(got)
		}
	}
	s.do(coreCall{what: doBegin})
	before := s.bytes()
	if more, err := s.mergeSlice(mustKey(t, "^to"), mustKey(t, "^from"), 10_000); !more || err != nil {
		t.Errorf("the first slice of %d MiB: more %t, %v; want more", nodes, more, err)
	}
	if grown := s.bytes() - before; grown > 3*size {
		t.Errorf("a slice has copied %d bytes, want about %d", grown, size)
	}
	s.do(coreCall{what: doRollback})
	if after := s.bytes(); after > before+64<<10 {
		t.Errorf("after the rollback the session has %d bytes, %d before", after, before)
	}
}

// TestBytesGoDownAgain opens iterators, marks and transactions over changing trees, and ends them
// all. The session's memory is then the same as before.
func TestBytesGoDownAgain(t *testing.T) {
	store, err := openCoreStore(t.TempDir(), coreOptions{noSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.close()
	s, err := store.session()
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	value := str(strings.Repeat("x", 1<<20))
	round := func(name string, inTransaction bool) (most uint64) {
		if inTransaction {
			s.do(coreCall{what: doBegin})
			s.do(coreCall{what: doRestoreLocal})
		}
		var open []coreIterator
		for i := range 10 {
			s.do(coreCall{what: doSet, key: mustKey(t, name+"(1)"), a: &value})
			it, err := s.iterate(mustKey(t, name), 0)
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, it)
			if got := it.next(); got != "1" {
				t.Fatal(got)
			}
			if inTransaction && i%2 == 0 {
				s.do(coreCall{what: doBegin})
			}
			if !inTransaction { // until then the versions are the store's
				if err := store.sync(); err != nil {
					t.Fatal(err)
				}
				s.do(coreCall{what: doGet, key: mustKey(t, name)})
			}
			most = max(most, s.bytes())
		}
		for s.level() > 0 {
			s.do(coreCall{what: doRollback})
		}
		if err := store.sync(); err != nil {
			t.Fatal(err)
		}
		if held := s.bytes(); held < 8<<20 && name == "t" { // idle iterators release stored nodes
			t.Errorf("%s, in a transaction %t: ten iterators over ten versions of a MiB count %d bytes", name, inTransaction, held)
		}
		for _, it := range open {
			it.close()
		}
		s.do(coreCall{what: doKill, key: mustKey(t, name)})
		return most
	}
	for _, inTransaction := range []bool{false, true} {
		for _, name := range []string{"^t", "t"} {
			round(name, inTransaction)
			before := s.bytes()
			if most := round(name, inTransaction); most > 60<<20 || most < 9<<20 && (inTransaction || name == "t") {
				t.Errorf("%s, in a transaction %t: at most %d bytes were counted, want about 10 MiB", name, inTransaction, most)
			}
			if after := s.bytes(); after != before {
				t.Errorf("%s, in a transaction %t: %d bytes are counted at the end, %d before", name, inTransaction, after, before)
			}
		}
	}
}
