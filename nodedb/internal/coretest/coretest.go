//go:build cgo && lmdb

// Package coretest tests the C core of the node database below its Go API: single functions, calls
// compared with a model, killed processes, failing disks. Test files cannot use cgo, so its
// bindings are in separate files, which only its tests call. It links the core of package nodedb.
package coretest

/*
#cgo CFLAGS: -std=gnu11 -O2 -Wall -Wextra -I${SRCDIR}/../../../.build/lmdb/include
#include <stdlib.h>
#include "../../core.h"
#include "../../error.h"
#include "../../nodedb.h"
#include "../../shared.h"

static void time_appends(const ndb_scalar *subscript, long rounds) {
  static char key[NDB_KEY_MAX];
  int len = ndb_key_name(key, sizeof key, "^x", 2);
  for (long i = 0; i < rounds; i++) ndb_key_append(key, (size_t)len, sizeof key, subscript);
}

// Takes and releases the locks in one loop, so that a kill often hits a half-changed table.
static int churn_locks(ndb_shared *shared, const ndb_key *keys, size_t count, long rounds) {
  for (long i = 0; i < rounds; i++) {
    int code = ndb_locks_take(shared, 2, keys, count, 10000);
    for (size_t k = 0; code == NDB_OK && k < count; k++) code = ndb_locks_release(shared, 2, keys[k].key, keys[k].len);
    if (code != NDB_OK) return code;
  }
  return NDB_OK;
}
*/
import "C"

import (
	"fmt"
	"runtime"
	"unsafe"

	_ "github.com/perigeedb/perigee/nodedb" // contains the core
)

// coreScalar is a subscript or value in tests.
type coreScalar struct {
	kind   uint32 // coreNumber and so on
	number float64
	text   string // for coreDigits and coreString
}

const (
	coreAbsent = C.NDB_ABSENT
	coreNumber = C.NDB_NUMBER
	coreDigits = C.NDB_DIGITS
	coreString = C.NDB_STRING
	coreFalse  = C.NDB_FALSE
	coreTrue   = C.NDB_TRUE
)

// coreError is an error of the core, with its message.
type coreError struct {
	code    int
	message string
}

func (e *coreError) Error() string {
	return fmt.Sprintf("%s: %s", C.GoString(C.ndb_code_name(C.int(e.code))), e.message)
}

// coreFailure must be called on the thread of the failed call.
func coreFailure(code int) error { return &coreError{code, C.GoString(C.ndb_message())} }

func (s coreScalar) toC(pin *runtime.Pinner) C.ndb_scalar {
	out := C.ndb_scalar{number: C.double(s.number), _type: C.uint32_t(s.kind), len: C.uint32_t(len(s.text))}
	if s.text != "" {
		data := unsafe.StringData(s.text)
		pin.Pin(data)
		out.bytes = (*C.char)(unsafe.Pointer(data))
	}
	return out
}

func scalarFromC(s *C.ndb_scalar) coreScalar {
	out := coreScalar{kind: uint32(s._type), number: float64(s.number)}
	if s._type == coreDigits || s._type == coreString {
		out.text = C.GoStringN(s.bytes, C.int(s.len))
	}
	return out
}

func bytesToC(b []byte) (*C.char, C.size_t) {
	return (*C.char)(unsafe.Pointer(unsafe.SliceData(b))), C.size_t(len(b))
}

func coreEncode(name string, subscripts []coreScalar) ([]byte, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var pin runtime.Pinner
	defer pin.Unpin()
	key := make([]byte, C.NDB_KEY_MAX)
	at, room := bytesToC(key)
	text, n := bytesToC([]byte(name))
	size := C.ndb_key_name(at, room, text, n)
	for _, subscript := range subscripts {
		if size < 0 {
			break
		}
		scalar := subscript.toC(&pin)
		size = C.ndb_key_append(at, C.size_t(size), room, &scalar)
	}
	if size < 0 {
		return nil, coreFailure(int(size))
	}
	return key[:size], nil
}

