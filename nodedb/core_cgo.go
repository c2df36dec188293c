//go:build cgo && lmdb

package nodedb

/*
#cgo CFLAGS: -std=gnu11 -O2 -Wall -Wextra -I${SRCDIR}/../.build/lmdb/include
#cgo LDFLAGS: -L${SRCDIR}/../.build/lmdb/lib -llmdb -lpthread -lm
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "lmdb.h"
#include "lmdb_build.h"
#include "nodedb.h"

// Go must not store pointers to its memory in an ndb_scalar, so its fields are passed one by one.
#define SCALAR(n) uint32_t type##n, double number##n, const char *bytes##n, uint32_t len##n
#define MAKE(n) &(ndb_scalar){.number = number##n, .bytes = bytes##n, .len = len##n, .type = type##n}

static int set(ndb_session *s, const char *key, size_t len, SCALAR(1)) { return ndb_set(s, key, len, MAKE(1)); }
static int set_new(ndb_session *s, const char *key, size_t len, SCALAR(1)) { return ndb_set_new(s, key, len, MAKE(1)); }
static int compare_and_set(ndb_session *s, const char *key, size_t len, SCALAR(1), SCALAR(2)) {
	return ndb_compare_and_set(s, key, len, MAKE(1), MAKE(2));
}
static int increment(ndb_session *s, const char *key, size_t len, SCALAR(1), ndb_scalar *out) {
	return ndb_increment(s, key, len, MAKE(1), out);
}
static int iter_open(ndb_session *s, const char *key, size_t len, int flags, SCALAR(1), SCALAR(2), uint64_t limit, ndb_iter **out) {
	return ndb_iter_open(s, key, len, flags, type1 ? MAKE(1) : NULL, type2 ? MAKE(2) : NULL, limit, out);
}
static int kill_range(ndb_session *s, const char *key, size_t len, SCALAR(1), SCALAR(2), uint64_t steps, char *position, size_t *position_len) {
	return ndb_kill_range(s, key, len, type1 ? MAKE(1) : NULL, type2 ? MAKE(2) : NULL, steps, position, position_len);
}

// A pair is a node to set. Its key and its value's bytes follow one another in a common text.
typedef struct {
	size_t key_len;
	double number;
	uint32_t type, len;
} pair;
static int set_all(ndb_session *s, const pair *pairs, size_t count, const char *text) {
	ndb_pair *all = calloc(count + 1, sizeof *all);
	if (!all) return NDB_E_MEMORY;
	for (size_t i = 0; i < count; i++) {
		const char *value = text + pairs[i].key_len;
		all[i] = (ndb_pair){text, pairs[i].key_len, {.number = pairs[i].number, .bytes = value, .len = pairs[i].len, .type = pairs[i].type}};
		text = value + pairs[i].len;
	}
	int code = ndb_set_all(s, all, count);
	free(all);
	return code;
}
static int lock(ndb_session *s, const char *keys, const size_t *lens, size_t count, int64_t timeout_ms) {
	ndb_key *all = calloc(count + 1, sizeof *all);
	if (!all) return NDB_E_MEMORY;
	for (size_t i = 0; i < count; keys += lens[i++]) all[i] = (ndb_key){keys, lens[i]};
	int code = ndb_lock(s, all, count, timeout_ms);
	free(all);
	return code;
}

static int key_append(char *key, size_t len, SCALAR(1)) { return ndb_key_append(key, len, NDB_KEY_MAX, MAKE(1)); }
static long zwrite_scalar(SCALAR(1), char *out, size_t cap) { return ndb_zwrite_scalar(MAKE(1), out, cap); }

// key_decode writes the bytes of a scalar to text.
static int key_decode(const char *key, size_t len, size_t *at, uint32_t *type, double *number, uint32_t *text_len, char *text) {
	ndb_scalar s;
	int code = ndb_key_decode(key, len, at, &s, text);
	if (code != NDB_OK) return code;
	*type = s.type;
	*number = s.number;
	*text_len = s.type == NDB_NUMBER ? 0 : s.len;
	if (*text_len && s.bytes != text) memmove(text, s.bytes, s.len);
	return NDB_OK;
}

// format writes dump lines for the items from *at on, as many as fit, and returns the number of
// bytes written. If not even one line fits, it returns the negative of the size needed; if a key or
// value does not decode, UNREADABLE.
#define UNREADABLE LONG_MIN
static long format(const ndb_items *items, uint32_t *at, char *out, size_t cap) {
	size_t used = 0;
	for (; *at < items->count; ++*at) {
		size_t room = cap - used;
		long key = ndb_zwrite_key(items->key[*at], items->key_len[*at], out + used, room);
		if (key < 0) return UNREADABLE;
		size_t after = (size_t)key + 1 < room ? (size_t)key + 1 : room;
		long value = ndb_zwrite_scalar(&items->value[*at], out + used + after, room - after);
		if (value < 0) return UNREADABLE;
		size_t line = (size_t)key + (size_t)value + 2;
		if (line > room) return used ? (long)used : -(long)line;
		out[used + (size_t)key] = '=';
		used += line;
		out[used - 1] = '\n';
	}
	return (long)used;
}

// load sets the node of a line; bytes has capacity len. *at is the offset of the invalid byte.
static int load(ndb_session *s, const char *text, size_t len, size_t *at, char *bytes) {
	char key[NDB_KEY_MAX];
	ndb_scalar value;
	int key_len = ndb_zwrite_parse_key(text, len, at, key);
	if (key_len < 0) return key_len;
	if (*at == len || text[*at] != '=') return NDB_NONE;
	++*at;
	int code = ndb_zwrite_parse_scalar(text, len, at, &value, bytes);
	if (code < 0) return code;
	if (*at < len) return NDB_NONE;
	*at = 0;
	return ndb_set(s, key, (size_t)key_len, &value);
}

extern int ndb_report_fault(uintptr_t handle, char *line);
static int report(void *user, const char *line) { return ndb_report_fault((uintptr_t)user, (char *)line); }
static int check(ndb_store *store, uintptr_t handle) { return ndb_check(store, report, (void *)handle); }
*/
import "C"

