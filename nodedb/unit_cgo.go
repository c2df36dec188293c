//go:build cgo && lmdb

package nodedb

/*
#include <stdlib.h>
#include "nodedb.h"
*/
import "C"

import (
	"slices"
	"time"
	"unsafe"
)

type unit struct{ c *C.ndb_store }

func openUnitCore(folder string, o UnitOptions, sliceNodes int) (nativeUnit, error) {
	name := C.CString(folder)
	defer C.free(unsafe.Pointer(name))
	options := C.ndb_options{
		unit: 1, never_wait: boolInt(o.NeverWait), no_sync: boolInt(o.NoSync), verify: boolInt(o.Verify),
		flush_ms:          C.int(milliseconds(o.FlushAge)),
		transaction_bytes: C.uint64_t(max(o.DeltaBytes, 0)),
		pending_bytes:     C.uint64_t(max(o.PendingBytes, 0)),
		slice_nodes:       C.uint32_t(sliceNodes),
	}
	var c *C.ndb_store
	if err := checkCore(func() C.int { return C.ndb_open(name, &options, &c) }); err != nil {
		return nil, err
	}
	return &unit{c}, nil
}

func (u *unit) close() error { return checkCore(func() C.int { return C.ndb_close(u.c) }) }

func (u *unit) sync() error { return checkCore(func() C.int { return C.ndb_sync(u.c) }) }

func (u *unit) drop() { C.ndb_unit_drop(u.c) }

func (u *unit) status() (UnitStats, error) {
	var c C.ndb_unit_statistics
	err := checkCore(func() C.int { return C.ndb_unit_status(u.c, &c) })
	return UnitStats{
		WaitingNodes: uint64(c.waiting_nodes), WaitingBytes: uint64(c.waiting_bytes),
		InFlight: int(c.in_flight), InFlightBytes: uint64(c.in_flight_bytes),
		Last: uint64(c.number), Applied: uint64(c.applied), Begun: uint64(c.begun), Mark: uint64(c.applied_mark),
		Clock: time.UnixMilli(int64(c.clock)),
	}, err
}

func (u *unit) stat() (Stat, error) { return (&store{u.c}).stat() }

func (u *unit) view() (nativeSession, error) {
	s, err := openSession(u.c)
	if err != nil {
		return nil, err
	}
	if err := checkCore(func() C.int { return C.ndb_begin_committed(s.(*session).c) }); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (u *unit) begin(clock uint64) (nativeDelta, error) {
	var c *C.ndb_delta
	if err := checkCore(func() C.int { return C.ndb_delta_begin(u.c, C.uint64_t(clock), &c) }); err != nil {
		return nil, err
	}
	return &delta{c}, nil
}

func (u *unit) apply(number, mark uint64, changes []byte) error {
	return checkCore(func() C.int {
		return C.ndb_unit_apply(u.c, C.uint64_t(number), C.uint64_t(mark), (*C.char)(unsafe.Pointer(unsafe.SliceData(changes))), C.size_t(len(changes)))
	})
}

type delta struct{ c *C.ndb_delta }

func (d *delta) clock() uint64 { return uint64(C.ndb_delta_clock(d.c)) }

func (d *delta) session() nativeSession { return &session{c: C.ndb_delta_session(d.c)} }

func (d *delta) freeze() error { return checkCore(func() C.int { return C.ndb_delta_freeze(d.c) }) }

func (d *delta) bytes() int { return int(C.ndb_delta_bytes(d.c)) }

func (d *delta) appendTo(to []byte) ([]byte, error) {
	n := new(C.size_t)
	if err := checkCore(func() C.int { return C.ndb_delta_encoded(d.c, n) }); err != nil {
		return to, err
	}
	to = slices.Grow(to, int(*n))
	end := to[len(to) : len(to)+int(*n)]
	C.ndb_delta_encode(d.c, (*C.char)(unsafe.Pointer(unsafe.SliceData(end))))
	return to[:len(to)+int(*n)], nil
}

func (d *delta) discard() error { return checkCore(func() C.int { return C.ndb_delta_discard(d.c) }) }

func (d *delta) commit(number, mark uint64) error {
	return checkCore(func() C.int { return C.ndb_delta_commit(d.c, C.uint64_t(number), C.uint64_t(mark)) })
}