func coreDecode(key []byte) (name string, subscripts []coreScalar, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	text := make([]byte, C.NDB_KEY_MAX)
	buffer, _ := bytesToC(text)
	bytes, n := bytesToC(key)
	var at C.size_t
	for first := true; ; first = false {
		var out C.ndb_scalar
		code := C.ndb_key_decode(bytes, n, &at, &out, buffer)
		if code == C.NDB_NONE {
			return name, subscripts, nil
		}
		if code != C.NDB_OK {
			return "", nil, coreFailure(int(code))
		}
		if first {
			name = scalarFromC(&out).text
		} else {
			subscripts = append(subscripts, scalarFromC(&out))
		}
	}
}

func coreKeyDepth(key []byte) int {
	bytes, n := bytesToC(key)
	return int(C.ndb_key_depth(bytes, n))
}

func coreKeyParent(key []byte) int {
	bytes, n := bytesToC(key)
	return int(C.ndb_key_parent(bytes, n))
}

func coreNumberText(value coreScalar) (string, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var pin runtime.Pinner
	defer pin.Unpin()
	var text [C.NDB_NUMBER_TEXT]C.char
	scalar := value.toC(&pin)
	n := C.ndb_number_text(&scalar, &text[0])
	if n < 0 {
		return "", coreFailure(int(n))
	}
	return C.GoStringN(&text[0], n), nil
}

func coreNumberAdd(value, by coreScalar) (coreScalar, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var pin runtime.Pinner
	defer pin.Unpin()
	text := (*C.char)(C.malloc(C.NDB_NUMBER_TEXT))
	defer C.free(unsafe.Pointer(text))
	a, b := value.toC(&pin), by.toC(&pin)
	var sum C.ndb_scalar
	if code := C.ndb_number_add(&a, &b, &sum, text); code != C.NDB_OK {
		return coreScalar{}, coreFailure(int(code))
	}
	return scalarFromC(&sum), nil
}

func coreZwriteKey(key []byte, room int) (text string, needed int, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	out := make([]byte, room+1)
	to, _ := bytesToC(out)
	bytes, n := bytesToC(key)
	size := int(C.ndb_zwrite_key(bytes, n, to, C.size_t(room)))
	if size < 0 {
		return "", 0, coreFailure(size)
	}
	return string(out[:min(size, room)]), size, nil
}

func coreZwriteScalar(value coreScalar, room int) (text string, needed int, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var pin runtime.Pinner
	defer pin.Unpin()
	out := make([]byte, room+1)
	to, _ := bytesToC(out)
	scalar := value.toC(&pin)
	size := int(C.ndb_zwrite_scalar(&scalar, to, C.size_t(room)))
	if size < 0 {
		return "", 0, coreFailure(size)
	}
	return string(out[:min(size, room)]), size, nil
}

func coreParseKey(text string) (key []byte, at int, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	bytes, n := bytesToC([]byte(text))
	key = make([]byte, C.NDB_KEY_MAX)
	to, _ := bytesToC(key)
	var position C.size_t
	size := int(C.ndb_zwrite_parse_key(bytes, n, &position, to))
	if size < 0 {
		return nil, int(position), coreFailure(size)
	}
	return key[:size], int(position), nil
}

func coreParseScalar(text string) (value coreScalar, at int, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	source := C.CBytes([]byte(text))
	defer C.free(source)
	buffer := C.malloc(C.size_t(len(text) + 1))
	defer C.free(buffer)
	var position C.size_t
	var out C.ndb_scalar
	if code := C.ndb_zwrite_parse_scalar((*C.char)(source), C.size_t(len(text)), &position, &out, (*C.char)(buffer)); code != C.NDB_OK {
		return coreScalar{}, int(position), coreFailure(int(code))
	}
	return scalarFromC(&out), int(position), nil
}

