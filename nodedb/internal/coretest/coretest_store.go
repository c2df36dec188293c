//go:build cgo && lmdb

package coretest

// coretest.go covers single functions, this file stores: each call of the core returns a code and
// its result as text, so that tests can compare it with a model.

/*
#include <stdlib.h>
#include <string.h>
#include "../../error.h"
#include "../../nodedb.h"

typedef struct {
  char *bytes;
  size_t len, cap;
} test_text;

static char *test_room(test_text *t, size_t n) {
  if (t->cap - t->len < n) {
    size_t cap = 2 * (t->cap + n);
    char *grown = realloc(t->bytes, cap);
    if (!grown) abort();
    t->bytes = grown;
    t->cap = cap;
  }
  return t->bytes + t->len;
}

static void test_put(test_text *t, const char *text) {
  size_t n = strlen(text);
  memcpy(test_room(t, n), text, n);
  t->len += n;
}

static void test_put_scalar(test_text *t, const ndb_scalar *s) {
  if (s->type == NDB_ABSENT) {
    test_put(t, "-");
    return;
  }
  size_t room = 12 * (size_t)s->len + 500;
  long n = ndb_zwrite_scalar(s, test_room(t, room), room);
  if (n >= 0) t->len += (size_t)n;
  else test_put(t, "?");
}

static void test_put_key(test_text *t, const char *key, size_t len) {
  size_t room = 12 * len + 500;
  long n = ndb_zwrite_key(key, len, test_room(t, room), room);
  if (n >= 0) t->len += (size_t)n;
  else test_put(t, "?");
}

// An iterator that seeks past its last item again after every change.
typedef struct {
  ndb_iter *iter;
  ndb_items items;
  uint32_t at;
} test_iter;

static int test_iter_step(test_iter *t, int flags, test_text *out) {
  if (t->at == t->items.count || !ndb_iter_valid(t->iter)) {
    if (t->at < t->items.count && t->at) {
      int code = ndb_iter_seek_after(t->iter, t->at - 1);
      if (code < 0) return code;
    } else if (t->at < t->items.count) {
      return NDB_E_CORRUPT; // the first item of a fill is given at once
    }
    int code = ndb_iter_fill(t->iter, &t->items);
    t->at = 0;
    if (code != NDB_OK) {
      t->items.count = 0;
      return code;
    }
  }
  uint32_t i = t->at++;
  if (flags & NDB_DESCENDANTS) test_put_key(out, t->items.key[i], t->items.key_len[i]);
  else test_put_scalar(out, &t->items.subscript[i]);
  if (flags & NDB_VALUES) {
    test_put(out, "=");
    test_put_scalar(out, &t->items.value[i]);
  }
  return NDB_OK;
}

enum { DO_GET, DO_SET, DO_SET_NEW, DO_CAS, DO_DATA, DO_INCREMENT, DO_KILL_VALUE, DO_KILL, DO_EXPIRE, DO_TTL, DO_NEXT, DO_PREVIOUS,
  DO_NEXT_NODE, DO_PREVIOUS_NODE, DO_WALK, DO_COUNT, DO_MERGE, DO_BEGIN, DO_COMMIT, DO_ROLLBACK, DO_RESTART, DO_MARK, DO_UNDO,
  DO_RESTORE_LOCAL, DO_EXPIRE_AT, DO_EXPIRE_TREE, DO_KILL_RANGE, DO_SET_ALL };

typedef struct { const char *bytes; size_t len; } test_key;

static int test_walk(ndb_session *s, test_key key, int flags, const ndb_scalar *from, const ndb_scalar *to, uint64_t limit, test_text *out) {
  test_iter t = {0};
  int code = ndb_iter_open(s, key.bytes, key.len, flags | NDB_KEYS, from, to, limit, &t.iter);
  while (code == NDB_OK) {
    if (out->len) test_put(out, " ");
    code = test_iter_step(&t, flags, out);
  }
  ndb_iter_close(t.iter);
  return code == NDB_NONE ? NDB_OK : code;
}

// key and other are nodes, a and b values or the bounds of a walk, n a number.
static int test_do(ndb_session *s, int what, test_key key, test_key other, const ndb_scalar *a, const ndb_scalar *b, uint64_t n, int flags, test_text *out) {
  ndb_scalar result = {0};
  const char *next;
  size_t next_len;
  int code = NDB_OK;
  char position[NDB_KEY_MAX];
  size_t position_len = 0;
  switch (what) {
  case DO_GET: code = ndb_get(s, key.bytes, key.len, &result); break;
  case DO_SET: return ndb_set(s, key.bytes, key.len, a);
  case DO_SET_NEW: return ndb_set_new(s, key.bytes, key.len, a);
  case DO_CAS: return ndb_compare_and_set(s, key.bytes, key.len, b, a);
  case DO_DATA: return ndb_data(s, key.bytes, key.len);
  case DO_INCREMENT: code = ndb_increment(s, key.bytes, key.len, a, &result); break;
  case DO_KILL_VALUE: return ndb_kill_value(s, key.bytes, key.len);
  case DO_KILL: return ndb_kill(s, key.bytes, key.len);
  case DO_EXPIRE: return ndb_expire(s, key.bytes, key.len, n);
  case DO_TTL: {
    uint64_t ttl = 0;
    return ndb_ttl(s, key.bytes, key.len, &ttl);
  }
  case DO_NEXT: case DO_PREVIOUS: code = ndb_next_sibling(s, key.bytes, key.len, what == DO_PREVIOUS, &result); break;
  case DO_NEXT_NODE: case DO_PREVIOUS_NODE:
    code = ndb_next_node(s, key.bytes, key.len, what == DO_PREVIOUS_NODE, &next, &next_len);
    if (code == NDB_OK) test_put_key(out, next, next_len);
    return code;
  case DO_WALK: return test_walk(s, key, flags, a, b, n, out);
  case DO_COUNT: {
    uint64_t count = 0;
    while ((code = ndb_count(s, key.bytes, key.len, n, position, &position_len, &count)) == NDB_MORE) {}
    if (code < 0) return code;
    result = (ndb_scalar){(double)count, NULL, 0, NDB_NUMBER};
    break;
  }
  case DO_MERGE:
    while ((code = ndb_merge(s, other.bytes, other.len, key.bytes, key.len, n, position, &position_len)) == NDB_MORE) {}
    return code;
  case DO_EXPIRE_AT: return ndb_expire_at(s, key.bytes, key.len, n);
  case DO_EXPIRE_TREE:
    while ((code = ndb_expire_tree(s, key.bytes, key.len, n, (uint64_t)flags, position, &position_len)) == NDB_MORE) {}
    return code;
  case DO_KILL_RANGE:
    while ((code = ndb_kill_range(s, key.bytes, key.len, a, b, n, position, &position_len)) == NDB_MORE) {}
    return code;
  case DO_SET_ALL: {
    ndb_pair pairs[] = {{key.bytes, key.len, *a}, {other.bytes, other.len, *b}};
    return ndb_set_all(s, pairs, 2);
  }
  case DO_BEGIN: return ndb_begin(s);
  case DO_COMMIT: return ndb_commit(s, NULL);
  case DO_ROLLBACK: return ndb_rollback(s);
  case DO_RESTART: return ndb_restart(s);
  case DO_MARK:
    result = (ndb_scalar){(double)ndb_mark(s), NULL, 0, NDB_NUMBER};
    if (result.number == 0) return NDB_E_LEVEL;
    break;
  case DO_UNDO: return ndb_undo(s, n);
  case DO_RESTORE_LOCAL: return key.len ? ndb_restore_local(s, key.bytes, key.len) : ndb_restore_local(s, "*", 1); // a name
  }
  if (code == NDB_OK) test_put_scalar(out, &result);
  return code;
}

static int test_report(void *user, const char *line) {
  test_put(user, line);
  test_put(user, "\n");
  return 0;
}

static int test_check(ndb_store *store, test_text *out) { return ndb_check(store, test_report, out); }
*/
import "C"

