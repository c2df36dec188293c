//go:build cgo && luajit && lmdb

// The node database as an extension of the engine's LuaJIT: one session per engine. The session's
// memory counts towards the VM's limit. nodedb/ffi.lua calls the functions through FFI. They return
// codes and never raise Lua errors. Long operations run in slices, and stop when the run has to
// end.

#include "extension.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	CODES_MAX = 64,
	ERROR_MAX = 512 // bytes
};

#define ONE(...) +1
enum {
	FUNCTIONS = 0 NDB_SESSION_FUNCTIONS(ONE) NDB_OTHER_FUNCTIONS(ONE)
};

typedef struct {
	plua_extension x; // first, since Lua and the engine have its address
	const ndb_functions *functions;
	ndb_store *store;
	ndb_session *session; // NULL until the first use
	uint64_t charged;     // session bytes counted towards the VM's memory
	int64_t waited_ms;    // time that the current event has waited for locks
	plua_extension_function addresses[FUNCTIONS + 1];
	const char *codes[CODES_MAX + 1];
	char error[ERROR_MAX];
} nodes;

static void charge(nodes *n) {
	if (!n->session) return;
	uint64_t bytes = n->functions->session_bytes(n->session);
	if (bytes == n->charged) return;
	n->x.host.charge(n->x.host.vm, (int64_t)(bytes - n->charged));
	n->charged = bytes;
}

// Lua passes a nodes pointer in place of the session.
#define RUN(result, name, parameters, arguments) \
	static result run_##name parameters { \
		nodes *n = (nodes *)s; \
		s = n->session; \
		result r = n->functions->name arguments; \
		charge(n); \
		return r; \
	}
NDB_SESSION_FUNCTIONS(RUN)

static int begin(ndb_session *s) {
	*((nodes *)s)->x.host.unfinished = 1;
	return run_begin(s);
}

static int begin_view(ndb_session *s) {
	*((nodes *)s)->x.host.unfinished = 1;
	return run_begin_view(s);
}

enum {
	LOCK_SLICE_MS = 10,
	SLICE_STEPS = 10000 // nodes
};

// lock waits in slices, and counts the wait towards the event's time limit. If that is exceeded,
// Lua raises the error after lock has returned.
static int lock(ndb_session *s, const ndb_key *keys, size_t count, int64_t timeout_ms) {
	nodes *n = (nodes *)s;
	*n->x.host.unfinished = 1;
	for (;;) {
		int64_t slice = timeout_ms < 0 || timeout_ms > LOCK_SLICE_MS ? LOCK_SLICE_MS : timeout_ms;
		int code = run_lock(s, keys, count, slice);
		if (code != NDB_E_TIMEOUT || *n->x.host.stop) return code;
		if ((n->waited_ms += slice) > n->x.host.event_ms) {
			n->x.host.stop_event(n->x.host.vm);
			return code;
		}
		if (timeout_ms >= 0 && (timeout_ms -= slice) <= 0) return code;
	}
}

// IN_SLICES runs a call that would change many nodes at once in slices, inside a transaction.
#define IN_SLICES(call) \
	do { \
		nodes *n = (nodes *)s; \
		int code = begin(s); \
		if (code < 0) return code; \
		do { \
			*position_len = 0; \
			do { \
				code = call; \
			} while (code == NDB_MORE && !*n->x.host.stop); \
			if (code == NDB_OK) code = run_commit(s, NULL); \
		} while (code == NDB_E_CONFLICT && !*n->x.host.stop); \
		if (code != NDB_OK) n->functions->rollback(n->session); \
		charge(n); \
		return code == NDB_MORE ? NDB_E_CONFLICT \
		                        : code; /* Lua raises the error for an exceeded limit */ \
	} while (0)

static int merge(ndb_session *s, const char *to, size_t to_len, const char *from, size_t from_len,
    uint64_t steps, char *position, size_t *position_len) {
	if (steps) return run_merge(s, to, to_len, from, from_len, steps, position, position_len);
	IN_SLICES(run_merge(s, to, to_len, from, from_len, SLICE_STEPS, position, position_len));
}