import (
	"math"
	"runtime"
	"runtime/cgo"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"
)

// Version returns the names and versions of the database's libraries, or "" in a build without the
// database.
func Version() string {
	_ = C.LMDB_BUILD // makes the build cache depend on the archive, which it does not look at
	version, _, _ := strings.Cut(C.GoString(C.mdb_version(nil, nil, nil)), ":")
	return version
}

// Format returns the format of new folders, such as "perigee nodedb 2", or "" if this build cannot open
// node databases.
func Format() string { return C.GoString(C.ndb_format()) }

// sentinels maps the core's codes to errors.
var sentinels = map[C.int]error{
	C.NDB_E_ARGUMENT: ErrArgument, C.NDB_E_KEY: ErrPathTooLong, C.NDB_E_VALUE: ErrValueTooLong,
	C.NDB_E_FULL: ErrTransactionTooLarge, C.NDB_E_CONFLICT: ErrConflict, C.NDB_E_TIMEOUT: ErrTimeout,
	C.NDB_E_LEVEL: ErrLevel, C.NDB_E_DISK: ErrDisk, C.NDB_E_CORRUPT: ErrCorrupt, C.NDB_E_MEMORY: ErrMemory,
	C.NDB_E_SUPERSEDED: ErrSuperseded, C.NDB_E_MERGE: ErrMerge, C.NDB_E_NUMBER: ErrNumberRange, C.NDB_E_LOCKS: ErrTooManyLocks,
	C.NDB_E_IN_USE: ErrInUse, C.NDB_E_INCOMPLETE: ErrIncomplete, C.NDB_E_NEWER: ErrNewer,
}

// callCore calls the core, and returns its result or an error with the thread's message.
func callCore(call func() C.int) (C.int, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	code := call()
	if code < 0 {
		return code, &Error{Err: sentinels[code], message: C.GoString(C.ndb_message())}
	}
	return code, nil
}

