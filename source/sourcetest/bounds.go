package sourcetest

import (
	"testing"

	"github.com/perigeedb/perigee/event"
)

// boundsHold asks for bounds beside a reader, before and after it has given its
// events up.
func boundsHold(t *testing.T, p Place) {
	s := p.Open(t, usual)
	defer shut(t, s)
	boundsOf := s.Traits().Bounds
	if boundsOf == nil {
		t.Skip("this kind cannot tell which positions it holds")
	}
	o := open(t, p, usual, nil)
	bounds := func() event.Range {
		t.Helper()
		all, err := boundsOf(t.Context())
		if err != nil || len(all) != 1 {
			t.Fatalf("the bounds are %v, %v", all, err)
		}
		return all[o.name]
	}
	before := bounds()
	o.drain()
	if first, last := o.batches[0], o.batches[len(o.batches)-1]; before.First != first.First || before.End() != last.End() {
		t.Errorf("the bounds are %v, from %v to %v was read", before, first, last)
	}
	for _, r := range o.batches {
		o.ack(r)
	}
	o.close()
	if after := bounds(); after.End() != before.End() || after.First < before.First {
		t.Errorf("the bounds were %v, and are %v when all is acknowledged", before, after)
	}
}
