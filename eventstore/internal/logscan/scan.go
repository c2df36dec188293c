//go:build linux && cgo

package logscan

/*
#cgo CFLAGS: -Wall -Wextra
#include <stdlib.h>
#include "scan.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unsafe"

	duck "github.com/duckdb/duckdb-go-bindings"

	"github.com/perigeedb/perigee/event"
)

// GroupRows is the approximate number of log rows that a thread of DuckDB takes at a time.
const GroupRows = 16_384

// A Column is a column of a scan.
type Column struct {
	id     int32
	name   string
	kind   event.Type // type in the scan
	stored event.Type // type in the frames that have the column
}

// placeKind is the type of the column with the place of a row.
const placeKind = event.Type(C.SCAN_PLACE)

// PlaceColumn returns a virtual column with the place of a row: frame index << 32 | row number
// in the frame.
func PlaceColumn(name string) Column { return Column{name: name, kind: placeKind, stored: placeKind} }

// A Scan presents frames of the log to DuckDB as the table function log_frames(id).
type Scan struct {
	c      *C.log_scan
	memory []unsafe.Pointer
}

// An Order is the order of the rows in a scan.
type Order struct{ places []C.scan_place }

// NewOrder allocates an order of rows rows in C memory. Release it with Free.
func NewOrder(rows int) Order {
	p := C.calloc(C.size_t(max(rows, 1)), C.sizeof_scan_place)
	if p == nil {
		panic("logscan: out of memory")
	}
	return Order{unsafe.Slice((*C.scan_place)(p), rows)}
}

// Free releases the memory of the order.
func (o Order) Free() { C.free(unsafe.Pointer(unsafe.SliceData(o.places))) }

// Set makes a row of a frame the ith of the order.
func (o Order) Set(i int, frame, row uint32) {
	o.places[i] = C.scan_place{frame: C.uint32_t(frame), row: C.uint32_t(row)}
}

// Show restricts the scan to the rows from begin to end of an order.
func (s *Scan) Show(o Order, begin, end int) {
	s.c.order = unsafe.SliceData(o.places[begin:end])
	s.c.order_count = C.uint64_t(end - begin)
	s.c.rows = s.c.order_count
}

// Register registers log_frames with the database of a connection.
func Register(c duck.Connection) error {
	if C.pes_scan_register(c.Ptr) == 0 {
		return errors.New("register log_frames with DuckDB")
	}
	return nil
}

// New publishes a scan of frames under a unique id. The mapped files of the frames must
// stay mapped until Close. The scan may exclude rows that have none of the texts in equal,
// which is keyed by lower-case column name. New returns an error if a frame's column
// types differ from the manifest, because DuckDB would then read numbers as text addresses.
func New(id uint64, columns []Column, frames []*Frame, equal map[string][]string) (*Scan, error) {
	for _, f := range frames {
		for _, c := range columns {
			if err := f.checkType(c); err != nil {
				return nil, err
			}
		}
	}
	s := &Scan{}
	s.c = allocate[C.log_scan](s, 1)
	names := allocate[C.scan_column](s, len(columns))
	for i, c := range columns {
		name := C.CString(c.name)
		s.memory = append(s.memory, unsafe.Pointer(name))
		at(names, i).name, at(names, i).kind = name, C.int32_t(c.kind)
	}
	shown := allocate[C.scan_frame](s, len(frames))
	vectors := allocate[C.scan_vector](s, len(frames)*len(columns))
	groups := allocate[C.uint64_t](s, len(frames)+1)
	count, gathered, total := 0, GroupRows, 0
	for i, f := range frames {
		if gathered >= GroupRows {
			*at(groups, count) = C.uint64_t(i)
			count, gathered = count+1, 0
		}
		gathered += f.Rows
		total += f.Rows
		row := at(vectors, i*len(columns))
		at(shown, i).rows, at(shown, i).vectors = C.uint64_t(f.Rows), row
		for j, c := range columns {
			f.fill(at(row, j), c.id)
		}
	}
	*at(groups, count) = C.uint64_t(len(frames))
	s.addFilters(columns, equal)
	s.c.id, s.c.column_count, s.c.columns = C.uint64_t(id), C.uint64_t(len(columns)), names
	s.c.rows, s.c.group_count, s.c.groups, s.c.frames = C.uint64_t(total), C.uint64_t(count), groups, shown
	C.pes_scan_publish(s.c)
	return s, nil
}

// checkType returns an error if the frame has the column with another type.
func (f *Frame) checkType(c Column) error {
	kind, _, found := f.record.Column(c.id)
	if !found || kind == c.stored {
		return nil
	}
	return fmt.Errorf("column %s is of type %v in file %d of the log at byte %d, and of type %v in the manifest: one of the two is damaged",
		c.name, kind, f.Position.File, f.Position.Offset, c.stored)
}

// allocate returns zeroed C memory for n values, owned by s.
func allocate[T any](s *Scan, n int) *T {
	var one T
	p := C.calloc(C.size_t(max(n, 1)), C.size_t(unsafe.Sizeof(one)))
	if p == nil {
		panic("logscan: out of memory")
	}
	s.memory = append(s.memory, p)
	return (*T)(p)
}

// at returns the address of an element of a C array.
func at[T any](first *T, i int) *T { return &unsafe.Slice(first, i+1)[i] }

// addFilters restricts the scan to rows that have one of the given texts in each column.
func (s *Scan) addFilters(columns []Column, equal map[string][]string) {
	if len(equal) == 0 {
		return
	}
	filters := allocate[C.scan_filter](s, len(columns))
	count := 0
	for i, c := range columns {
		wanted, found := equal[strings.ToLower(c.name)]
		if !found {
			continue
		}
		filter := at(filters, count)
		filter.column, filter.count = C.uint64_t(i), C.uint64_t(len(wanted))
		switch c.kind {
		case event.String:
			filter.texts = s.copyTexts(wanted)
		case event.Int64, event.Int32:
			filter.numbers = s.copyNumbers(wanted)
		default:
			continue
		}
		count++
	}
	s.c.filter_count, s.c.filters = C.uint64_t(count), filters
}

func (s *Scan) copyTexts(texts []string) *C.scan_text {
	copied := allocate[C.scan_text](s, len(texts))
	for i, text := range texts {
		bytes := C.CString(text)
		s.memory = append(s.memory, unsafe.Pointer(bytes))
		at(copied, i).text, at(copied, i).length = bytes, C.uint64_t(len(text))
	}
	return copied
}

// copyNumbers copies the integers that bounds hold as text.
func (s *Scan) copyNumbers(texts []string) *C.int64_t {
	copied := allocate[C.int64_t](s, len(texts))
	for i, text := range texts {
		number, _ := strconv.ParseInt(text, 10, 64)
		*at(copied, i) = C.int64_t(number)
	}
	return copied
}

// fill points a vector at a column of the frame.
func (f *Frame) fill(v *C.scan_vector, id int32) {
	_, from, _ := f.record.Column(id)
	if len(from.Null) > 0 {
		v.nulls = (*C.uint8_t)(unsafe.SliceData(from.Null))
	}
	switch {
	case len(from.Ends) > 0:
		v.ends = (*C.uint32_t)(unsafe.SliceData(from.Ends))
		v.values = unsafe.Pointer(unsafe.SliceData(from.Bytes))
	case len(from.Ints) > 0:
		v.values = unsafe.Pointer(unsafe.SliceData(from.Ints))
	case len(from.Floats) > 0:
		v.values = unsafe.Pointer(unsafe.SliceData(from.Floats))
	}
}

// SQL returns the table function call that reads the scan.
func (s *Scan) SQL() string { return fmt.Sprintf("log_frames(%d)", uint64(s.c.id)) }

// Close withdraws the scan. All results that read it must be closed.
func (s *Scan) Close() {
	C.pes_scan_withdraw(s.c)
	for _, p := range s.memory {
		C.free(p)
	}
	s.memory = nil
}
