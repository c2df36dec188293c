//go:build cgo

package pure_test

import (
	"errors"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/document"
)

// addNative adds the reader in C.
func addNative(all map[string]reader) {
	all["C"] = reader{
		check:        checkNative,
		newExtractor: func(spec []event.Column) extractor { return document.NewExtractor(spec) },
	}
}

func checkNative(doc []byte) error {
	rejected, err := document.NewChecker().Check(doc, []uint32{uint32(len(doc))})
	if err == nil && len(rejected) > 0 {
		err = errors.New(rejected[0].Reason)
	}
	return err
}
