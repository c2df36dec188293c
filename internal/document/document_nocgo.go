//go:build !cgo

package document

import "github.com/perigeedb/perigee/internal/document/pure"

// An Extractor fills typed columns from documents; see pure.Extractor.
type Extractor = pure.Extractor

// NewExtractor compiles spec. Its paths must not be empty.
var NewExtractor = pure.NewExtractor

// Check checks that doc is an object in strict JSON.
var Check = pure.Check

// A Checker is Check for many documents; see pure.Checker.
type Checker = pure.Checker

// NewChecker returns a Checker.
func NewChecker() *Checker { return new(Checker) }
