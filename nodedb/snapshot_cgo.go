//go:build cgo && lmdb

package nodedb

/*
#include <stdlib.h>
#include "nodedb.h"
*/
import "C"

import (
	"time"
	"unsafe"
)

func (u *unit) chunk(from []byte, bytes int) (Chunk, error) {
	c := new(C.ndb_chunk)
	err := checkCore(func() C.int {
		return C.ndb_unit_chunk(u.c, (*C.char)(unsafe.Pointer(unsafe.SliceData(from))), C.size_t(len(from)), C.size_t(max(bytes, 1)), c)
	})
	if err != nil {
		return Chunk{}, err
	}
	defer C.free(unsafe.Pointer(c.data))
	chunk := Chunk{
		Snapshot: Snapshot{
			Applied: uint64(c.applied), AppliedMark: uint64(c.applied_mark), Begun: uint64(c.begun), BegunMark: uint64(c.begun_mark),
			Clock: time.UnixMilli(int64(c.clock)),
		},
		Nodes: uint64(c.nodes),
		Data:  append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(c.data)), int(c.len))...),
	}
	if c.next_len > 0 {
		chunk.Next = C.GoBytes(unsafe.Pointer(&c.next[0]), C.int(c.next_len))
	}
	return chunk, nil
}

func (u *unit) loadBegin(s Snapshot) (loaded uint64, err error) {
	c := new(C.uint64_t)
	err = checkCore(func() C.int {
		return C.ndb_unit_load_begin(u.c, C.uint64_t(s.Applied), C.uint64_t(s.AppliedMark), C.uint64_t(s.Begun), C.uint64_t(max(s.Clock.UnixMilli(), 0)), c)
	})
	return uint64(*c), err
}

func (u *unit) load(chunk []byte) error {
	return checkCore(func() C.int {
		return C.ndb_unit_load(u.c, (*C.char)(unsafe.Pointer(unsafe.SliceData(chunk))), C.size_t(len(chunk)))
	})
}

func (u *unit) loadEnd() error { return checkCore(func() C.int { return C.ndb_unit_load_end(u.c) }) }

func (u *unit) isLoading() (bool, error) {
	code, err := callCore(func() C.int { return C.ndb_unit_is_loading(u.c) })
	return code == 1, err
}