static int kill_range(ndb_session *s, const char *key, size_t len, const ndb_scalar *from,
    const ndb_scalar *to, uint64_t steps, char *position, size_t *position_len) {
	if (steps) return run_kill_range(s, key, len, from, to, steps, position, position_len);
	IN_SLICES(run_kill_range(s, key, len, from, to, SLICE_STEPS, position, position_len));
}

static int expire_tree(ndb_session *s, const char *key, size_t len, uint64_t at_ms, uint64_t steps,
    char *position, size_t *position_len) {
	if (steps) return run_expire_tree(s, key, len, at_ms, steps, position, position_len);
	IN_SLICES(run_expire_tree(s, key, len, at_ms, SLICE_STEPS, position, position_len));
}

static void unlock_all(nodes *n) { n->functions->unlock_all(n->session); }

static void recharge(plua_extension *x) { charge((nodes *)x); }

// finish rolls back open transactions and releases all locks.
static void finish(plua_extension *x) {
	nodes *n = (nodes *)x;
	n->waited_ms = 0;
	if (!n->session) return;
	while (n->functions->level(n->session) > 0 && n->functions->rollback(n->session) >= 0) continue;
	unlock_all(n);
	charge(n);
}

// idle releases the session's snapshot, so that the store can reuse its pages.
static void idle(plua_extension *x) {
	nodes *n = (nodes *)x;
	if (n->session) n->functions->idle(n->session);
}

static void close_session(plua_extension *x) {
	nodes *n = (nodes *)x;
	if (n->session) n->functions->session_close(n->session);
	free(n);
}

// Changes that the store has yet to write do not count towards the VM's memory. A script waits
// while they exceed a quarter of the VM's limit.
static uint64_t pending_bytes(const nodes *n) {
	enum {
		LEAST = 1 << 20
	};
	return n->x.host.memory / 4 > LEAST ? n->x.host.memory / 4 : LEAST;
}

static const char *open_session(plua_extension *x) {
	nodes *n = (nodes *)x;
	if (!n->session && n->functions->session_open(n->store, &n->session) < 0) {
		snprintf(n->error, sizeof n->error, "nodedb: %s", n->functions->message());
		return n->error;
	}
	n->functions->session_limits(n->session, pending_bytes(n), x->host.stop);
	charge(n);
	return NULL;
}

// add sets the address of a function by name; it replaces an earlier one of the same name.
static void add(nodes *n, const char *name, void *address) {
	plua_extension_function *f = n->addresses;
	while (f->name && strcmp(f->name, name) != 0) f++;
	*f = (plua_extension_function){name, address};
}

static void add_functions(nodes *n) {
#define ADD_RUN(result, name, parameters, arguments) add(n, "ndb_" #name, (void *)run_##name);
#define ADD_OTHER(result, name, parameters) add(n, "ndb_" #name, (void *)n->functions->name);
	NDB_SESSION_FUNCTIONS(ADD_RUN)
	NDB_OTHER_FUNCTIONS(ADD_OTHER)
	add(n, "ndb_begin", (void *)begin);
	add(n, "ndb_begin_view", (void *)begin_view);
	add(n, "ndb_kill_range", (void *)kill_range);
	add(n, "ndb_expire_tree", (void *)expire_tree);
	add(n, "ndb_lock", (void *)lock);
	add(n, "ndb_merge", (void *)merge);
	add(n, "ndb_unlock_all", (void *)unlock_all);
}

plua_extension *ndb_extension_new(const ndb_functions *functions, ndb_store *store) {
	nodes *n = calloc(1, sizeof *n);
	if (!n) return NULL;
	n->functions = functions;
	n->store = store;
	add_functions(n);
	for (int i = 0; i < CODES_MAX && strncmp(functions->code_name(-1 - i), "NDB_E_", 6) == 0; i++)
		n->codes[i] = functions->code_name(-1 - i);
	n->x = (plua_extension){.marker = "nodedb.node",
	    .functions = n->addresses,
	    .codes = n->codes,
	    .open = open_session,
	    .charge = recharge,
	    .finish = finish,
	    .idle = idle,
	    .close = close_session};
	return &n->x;
}