import (
	"fmt"
	"runtime"
	"unsafe"
)

// A coreStore and a coreSession are a store and a session of the core, without the Go API.
type coreStore struct{ store *C.ndb_store }
type coreSession struct{ session *C.ndb_session }

func (s coreSession) wait(number uint64) error {
	return coreResult(func() C.int { return C.ndb_wait(s.session, C.uint64_t(number)) })
}

type coreOptions struct {
	flushMs                  int
	transactionBytes         uint64
	pendingBytes             uint64
	noSync, verify, readOnly bool
}

func openCoreStore(folder string, options coreOptions) (coreStore, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	path := C.CString(folder)
	defer C.free(unsafe.Pointer(path))
	o := C.ndb_options{flush_ms: C.int(options.flushMs), transaction_bytes: C.uint64_t(options.transactionBytes), pending_bytes: C.uint64_t(options.pendingBytes)}
	if options.noSync {
		o.no_sync = 1
	}
	if options.verify {
		o.verify = 1
	}
	if options.readOnly {
		o.read_only = 1
	}
	var out *C.ndb_store
	if code := C.ndb_open(path, &o, &out); code != C.NDB_OK {
		return coreStore{}, coreFailure(int(code))
	}
	return coreStore{out}, nil
}

func coreResult(do func() C.int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if code := do(); code < 0 {
		return coreFailure(int(code))
	}
	return nil
}

