// Package document reads JSON documents without building a tree of Go values:
// it checks them strictly (RFC 8259: numbers, escapes, UTF-8, nesting up to
// report.MaxDepth) and extracts typed columns from them.
//
// The work is done in C where cgo is there, and by package pure where it is
// not; both accept the same documents and say the same about the others. An
// Extractor is used by one goroutine at a time; Check is safe for all.
package document

import "github.com/perigeedb/perigee/internal/document/report"

// What an extraction reports; see package report.
type (
	Kind     = report.Kind
	Report   = report.Report
	Rejected = report.Rejected
	Field    = report.Field
	Code     = report.Code
)

const (
	Null   = report.Null
	Bool   = report.Bool
	Int    = report.Int
	BigInt = report.BigInt
	Float  = report.Float
	String = report.String
	Object = report.Object
	Array  = report.Array
)