// checkCore is callCore for a call without another result.
func checkCore(call func() C.int) error {
	_, err := callCore(call)
	return err
}

// pieces are the fields of a Value in C form: the arguments for SCALAR.
type pieces struct {
	kind   C.uint32_t
	number C.double
	bytes  *C.char
	len    C.uint32_t
}

func piecesOf(v Value) pieces {
	p := pieces{number: C.double(v.number), bytes: chars(v.text), len: C.uint32_t(len(v.text))}
	switch {
	case v.kind == Number && v.text == "":
		p.kind = C.NDB_NUMBER
	case v.kind == Number:
		p.kind = C.NDB_DIGITS
	case v.kind == String:
		p.kind = C.NDB_STRING
	case v.kind == Boolean && v.number == 1:
		p.kind = C.NDB_TRUE
	case v.kind == Boolean:
		p.kind = C.NDB_FALSE
	}
	return p
}

// chars returns the bytes of s as an argument of a C call.
func chars(s string) *C.char { return (*C.char)(unsafe.Pointer(unsafe.StringData(s))) }

func valueOfScalar(s *C.ndb_scalar) Value {
	switch s._type {
	case C.NDB_NUMBER:
		if math.Abs(float64(s.number)) > exactMax { // a script can set such a number
			v, _ := floatValue(float64(s.number)) // it is finite
			return v
		}
		return Value{kind: Number, number: float64(s.number)}
	case C.NDB_ABSENT:
		return Value{}
	case C.NDB_TRUE, C.NDB_FALSE:
		return booleanValue(s._type == C.NDB_TRUE)
	}
	return valueOfText(s._type, string(unsafe.Slice((*byte)(unsafe.Pointer(s.bytes)), int(s.len))))
}

// valueOfText returns the value of a DIGITS or STRING.
func valueOfText(kind C.uint32_t, text string) Value {
	if kind == C.NDB_STRING {
		return Value{kind: String, text: text}
	}
	return decimalValue(text)
}

// Keys.

func keyOfName(name string) (string, error) {
	key := make([]byte, C.NDB_KEY_MAX)
	n, err := callCore(func() C.int {
		return C.ndb_key_name((*C.char)(unsafe.Pointer(&key[0])), C.NDB_KEY_MAX, chars(name), C.size_t(len(name)))
	})
	if err != nil {
		return "", named(err, "make path", Path{})
	}
	return string(key[:n]), nil
}

func appendKey(key []byte, v Value) ([]byte, error) {
	grown := make([]byte, C.NDB_KEY_MAX)
	used, s := copy(grown, key), piecesOf(v)
	n, err := callCore(func() C.int {
		return C.key_append((*C.char)(unsafe.Pointer(&grown[0])), C.size_t(used), s.kind, s.number, s.bytes, s.len)
	})
	if err != nil {
		return nil, named(err, "make path", Path{})
	}
	return grown[:n], nil
}

func keyText(key string) string {
	text := make([]byte, 2*len(key)+64)
	for {
		n := int(C.ndb_zwrite_key(chars(key), C.size_t(len(key)), (*C.char)(unsafe.Pointer(&text[0])), C.size_t(len(text))))
		if n < 0 {
			return ""
		}
		if n <= len(text) {
			return string(text[:n])
		}
		text = make([]byte, n)
	}
}

// scalarText returns a value as ZWRITE text; "" for an absent one.
func scalarText(v Value) string {
	p := piecesOf(v)
	text := make([]byte, len(v.text)+64)
	for {
		n := int(C.zwrite_scalar(p.kind, p.number, p.bytes, p.len, (*C.char)(unsafe.Pointer(&text[0])), C.size_t(len(text))))
		if n < 0 {
			return ""
		}
		if n <= len(text) {
			return string(text[:n])
		}
		text = make([]byte, n)
	}
}

