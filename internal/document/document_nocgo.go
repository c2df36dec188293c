//go:build !cgo

package document

import "github.com/perigeedb/perigee/internal/document/pure"

// An Extractor fills typed columns from documents; see pure.Extractor.
type Extractor = pure.Extractor

// NewExtractor compiles spec. Its paths must not be empty.
var NewExtractor = pure.NewExtractor

// A Checker finds documents that are not strict JSON objects; see pure.Checker.
type Checker = pure.Checker

// NewChecker returns a Checker.
func NewChecker() *Checker { return new(Checker) }
