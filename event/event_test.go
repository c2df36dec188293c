package event

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func batchOf(docs ...string) *Batch {
	b := &Batch{Partition: "p", Range: Range{First: 100, Count: uint64(len(docs)), Fingerprints: []uint32{1, 2, 3, 4}[:len(docs)]}}
	for _, d := range docs {
		b.Append([]byte(d))
	}
	return b
}

func docs(n int, doc func(int) []byte) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = string(doc(i))
	}
	return all
}

func TestBatchKeepsDocuments(t *testing.T) {
	b := batchOf("{}", "", `{"a":1}`)
	if diff := cmp.Diff([]string{"{}", "", `{"a":1}`}, docs(b.Len(), b.Doc)); diff != "" {
		t.Error(diff)
	}
	if doc := b.Doc(0); cap(doc) != len(doc) {
		t.Error("a document can be appended to, into the next")
	}
}

func TestBatchTail(t *testing.T) {
	b := batchOf("{}", "[1]", `{"a":1}`)
	for n := range b.Len() + 1 {
		tail := b.Tail(n)
		if diff := cmp.Diff(docs(b.Len(), b.Doc)[n:], docs(tail.Len(), tail.Doc)); diff != "" {
			t.Errorf("documents of tail %d:\n%s", n, diff)
		}
		if diff := cmp.Diff(b.Range.Tail(uint64(n)), tail.Range); diff != "" {
			t.Errorf("range of tail %d:\n%s", n, diff)
		}
		if tail.Partition != b.Partition {
			t.Errorf("tail %d is of partition %q", n, tail.Partition)
		}
	}
}

func TestBatchHead(t *testing.T) {
	b := batchOf("{}", "[1]", `{"a":1}`)
	for n := range b.Len() + 1 {
		head := b.Head(n)
		if diff := cmp.Diff(docs(b.Len(), b.Doc)[:n], docs(head.Len(), head.Doc)); diff != "" {
			t.Errorf("documents of head %d:\n%s", n, diff)
		}
		if diff := cmp.Diff(b.Range.Head(uint64(n)), head.Range); diff != "" {
			t.Errorf("range of head %d:\n%s", n, diff)
		}
		if head.Partition != b.Partition {
			t.Errorf("head %d is of partition %q", n, head.Partition)
		}
	}
}

// TestBatchParts checks that parts keep what a script needs besides the documents, and Reset does not.
func TestBatchParts(t *testing.T) {
	b := batchOf("{}", "[1]")
	b.Time, b.Timers, b.Retry = time.Unix(5, 0), true, true
	for name, part := range map[string]Batch{"head": b.Head(1), "tail": b.Tail(1)} {
		if !part.Time.Equal(b.Time) || !part.Timers || !part.Retry {
			t.Errorf("the %s has time %v, timers %v, retry %v", name, part.Time, part.Timers, part.Retry)
		}
	}
	if b.Reset(); !b.Time.IsZero() || b.Timers || b.Retry {
		t.Errorf("after Reset: time %v, timers %v, retry %v", b.Time, b.Timers, b.Retry)
	}
}

func TestResetKeepsMemory(t *testing.T) {
	b := batchOf("{}", "[1]")
	allocs := testing.AllocsPerRun(10, func() {
		b.Reset()
		b.Append([]byte("{}"))
		b.Range.Fingerprints = append(b.Range.Fingerprints, 1)
	})
	if allocs != 0 {
		t.Errorf("%v allocations to fill a batch again", allocs)
	}
	if diff := cmp.Diff(&Batch{Partition: "p", Range: Range{Fingerprints: []uint32{1}}, Data: []byte("{}"), Ends: []uint32{2}}, b); diff != "" {
		t.Error(diff)
	}
}

func TestOutputPosition(t *testing.T) {
	o := Output{Range: Range{First: 7, Count: 3}, From: []uint32{0, 0, 2}}
	for i, want := range []uint64{7, 7, 9} {
		if got := o.Position(i); got != want {
			t.Errorf("output %d is from position %d, want %d", i, got, want)
		}
	}
}

func TestTypeNames(t *testing.T) {
	for _, name := range TypeNames() {
		typ, ok := ParseType(name)
		if !ok || typ.String() != name {
			t.Errorf("%q becomes %v", name, typ)
		}
	}
	for _, name := range []string{"", "int", "type(0)"} {
		if typ, ok := ParseType(name); ok || typ != 0 {
			t.Errorf("%q is taken for %v, %v", name, typ, ok)
		}
	}
}