func parseKey(text string) (string, int, error) {
	key := make([]byte, C.NDB_KEY_MAX)
	at := new(C.size_t)
	n, err := callCore(func() C.int {
		return C.ndb_zwrite_parse_key(chars(text), C.size_t(len(text)), at, (*C.char)(unsafe.Pointer(&key[0])))
	})
	if err != nil {
		return "", int(*at), named(err, "read path", Path{})
	}
	return string(key[:n]), int(*at), nil
}

// decodeKey returns the name or subscript at an offset of a key, and the offset after it, 0 at the
// end.
func decodeKey(key string, at int) (Value, int) {
	place, kind, number, n := C.size_t(at), C.uint32_t(0), C.double(0), C.uint32_t(0)
	text := make([]byte, C.NDB_KEY_MAX)
	code := C.key_decode(chars(key), C.size_t(len(key)), &place, &kind, &number, &n, (*C.char)(unsafe.Pointer(&text[0])))
	switch {
	case code != C.NDB_OK:
		return Value{}, 0
	case kind == C.NDB_NUMBER:
		return Value{kind: Number, number: float64(number)}, int(place)
	}
	return valueOfText(kind, string(text[:n])), int(place)
}

func parentLen(key string) int {
	if key == "" {
		return 0
	}
	return max(int(C.ndb_key_parent(chars(key), C.size_t(len(key)))), 0)
}

// Stores.

type store struct{ c *C.ndb_store }

func openCore(folder string, o Options) (nativeStore, error) {
	name := C.CString(folder)
	defer C.free(unsafe.Pointer(name))
	options := C.ndb_options{
		read_only: C.NDB_READ_ONLY_SESSIONS * boolInt(o.ReadOnly), no_sync: boolInt(o.NoSync), verify: boolInt(o.Verify),
		flush_ms:          C.int(milliseconds(o.FlushInterval)),
		transaction_bytes: C.uint64_t(max(o.TransactionBytes, 0)),
		pending_bytes:     C.uint64_t(max(o.PendingBytes, 0)),
	}
	var c *C.ndb_store
	if err := checkCore(func() C.int { return C.ndb_open(name, &options, &c) }); err != nil {
		return nil, err
	}
	return &store{c}, nil
}

func nativeAddress(s nativeStore) unsafe.Pointer { return unsafe.Pointer(s.(*store).c) }

func sessionAddress(s nativeSession) unsafe.Pointer { return unsafe.Pointer(s.(*session).c) }

func compactCore(folder string) error {
	name := C.CString(folder)
	defer C.free(unsafe.Pointer(name))
	return checkCore(func() C.int { return C.ndb_compact(name) })
}

func (s *store) close() error { return checkCore(func() C.int { return C.ndb_close(s.c) }) }

func (s *store) sync() error { return checkCore(func() C.int { return C.ndb_sync(s.c) }) }

func (s *store) stat() (Stat, error) {
	var c C.ndb_statistics
	err := checkCore(func() C.int { return C.ndb_stat(s.c, &c) })
	return Stat{
		Nodes: uint64(c.nodes), UsedBytes: uint64(c.used_bytes), FreeBytes: uint64(c.free_bytes),
		MapBytes: uint64(c.map_bytes), PendingBytes: uint64(c.pending_bytes), Commits: uint64(c.commits),
		Expiring: uint64(c.expiring), Depth: int(c.depth), Readers: int(c.readers), Locks: int(c.locks),
		Processes: int(c.processes),
	}, err
}

func (s *store) backup(folder string) error {
	name := C.CString(folder)
	defer C.free(unsafe.Pointer(name))
	return checkCore(func() C.int { return C.ndb_backup(s.c, name) })
}

func (s *store) check(report func(string)) (int, error) {
	handle := cgo.NewHandle(report)
	defer handle.Delete()
	n, err := callCore(func() C.int { return C.check(s.c, C.uintptr_t(handle)) })
	return int(max(n, 0)), err
}

func (s *store) session() (nativeSession, error) { return openSession(s.c) }

func openMemory() (nativeSession, error) { return openSession(nil) }

// Sessions.