func (s coreStore) close() error { return coreResult(func() C.int { return C.ndb_close(s.store) }) }
func (s coreStore) sync() error  { return coreResult(func() C.int { return C.ndb_sync(s.store) }) }

func (s coreStore) backup(folder string) error {
	path := C.CString(folder)
	defer C.free(unsafe.Pointer(path))
	return coreResult(func() C.int { return C.ndb_backup(s.store, path) })
}

// check returns the faults that ndb_check reports.
func (s coreStore) check() (faults string, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var report C.test_text
	code := C.test_check(s.store, &report)
	defer C.free(unsafe.Pointer(report.bytes))
	if code < 0 {
		return "", coreFailure(int(code))
	}
	return C.GoStringN(report.bytes, C.int(report.len)), nil
}

type coreStatistics struct{ nodes, pendingBytes, commits, expiring, readers, locks, processes uint64 }

func (s coreStore) statistics() (coreStatistics, error) {
	var out C.ndb_statistics
	err := coreResult(func() C.int { return C.ndb_stat(s.store, &out) })
	return coreStatistics{uint64(out.nodes), uint64(out.pending_bytes), uint64(out.commits), uint64(out.expiring), uint64(out.readers), uint64(out.locks), uint64(out.processes)}, err
}

// session opens a session; on a nil store, one for trees in memory only.
func (s coreStore) session() (coreSession, error) {
	var out *C.ndb_session
	err := coreResult(func() C.int { return C.ndb_session_open(s.store, &out) })
	return coreSession{out}, err
}

func (s coreSession) close()     { C.ndb_session_close(s.session) }
func (s coreSession) level() int { return int(C.ndb_level(s.session)) }

func (s coreSession) bytes() uint64 { return uint64(C.ndb_session_bytes(s.session)) }

// mergeSlice makes one call of a merge, and reports whether the merge is unfinished.
func (s coreSession) mergeSlice(to, from []byte, steps int) (more bool, err error) {
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(unsafe.SliceData(to))
	pin.Pin(unsafe.SliceData(from))
	position := (*C.char)(C.malloc(C.NDB_KEY_MAX))
	defer C.free(unsafe.Pointer(position))
	var position_len C.size_t
	toKey, toLen := bytesToC(to)
	fromKey, fromLen := bytesToC(from)
	err = coreResult(func() C.int {
		code := C.ndb_merge(s.session, toKey, toLen, fromKey, fromLen, C.uint64_t(steps), position, &position_len)
		more = code == C.NDB_MORE
		return code
	})
	return more, err
}

func (s coreSession) commitNumber() (number uint64, err error) {
	var out C.uint64_t
	err = coreResult(func() C.int { return C.ndb_commit(s.session, &out) })
	return uint64(out), err
}

func (s coreSession) lock(timeoutMs int64, key []byte) error {
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(unsafe.SliceData(key))
	list := (*C.ndb_key)(C.malloc(C.sizeof_ndb_key))
	defer C.free(unsafe.Pointer(list))
	list.key, list.len = bytesToC(key)
	return coreResult(func() C.int { return C.ndb_lock(s.session, list, 1, C.int64_t(timeoutMs)) })
}