// coreStoredRead decodes a stored value. For a string, its header must precede it. expiry is in ms
// since 1970, or 0.
func coreStoredRead(stored []byte) (value coreScalar, expiry uint64, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	source := C.CBytes(append(stored, 4))
	defer C.free(source)
	var at C.uint64_t
	var out C.ndb_scalar
	if code := C.ndb_stored_read((*C.char)(source), C.size_t(len(stored)), &out, &at); code != C.NDB_OK {
		return coreScalar{}, 0, coreFailure(int(code))
	}
	return scalarFromC(&out), uint64(at), nil
}

// coreTimeAppends appends to a key a number of times, in one call.
func coreTimeAppends(subscript coreScalar, rounds int) {
	var pin runtime.Pinner
	defer pin.Unpin()
	scalar := subscript.toC(&pin)
	C.time_appends(&scalar, C.long(rounds))
}

func coreHash(key []byte) uint64 {
	bytes, n := bytesToC(key)
	return uint64(C.ndb_hash(bytes, n))
}

// coreShared is the file shared by processes.
type coreShared struct{ shared *C.ndb_shared }

func openCoreShared(folder string) (coreShared, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	path := C.CString(folder)
	defer C.free(unsafe.Pointer(path))
	var out *C.ndb_shared
	if code := C.ndb_shared_open(path, &out); code != C.NDB_OK {
		return coreShared{}, coreFailure(int(code))
	}
	return coreShared{out}, nil
}

func (s coreShared) close()         { C.ndb_shared_close(s.shared) }
func (s coreShared) processes() int { return int(C.ndb_shared_processes(s.shared)) }
func (s coreShared) locks() int     { return int(C.ndb_locks_count(s.shared)) }
func (s coreShared) rebuilds() int  { return int(s.shared.file.rebuilds) }

// leakedBlocks counts blocks that are neither free nor part of a lock.
func (s coreShared) leakedBlocks() int {
	used := uint32(0)
	for _, lock := range s.shared.file.locks[:s.shared.file.lock_end] {
		if lock.used != 0 {
			used += (uint32(lock.len) + C.NDB_LOCK_BLOCK_BYTES - 1) / C.NDB_LOCK_BLOCK_BYTES
		}
	}
	return int(uint32(s.shared.file.block_end) - uint32(s.shared.file.free_blocks) - used)
}

func (s coreShared) withKeys(keys [][]byte, do func(*C.ndb_key, C.size_t) C.int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var pin runtime.Pinner
	defer pin.Unpin()
	list := make([]C.ndb_key, len(keys))
	for i, key := range keys {
		pin.Pin(unsafe.SliceData(key))
		list[i].key, list[i].len = bytesToC(key)
	}
	if code := do(unsafe.SliceData(list), C.size_t(len(list))); code < 0 {
		return coreFailure(int(code))
	}
	return nil
}

func (s coreShared) take(session int, timeoutMs int64, keys ...[]byte) error {
	return s.withKeys(keys, func(list *C.ndb_key, n C.size_t) C.int {
		return C.ndb_locks_take(s.shared, C.uint32_t(session), list, n, C.int64_t(timeoutMs))
	})
}

// release reports whether the session held the lock.
func (s coreShared) release(session int, key []byte) bool {
	bytes, n := bytesToC(key)
	return C.ndb_locks_release(s.shared, C.uint32_t(session), bytes, n) == C.NDB_OK
}

func (s coreShared) releaseAll(session int) { C.ndb_locks_release_all(s.shared, C.uint32_t(session)) }

func (s coreShared) churn(rounds int, keys ...[]byte) error {
	return s.withKeys(keys, func(list *C.ndb_key, n C.size_t) C.int {
		return C.churn_locks(s.shared, list, n, C.long(rounds))
	})
}

// coreRecordSum returns the checksum of a record, by the processor's instruction and by table.
func coreRecordSum(key, value string) (fast, slow uint16) {
	k, v := (*C.char)(unsafe.Pointer(unsafe.StringData(key))), (*C.char)(unsafe.Pointer(unsafe.StringData(value)))
	return uint16(C.ndb_record_sum(k, C.size_t(len(key)), v, C.size_t(len(value)))),
		uint16(C.ndb_record_sum_by_table(k, C.size_t(len(key)), v, C.size_t(len(value))))
}
