/* functions.h: the functions of nodedb.h as a table, for code that is not linked to them: C code in
 * another Go package, and the FFI of a Lua without a library to load.
 *
 * X(result, name, parameters, arguments) is applied to each function whose first parameter is a
 * session and that is called inside one, Y(result, name, parameters) to each other function. */
#ifndef NODEDB_FUNCTIONS_H
#define NODEDB_FUNCTIONS_H

#include "nodedb.h"

#define NDB_SESSION_FUNCTIONS(X) \
	X(int, begin, (ndb_session * s), (s)) \
	X(int, begin_view, (ndb_session * s), (s)) \
	X(int, commit, (ndb_session * s, uint64_t * number), (s, number)) \
	X(int, rollback, (ndb_session * s), (s)) \
	X(int, restart, (ndb_session * s), (s)) \
	X(int, level, (ndb_session * s), (s)) \
	X(int, restore_local, (ndb_session * s, const char *name, size_t len), (s, name, len)) \
	X(int, get, (ndb_session * s, const char *key, size_t len, ndb_scalar *out), \
	    (s, key, len, out)) \
	X(int, set, (ndb_session * s, const char *key, size_t len, const ndb_scalar *value), \
	    (s, key, len, value)) \
	X(int, set_child, \
	    (ndb_session * s, const char *key, size_t len, const ndb_scalar *subscript, \
	        const ndb_scalar *value), \
	    (s, key, len, subscript, value)) \
	X(int, set_new, (ndb_session * s, const char *key, size_t len, const ndb_scalar *value), \
	    (s, key, len, value)) \
	X(int, compare_and_set, \
	    (ndb_session * s, const char *key, size_t len, const ndb_scalar *expected, \
	        const ndb_scalar *value), \
	    (s, key, len, expected, value)) \
	X(int, data, (ndb_session * s, const char *key, size_t len), (s, key, len)) \
	X(int, increment, \
	    (ndb_session * s, const char *key, size_t len, const ndb_scalar *by, ndb_scalar *out), \
	    (s, key, len, by, out)) \
	X(int, kill_value, (ndb_session * s, const char *key, size_t len), (s, key, len)) \
	X(int, kill, (ndb_session * s, const char *key, size_t len), (s, key, len)) \
	X(int, expire, (ndb_session * s, const char *key, size_t len, uint64_t ttl_ms), \
	    (s, key, len, ttl_ms)) \
	X(int, expire_at, (ndb_session * s, const char *key, size_t len, uint64_t at_ms), \
	    (s, key, len, at_ms)) \
	X(uint64_t, clock, (ndb_session * s), (s)) \
	X(int, kill_local, (ndb_session * s), (s)) \
	X(int, set_all, (ndb_session * s, const ndb_pair *pairs, size_t count), (s, pairs, count)) \
	X(int, ttl, (ndb_session * s, const char *key, size_t len, uint64_t *ttl_ms), \
	    (s, key, len, ttl_ms)) \
	X(int, iter_open, \
	    (ndb_session * s, const char *key, size_t len, int flags, const ndb_scalar *from, \
	        const ndb_scalar *to, uint64_t limit, ndb_iter **out), \
	    (s, key, len, flags, from, to, limit, out)) \
	X(int, next_sibling, \
	    (ndb_session * s, const char *key, size_t len, int reverse, ndb_scalar *out), \
	    (s, key, len, reverse, out)) \
	X(int, next_node, \
	    (ndb_session * s, const char *key, size_t len, int reverse, const char **next, \
	        size_t *next_len), \
	    (s, key, len, reverse, next, next_len)) \
	X(int, count, \
	    (ndb_session * s, const char *key, size_t len, uint64_t steps, char *position, \
	        size_t *position_len, uint64_t *count), \
	    (s, key, len, steps, position, position_len, count)) \
	X(int, merge, \
	    (ndb_session * s, const char *to, size_t to_len, const char *from, size_t from_len, \
	        uint64_t steps, char *position, size_t *position_len), \
	    (s, to, to_len, from, from_len, steps, position, position_len)) \
	X(int, kill_range, \
	    (ndb_session * s, const char *key, size_t len, const ndb_scalar *from, \
	        const ndb_scalar *to, uint64_t steps, char *position, size_t *position_len), \
	    (s, key, len, from, to, steps, position, position_len)) \
	X(int, expire_tree, \
	    (ndb_session * s, const char *key, size_t len, uint64_t at_ms, uint64_t steps, \
	        char *position, size_t *position_len), \
	    (s, key, len, at_ms, steps, position, position_len)) \
	X(int, lock, (ndb_session * s, const ndb_key *keys, size_t count, int64_t timeout_ms), \
	    (s, keys, count, timeout_ms)) \
	X(int, unlock, (ndb_session * s, const char *key, size_t len), (s, key, len))

#define NDB_OTHER_FUNCTIONS(Y) \
	Y(const char *, message, (void)) \
	Y(const char *, code_name, (int code)) \
	Y(int, key_name, (char *key, size_t cap, const char *name, size_t len)) \
	Y(int, key_append, (char *key, size_t len, size_t cap, const ndb_scalar *subscript)) \
	Y(int, key_decode, (const char *key, size_t len, size_t *at, ndb_scalar *out, char *text)) \
	Y(int, key_depth, (const char *key, size_t len)) \
	Y(int, key_parent, (const char *key, size_t len)) \
	Y(long, zwrite_key, (const char *key, size_t len, char *out, size_t cap)) \
	Y(long, zwrite_scalar, (const ndb_scalar *value, char *out, size_t cap)) \
	Y(int, zwrite_parse_key, (const char *text, size_t len, size_t *at, char *key)) \
	Y(int, zwrite_parse_scalar, \
	    (const char *text, size_t len, size_t *at, ndb_scalar *out, char *bytes)) \
	Y(int, session_open, (ndb_store * store, ndb_session * *out)) \
	Y(void, session_close, (ndb_session * s)) \
	Y(int, begin_committed, (ndb_session * s)) \
	Y(void, session_limits, \
	    (ndb_session * s, uint64_t pending_bytes, const volatile uint32_t *stop)) \
	Y(uint64_t, session_bytes, (const ndb_session *s)) \
	Y(uint64_t, change_bytes, (const ndb_session *s)) \
	Y(void, unlock_all, (ndb_session * s)) \
	Y(void, idle, (ndb_session * s)) \
	Y(int, iter_fill, (ndb_iter * it, ndb_items * out)) \
	Y(int, iter_valid, (const ndb_iter *it)) \
	Y(int, iter_seek_after, (ndb_iter * it, uint32_t index)) \
	Y(void, iter_close, (ndb_iter * it))

#define NDB_SESSION_MEMBER(result, name, parameters, arguments) result(*name) parameters;
#define NDB_OTHER_MEMBER(result, name, parameters) result(*name) parameters;
typedef struct {
	NDB_SESSION_FUNCTIONS(NDB_SESSION_MEMBER)
	NDB_OTHER_FUNCTIONS(NDB_OTHER_MEMBER)
} ndb_functions;

#endif
