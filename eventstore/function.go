//go:build linux && cgo

package eventstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/internal/document"
	"github.com/perigeedb/perigee/internal/sqltext"
)

// A Function is an SQL function whose values this process computes, for example with a
// script. In SQL it takes a row: the name or alias of a table, or any struct.
type Function struct {
	Name string
	Type event.Type // result type; any except decimal and bytes
	// Call returns the value of each row as JSON; nil and null mean NULL. Rows are JSON
	// objects, valid during the call. An error ends the query and becomes its error text.
	// Call must be safe for concurrent use.
	Call func(ctx context.Context, rows [][]byte) (values [][]byte, err error)
}

// SetFunctions sets the functions available to queries that begin from now on. It returns an
// *event.PermanentError if a function is invalid.
func (s *Store) SetFunctions(functions []Function) error {
	names := map[string]bool{}
	var all []protocol.Function
	for _, f := range functions {
		if err := CheckFunctionName(f.Name); err != nil {
			return err
		}
		name, sqlType := strings.ToLower(f.Name), functionTypes[f.Type]
		switch {
		case names[name]:
			return configError("choose another name", "SQL has a function %s already", f.Name)
		case sqlType == "":
			return configError("", "function %s cannot be of type %s", f.Name, f.Type)
		}
		names[name] = true
		all = append(all, protocol.Function{Name: f.Name, Type: sqlType, Call: f.call})
	}
	s.worker.SetFunctions(all)
	return nil
}

// CheckFunctionName returns an *event.PermanentError if name is not a valid function name.
func CheckFunctionName(name string) error {
	if !sqltext.IsPlainName(name) {
		return configError(sqltext.NameHint, "invalid function name %q", name)
	}
	for _, g := range Functions() {
		if slices.ContainsFunc(g.Names, func(known string) bool { return strings.EqualFold(known, name) }) {
			return configError("choose another name", "SQL has a function %s already", name)
		}
	}
	return nil
}

var functionTypes = map[event.Type]string{
	event.Bool: "BOOLEAN", event.Int32: "INTEGER", event.Int64: "BIGINT", event.Float64: "DOUBLE", event.String: "VARCHAR",
	event.Timestamp: "TIMESTAMP", event.JSON: "JSON",
}

// call returns the values as text that casts to the function's type.
func (f *Function) call(ctx context.Context, rows [][]byte) ([][]byte, error) {
	values, err := f.Call(ctx, rows)
	if err != nil {
		return nil, fmt.Errorf("function %s: %w", f.Name, err)
	}
	if len(values) != len(rows) {
		return nil, fmt.Errorf("function %s: %d values for %d rows", f.Name, len(values), len(rows))
	}
	var data []byte
	var ends []uint32
	for _, value := range values {
		if value == nil {
			value = []byte("null")
		}
		data = append(append(append(data, `{"value":`...), value...), '}')
		ends = append(ends, uint32(len(data)))
	}
	extractor := document.NewExtractor([]event.Column{{Name: f.Name, Path: []string{"value"}, Type: f.Type}})
	var columns event.Columns
	report, err := extractor.Extract(data, ends, &columns)
	if err != nil {
		return nil, fmt.Errorf("function %s: %w", f.Name, err)
	}
	if len(report.Rejected) > 0 {
		bad := report.Rejected[0]
		return nil, fmt.Errorf("function %s: %s, for the row %.200s", f.Name, bad.Reason, rows[bad.Row])
	}
	v := &columns.Vectors[0]
	texts := make([][]byte, len(rows))
	for row := range texts {
		if v.Null[row] == 0 {
			texts[row] = textOf(v, f.Type, row)
		}
	}
	return texts, nil
}

// textOf returns a value as text that casts to its type.
func textOf(v *event.Vector, kind event.Type, row int) []byte {
	switch kind {
	case event.Bool:
		return strconv.AppendBool(nil, v.Ints[row] != 0)
	case event.Int32, event.Int64:
		return strconv.AppendInt(nil, v.Ints[row], 10)
	case event.Float64:
		return strconv.AppendFloat(nil, v.Floats[row], 'g', -1, 64)
	case event.Timestamp:
		return time.UnixMicro(v.Ints[row]).UTC().AppendFormat(nil, "2006-01-02 15:04:05.999999")
	}
	return append([]byte{}, v.Text(row)...)
}
