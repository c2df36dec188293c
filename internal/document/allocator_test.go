//go:build cgo && linux

package document

import "testing"

func TestAllocatorBytes(t *testing.T) {
	before, _, ok := AllocatorBytes()
	if !ok {
		t.Skip("the C library does not tell")
	}
	const documents = 100
	for range documents {
		NewExtractor(nil)
	}
	after, _, _ := AllocatorBytes()
	if after < before+documents*64 {
		t.Errorf("%d extractors: C memory went from %d to %d bytes", documents, before, after)
	}
}