type session struct {
	c    *C.ndb_session
	out  C.ndb_scalar // result of the last call
	stop *C.uint32_t  // waits end while it is not 0
}

func openSession(store *C.ndb_store) (nativeSession, error) {
	s := new(session)
	var c *C.ndb_session
	if err := checkCore(func() C.int { return C.ndb_session_open(store, &c) }); err != nil {
		return nil, err
	}
	s.c = c
	s.stop = (*C.uint32_t)(C.calloc(1, C.sizeof_uint32_t)) // C keeps its address; cgo's calloc never fails
	C.ndb_session_limits(c, 0, s.stop)
	return s, nil
}

func (s *session) close() {
	C.ndb_session_close(s.c)
	C.free(unsafe.Pointer(s.stop))
}

func (s *session) readOnly() { C.ndb_session_read_only(s.c) }

func (s *session) interrupt(on bool) {
	atomic.StoreUint32((*uint32)(unsafe.Pointer(s.stop)), uint32(boolInt(on)))
}

func (s *session) beginView() error { return checkCore(func() C.int { return C.ndb_begin_view(s.c) }) }

func (s *session) begin() error { return checkCore(func() C.int { return C.ndb_begin(s.c) }) }

func (s *session) commit() (uint64, error) {
	var number C.uint64_t
	err := checkCore(func() C.int { return C.ndb_commit(s.c, &number) })
	return uint64(number), err
}

func (s *session) wait(commit uint64) error {
	return checkCore(func() C.int { return C.ndb_wait(s.c, C.uint64_t(commit)) })
}

func (s *session) rollback() error { return checkCore(func() C.int { return C.ndb_rollback(s.c) }) }

func (s *session) restart() error { return checkCore(func() C.int { return C.ndb_restart(s.c) }) }

// found reports whether a call returned anything but NDB_NONE.
func found(call func() C.int) (bool, error) {
	code, err := callCore(call)
	return err == nil && code != C.NDB_NONE, err
}

// scalar returns the value that a call stores in s.out, Absent if it returns NDB_NONE.
func (s *session) scalar(call func() C.int) (Value, bool, error) {
	ok, err := found(call)
	if !ok {
		return Value{}, false, err
	}
	return valueOfScalar(&s.out), true, nil
}

func (s *session) get(key string) (Value, error) {
	v, _, err := s.scalar(func() C.int { return C.ndb_get(s.c, chars(key), C.size_t(len(key)), &s.out) })
	return v, err
}

func (s *session) set(key string, v Value) error {
	p := piecesOf(v)
	return checkCore(func() C.int {
		return C.set(s.c, chars(key), C.size_t(len(key)), p.kind, p.number, p.bytes, p.len)
	})
}

func (s *session) setNew(key string, v Value) (bool, error) {
	p := piecesOf(v)
	return found(func() C.int {
		return C.set_new(s.c, chars(key), C.size_t(len(key)), p.kind, p.number, p.bytes, p.len)
	})
}

func (s *session) compareAndSet(key string, expected, v Value) (bool, error) {
	e, p := piecesOf(expected), piecesOf(v)
	return found(func() C.int {
		return C.compare_and_set(s.c, chars(key), C.size_t(len(key)), e.kind, e.number, e.bytes, e.len, p.kind, p.number, p.bytes, p.len)
	})
}

func (s *session) data(key string) (int, error) {
	n, err := callCore(func() C.int { return C.ndb_data(s.c, chars(key), C.size_t(len(key))) })
	return int(max(n, 0)), err
}

func (s *session) increment(key string, by Value) (Value, error) {
	p := piecesOf(by)
	v, _, err := s.scalar(func() C.int {
		return C.increment(s.c, chars(key), C.size_t(len(key)), p.kind, p.number, p.bytes, p.len, &s.out)
	})
	return v, err
}

func (s *session) killValue(key string) error {
	return checkCore(func() C.int { return C.ndb_kill_value(s.c, chars(key), C.size_t(len(key))) })
}

func (s *session) kill(key string) error {
	return checkCore(func() C.int { return C.ndb_kill(s.c, chars(key), C.size_t(len(key))) })
}