func (s coreSession) unlockAll() { C.ndb_unlock_all(s.session) }

// A coreCall is the arguments of one call of the core.
type coreCall struct {
	what       int // doGet and so on
	key, other []byte
	a, b       *coreScalar
	n          uint64
	flags      int
}

const (
	doGet          = C.DO_GET
	doSet          = C.DO_SET
	doSetNew       = C.DO_SET_NEW
	doCAS          = C.DO_CAS
	doData         = C.DO_DATA
	doIncrement    = C.DO_INCREMENT
	doKillValue    = C.DO_KILL_VALUE
	doKill         = C.DO_KILL
	doExpire       = C.DO_EXPIRE
	doTTL          = C.DO_TTL
	doNext         = C.DO_NEXT
	doPrevious     = C.DO_PREVIOUS
	doNextNode     = C.DO_NEXT_NODE
	doPreviousNode = C.DO_PREVIOUS_NODE
	doWalk         = C.DO_WALK
	doCount        = C.DO_COUNT
	doMerge        = C.DO_MERGE
	doBegin        = C.DO_BEGIN
	doCommit       = C.DO_COMMIT
	doRollback     = C.DO_ROLLBACK
	doRestart      = C.DO_RESTART
	doMark         = C.DO_MARK
	doUndo         = C.DO_UNDO
	doRestoreLocal = C.DO_RESTORE_LOCAL
	doExpireAt     = C.DO_EXPIRE_AT
	doExpireTree   = C.DO_EXPIRE_TREE
	doKillRange    = C.DO_KILL_RANGE
	doSetAll       = C.DO_SET_ALL

	walkDescendants = C.NDB_DESCENDANTS
	walkSelf        = C.NDB_SELF
	walkReverse     = C.NDB_REVERSE
	walkValues      = C.NDB_VALUES
)

// do returns the result of the call: its text, or the code NDB_NONE or an error.
func (s coreSession) do(call coreCall) string {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var pin runtime.Pinner
	defer pin.Unpin()
	var out C.test_text
	toKey := func(key []byte) (k C.test_key) {
		if len(key) > 0 {
			pin.Pin(unsafe.SliceData(key))
			k.bytes, k.len = bytesToC(key)
		}
		return k
	}
	toScalar := func(s *coreScalar) *C.ndb_scalar {
		if s == nil {
			return nil
		}
		scalar := s.toC(&pin)
		pin.Pin(&scalar)
		return &scalar
	}
	code := C.test_do(s.session, C.int(call.what), toKey(call.key), toKey(call.other), toScalar(call.a), toScalar(call.b), C.uint64_t(call.n), C.int(call.flags), &out)
	text := C.GoStringN(out.bytes, C.int(out.len))
	C.free(unsafe.Pointer(out.bytes))
	switch {
	case code < 0 || code == C.NDB_NONE && call.what != doData:
		return C.GoString(C.ndb_code_name(code))
	case call.what == doData:
		return fmt.Sprint(int(code))
	}
	return text
}

// A coreIterator is an iterator that stays open while other calls change nodes.
type coreIterator struct {
	iter  *C.test_iter
	flags int
}

func (s coreSession) iterate(key []byte, flags int) (coreIterator, error) {
	it := coreIterator{(*C.test_iter)(C.calloc(1, C.sizeof_test_iter)), flags}
	bytes, n := bytesToC(key)
	err := coreResult(func() C.int {
		return C.ndb_iter_open(s.session, bytes, n, C.int(flags|C.NDB_KEYS), nil, nil, 0, &it.iter.iter)
	})
	return it, err
}

func (it coreIterator) next() string {
	var out C.test_text
	code := C.test_iter_step(it.iter, C.int(it.flags), &out)
	text := C.GoStringN(out.bytes, C.int(out.len))
	C.free(unsafe.Pointer(out.bytes))
	if code != C.NDB_OK {
		return C.GoString(C.ndb_code_name(code))
	}
	return text
}

func (it coreIterator) close() {
	C.ndb_iter_close(it.iter.iter)
	C.free(unsafe.Pointer(it.iter))
}

func coreSubscriptLen(key []byte, at int) int {
	bytes, n := bytesToC(key)
	return int(C.ndb_key_subscript_len(bytes, n, C.size_t(at)))
}
