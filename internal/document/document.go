// Package document reads JSON documents without building a tree of Go values:
// it checks them strictly (RFC 8259: numbers, escapes, UTF-8, nesting up to
// report.MaxDepth) and extracts typed columns from them.
//
// With cgo the work is done in C, otherwise by package pure. Both accept the same documents and
// report the same errors. Only one goroutine at a time may use an Extractor; Check is safe for
// concurrent use.
package document

import "github.com/perigeedb/perigee/internal/document/report"

// The types of reports; see package report.
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