func (s *session) expire(key string, ttl time.Duration) (bool, error) {
	return found(func() C.int {
		return C.ndb_expire(s.c, chars(key), C.size_t(len(key)), C.uint64_t(milliseconds(ttl)))
	})
}

func (s *session) expireAt(key string, ms uint64) (bool, error) {
	return found(func() C.int { return C.ndb_expire_at(s.c, chars(key), C.size_t(len(key)), C.uint64_t(ms)) })
}

func (s *session) setAll(pairs []nativePair) error {
	var text []byte
	all := make([]C.pair, len(pairs)+1)
	for i, one := range pairs {
		p := piecesOf(one.value)
		text = append(append(text, one.key...), one.value.text...)
		all[i] = C.pair{key_len: C.size_t(len(one.key)), number: p.number, _type: p.kind, len: p.len}
	}
	return checkCore(func() C.int {
		return C.set_all(s.c, &all[0], C.size_t(len(pairs)), (*C.char)(unsafe.Pointer(unsafe.SliceData(text))))
	})
}

func (s *session) ttl(key string) (time.Duration, bool, error) {
	var left C.uint64_t
	limited, err := found(func() C.int { return C.ndb_ttl(s.c, chars(key), C.size_t(len(key)), &left) })
	if !limited {
		return 0, false, err
	}
	return time.Duration(min(uint64(left), math.MaxInt64/uint64(time.Millisecond))) * time.Millisecond, true, nil
}

func (s *session) nextSibling(key string, reverse bool) (Value, bool, error) {
	return s.scalar(func() C.int {
		return C.ndb_next_sibling(s.c, chars(key), C.size_t(len(key)), boolInt(reverse), &s.out)
	})
}

// stepsPerCall limits one call of an operation that works in steps.
const stepsPerCall = 10_000

func (s *session) count(key string, at *position, count *uint64) (more bool, err error) {
	n, counted := C.size_t(at.len), C.uint64_t(*count)
	code, err := callCore(func() C.int {
		return C.ndb_count(s.c, chars(key), C.size_t(len(key)), stepsPerCall, at.chars(), &n, &counted)
	})
	at.len, *count = int(n), uint64(counted)
	return code == C.NDB_MORE, err
}

func (s *session) merge(to, from string, at *position) (more bool, err error) {
	n := C.size_t(at.len)
	code, err := callCore(func() C.int {
		return C.ndb_merge(s.c, chars(to), C.size_t(len(to)), chars(from), C.size_t(len(from)), stepsPerCall, at.chars(), &n)
	})
	at.len = int(n)
	return code == C.NDB_MORE, err
}

func (s *session) killRange(key string, from, to Value, at *position) (more bool, err error) {
	n, low, high := C.size_t(at.len), piecesOf(from), piecesOf(to)
	code, err := callCore(func() C.int {
		return C.kill_range(s.c, chars(key), C.size_t(len(key)), low.kind, low.number, low.bytes, low.len,
			high.kind, high.number, high.bytes, high.len, stepsPerCall, at.chars(), &n)
	})
	at.len = int(n)
	return code == C.NDB_MORE, err
}

func (s *session) expireTree(key string, ms uint64, at *position) (more bool, err error) {
	n := C.size_t(at.len)
	code, err := callCore(func() C.int {
		return C.ndb_expire_tree(s.c, chars(key), C.size_t(len(key)), C.uint64_t(ms), stepsPerCall, at.chars(), &n)
	})
	at.len = int(n)
	return code == C.NDB_MORE, err
}

func (p *position) chars() *C.char { return (*C.char)(unsafe.Pointer(&p.key[0])) }

func (s *session) lock(keys []string, timeout time.Duration) error {
	lens := make([]C.size_t, len(keys)+1)
	for i, key := range keys {
		lens[i] = C.size_t(len(key))
	}
	all, wait := strings.Join(keys, ""), C.int64_t(-1)
	if timeout >= 0 {
		wait = C.int64_t(milliseconds(timeout))
	}
	return checkCore(func() C.int { return C.lock(s.c, chars(all), &lens[0], C.size_t(len(keys)), wait) })
}

