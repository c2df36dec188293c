//go:build cgo

package pure_test

import (
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/document"
)

// addNative adds the reader in C.
func addNative(all map[string]reader) {
	all["C"] = reader{
		check:        func(doc []byte) error { return document.Check(doc) },
		newExtractor: func(spec []event.Column) extractor { return document.NewExtractor(spec) },
	}
}