func (s *session) unlock(key string) (bool, error) {
	return found(func() C.int { return C.ndb_unlock(s.c, chars(key), C.size_t(len(key))) })
}

func (s *session) unlockAll() { C.ndb_unlock_all(s.c) }
func (s *session) idle()      { C.ndb_idle(s.c) }

func (s *session) load(line string) (int, error) {
	at, bytes := new(C.size_t), make([]byte, len(line)+1)
	code, err := callCore(func() C.int {
		return C.load(s.c, chars(line), C.size_t(len(line)), at, (*C.char)(unsafe.Pointer(&bytes[0])))
	})
	if code == C.NDB_NONE {
		err = &Error{Err: ErrArgument, message: "invalid line: use the form ^name(1,\"subscript\")=\"value\""}
	}
	return int(*at), err
}

// Iterators.

type iterator struct {
	c     *C.ndb_iter
	scan  nativeScan
	items C.ndb_items // of the last fill; fields that the scan did not ask for are not set
}

func (s *session) iterate(key string, scan nativeScan) (nativeIterator, error) {
	flags := C.int(0)
	from, to := piecesOf(scan.from), piecesOf(scan.to)
	if scan.descendants {
		flags |= C.NDB_DESCENDANTS | C.NDB_KEYS
	}
	if scan.self {
		flags |= C.NDB_SELF
	}
	if scan.reverse {
		flags |= C.NDB_REVERSE
	}
	if scan.values {
		flags |= C.NDB_VALUES
	}
	it := &iterator{scan: scan}
	var c *C.ndb_iter
	err := checkCore(func() C.int {
		return C.iter_open(s.c, chars(key), C.size_t(len(key)), flags, from.kind, from.number, from.bytes, from.len,
			to.kind, to.number, to.bytes, to.len, C.uint64_t(scan.limit), &c)
	})
	if err != nil {
		return nil, err
	}
	it.c = c
	return it, nil
}

func (it *iterator) fill() (int, error) {
	more, err := found(func() C.int { return C.ndb_iter_fill(it.c, &it.items) })
	if !more {
		return 0, err
	}
	return int(it.items.count), nil
}

func (it *iterator) item(i int) (subscript Value, key string, value Value) {
	n := int(it.items.count)
	if !it.scan.descendants {
		subscript = valueOfScalar(&unsafe.Slice(it.items.subscript, n)[i])
	} else {
		data, size := unsafe.Slice(it.items.key, n)[i], unsafe.Slice(it.items.key_len, n)[i]
		key = string(unsafe.Slice((*byte)(unsafe.Pointer(data)), int(size)))
	}
	if it.scan.values {
		value = valueOfScalar(&unsafe.Slice(it.items.value, n)[i])
	}
	return subscript, key, value
}

func (it *iterator) appendText(to []byte) ([]byte, error) {
	for at := new(C.uint32_t); *at < it.items.count; {
		if cap(to) == len(to) {
			to = append(to, make([]byte, 64<<10)...)[:len(to)]
		}
		room := to[len(to):cap(to)]
		n := int(C.format(&it.items, at, (*C.char)(unsafe.Pointer(&room[0])), C.size_t(len(room))))
		if n == C.UNREADABLE {
			return to, &Error{Err: ErrCorrupt, message: "a node does not decode; list the faults of the store with perigee node check"}
		}
		if n < 0 {
			to = append(to, make([]byte, -n)...)[:len(to)]
			continue
		}
		to = to[:len(to)+n]
	}
	return to, nil
}

func (it *iterator) close() { C.ndb_iter_close(it.c) }

// milliseconds rounds up, so that a short duration does not become 0.
func milliseconds(d time.Duration) int64 {
	return int64((max(d, 0) + time.Millisecond - 1) / time.Millisecond)
}

func boolInt(b bool) C.int {
	if b {
		return 1
	}
	return 0
}
