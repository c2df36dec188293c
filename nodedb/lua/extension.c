//go:build cgo && luajit && lmdb

// The node database as an extension of the engine's LuaJIT. nodedb/ffi.lua calls the functions
// through FFI. They return codes and never raise Lua errors. Long operations run in slices, and
// stop when the run has to end.
//
// With a store, an engine has one session, whose memory counts towards the VM's limit. Without a
// store, the session is the caller's, which attaches it for one run: a session in a transaction, at
// the base level. An event that uses it works in a transaction nested in the base level, its floor.
// At the event's end that is committed to the base level, or rolled back, and nothing of the event
// stays in the session but its changes. Their memory counts towards the session's own limit.
//
// Beside it, an engine reads the states of other pipelines: a run attaches a session with a snapshot
// of each. An event that begins long after the snapshot was taken renews it, so that it does not keep
// the space of deleted nodes for longer.

#include "extension.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
	CODES_MAX = 64,
	ERROR_MAX = 512 // bytes
};

#define ONE(...) +1
enum {
	FUNCTIONS = 0 NDB_SESSION_FUNCTIONS(ONE) NDB_OTHER_FUNCTIONS(ONE)
};

typedef struct nodes {
	plua_extension x; // first, since Lua and the engine have its address
	const ndb_functions *functions;
	ndb_store *store;
	ndb_session *session;  // NULL until the first use, or until one is attached
	int attaches;          // sessions are the caller's
	int ready;             // the functions can use the session; if it is attached: the event does
	int floor;             // level of the session at which scripts have no transaction open
	int broken;            // the changes of an event could not be kept
	int reads;             // the session is a snapshot of another pipeline's state
	int64_t began_ms;      // when the snapshot was taken
	int64_t renew_ms;      // its age at which an event renews it
	char *name;            // of the other state
	struct nodes *readers; // for the states of other pipelines, in the order of the sessions
	size_t reader_count;
	struct iteration *open,
	    *ended;        // iterations in an attached session, and those of earlier events
	uint64_t charged;  // session bytes counted towards the VM's memory
	int64_t waited_ms; // time that the current event has waited for locks
	plua_extension_function addresses[FUNCTIONS + 2]; // with ndb_reader and the end
	const char *codes[CODES_MAX + 1];
	char error[ERROR_MAX];
} nodes;

// An iteration in an attached session. Lua may keep it for longer than the event.
typedef struct iteration {
	ndb_iter *iter; // NULL: its event has ended
	struct iteration *next, **link;
} iteration;

static void charge_bytes(nodes *n, uint64_t bytes) {
	if (bytes == n->charged) return;
	n->x.host.charge(n->x.host.vm, (int64_t)(bytes - n->charged));
	n->charged = bytes;
}

static void charge(nodes *n) {
	if (!n->session) return;
	uint64_t bytes = n->functions->session_bytes(n->session);
	if (n->attaches) bytes -= n->functions->change_bytes(n->session);
	charge_bytes(n, bytes);
}

// The error of a call that was refused here, for the next call of `message`.
static _Thread_local const char *refusal;
static const ndb_functions *core; // the same for all

static int refuse(int code, const char *why) {
	refusal = why;
	return code;
}

static const char *message(void) {
	const char *text = refusal;
	refusal = NULL;
	return text ? text : core->message();
}

static int64_t now_ms(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

// renew replaces a snapshot that is too old.
static int renew(nodes *n) {
	int64_t now = now_ms();
	if (now - n->began_ms < n->renew_ms) return NDB_OK;
	while (n->functions->level(n->session) > 0 && n->functions->rollback(n->session) >= 0) continue;
	int code = n->functions->begin_committed(n->session);
	if (code >= 0) n->began_ms = now;
	return code;
}

// enter_reader begins an event's use of the state of another pipeline.
static int enter_reader(nodes *n) {
	if (!n->session)
		refusal = "the states of other pipelines are there only inside main and timer: use them in "
		          "these functions, not while the script loads";
	else if (renew(n) >= 0) *n->x.host.unfinished = n->ready = 1;
	return n->ready;
}

// enter begins an event's use of an attached session. It returns 0 if that is not possible.
static __attribute__((noinline, cold)) int enter(nodes *n) {
	refusal = NULL;
	if (n->reads) return enter_reader(n);
	if (!n->session)
		refusal = "the state is there only inside main and timer: use it in these functions, not "
		          "while the script loads";
	else if (n->broken) refusal = "the changes of an earlier event could not be kept";
	else if (n->functions->begin(n->session) == NDB_OK) *n->x.host.unfinished = n->ready = 1;
	return n->ready;
}

// Lua passes a nodes pointer in place of the session.
#define RUN(result, name, parameters, arguments) \
	static result run_##name parameters { \
		nodes *n = (nodes *)s; \
		if (__builtin_expect(!n->ready, 0) && !enter(n)) return (result)NDB_E_LEVEL; \
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

// level is the number of transactions that the script has open.
static int level(ndb_session *s) {
	nodes *n = (nodes *)s;
	return n->ready ? n->functions->level(n->session) - n->floor : 0;
}

static int no_transaction(void) { return refuse(NDB_E_LEVEL, "no transaction is open"); }

static int commit(ndb_session *s, uint64_t *number) {
	return level(s) > 0 ? run_commit(s, number) : no_transaction();
}

static int rollback(ndb_session *s) { return level(s) > 0 ? run_rollback(s) : no_transaction(); }

// roll_back_to rolls back the transactions above a level.
static void roll_back_to(nodes *n, int to) {
	while (n->functions->level(n->session) > to && n->functions->rollback(n->session) >= 0)
		continue;
}

static int restart(ndb_session *s) {
	nodes *n = (nodes *)s;
	if (!n->attaches) return run_restart(s);
	if (level(s) == 0) return no_transaction();
	roll_back_to(n, n->floor);
	return begin(s);
}

static int restore_local(ndb_session *s, const char *name, size_t len) {
	return level(s) > 0 ? run_restore_local(s, name, len) : no_transaction();
}

enum {
	LOCK_SLICE_MS = 10,
	SLICE_STEPS = 10000 // nodes
};

static int no_locks(void) {
	return refuse(NDB_E_ARGUMENT,
	    "one script at a time uses the state, so it needs no locks: leave them out");
}

static int unlock(ndb_session *s, const char *key, size_t len) {
	return ((nodes *)s)->attaches ? no_locks() : run_unlock(s, key, len);
}

// lock waits in slices, and counts the wait towards the event's time limit. If that is exceeded,
// Lua raises the error after lock has returned.
static int lock(ndb_session *s, const ndb_key *keys, size_t count, int64_t timeout_ms) {
	nodes *n = (nodes *)s;
	if (n->attaches) return no_locks();
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

static void unlock_all(nodes *n) {
	if (n->session && !n->attaches) n->functions->unlock_all(n->session);
}

// Iterations in an attached session

static void link_iteration(iteration **list, iteration *it) {
	it->next = *list, it->link = list;
	if (it->next) it->next->link = &it->next;
	*list = it;
}

static void unlink_iteration(iteration *it) {
	*it->link = it->next;
	if (it->next) it->next->link = it->link;
}

static int iter_open(ndb_session *s, const char *key, size_t len, int flags, const ndb_scalar *from,
    const ndb_scalar *to, uint64_t limit, ndb_iter **out) {
	nodes *n = (nodes *)s;
	iteration *it = malloc(sizeof *it);
	if (!it) return refuse(NDB_E_MEMORY, "out of memory");
	int code = run_iter_open(s, key, len, flags, from, to, limit, &it->iter);
	if (code < 0) {
		free(it);
		return code;
	}
	link_iteration(&n->open, it);
	*out = (ndb_iter *)it;
	return code;
}

static int event_ended(void) {
	return refuse(NDB_E_LEVEL, "the event of this iteration has ended: iterate within one event");
}

// Lua passes an iteration pointer in place of the iterator.
static int iter_fill(ndb_iter *i, ndb_items *out) {
	ndb_iter *iter = ((iteration *)i)->iter;
	return iter ? core->iter_fill(iter, out) : event_ended();
}

static int iter_valid(const ndb_iter *i) {
	ndb_iter *iter = ((const iteration *)i)->iter;
	return iter && core->iter_valid(iter);
}

static int iter_seek_after(ndb_iter *i, uint32_t index) {
	ndb_iter *iter = ((iteration *)i)->iter;
	return iter ? core->iter_seek_after(iter, index) : event_ended();
}

static void iter_close(ndb_iter *i) {
	iteration *it = (iteration *)i;
	if (it->iter) core->iter_close(it->iter);
	unlink_iteration(it);
	free(it);
}

static void end_iterations(nodes *n) {
	for (iteration *it; (it = n->open);) {
		core->iter_close(it->iter);
		it->iter = NULL;
		unlink_iteration(it);
		link_iteration(&n->ended, it);
	}
}

// The end of events and runs

static void recharge(plua_extension *x) {
	nodes *n = (nodes *)x;
	charge(n);
	for (size_t i = 0; i < n->reader_count; i++) charge(&n->readers[i]);
}

// finish_reader ends the event's use of the state of another pipeline.
static void finish_reader(nodes *n) {
	if (!n->ready) return;
	n->ready = 0;
	end_iterations(n);
	roll_back_to(n, n->floor);
	n->functions->kill_local(n->session);
	charge(n);
}

// finish_attached ends the event's transaction.
static void finish_attached(nodes *n, int keep) {
	if (!n->ready) return;
	n->ready = 0;
	end_iterations(n);
	roll_back_to(n, keep ? n->floor : n->floor - 1);
	n->functions->kill_local(n->session);
	if (keep && n->functions->commit(n->session, NULL) < 0) n->broken = 1; // above the base level
}

// finish rolls back open transactions and releases all locks.
static void finish(plua_extension *x, int keep) {
	nodes *n = (nodes *)x;
	n->waited_ms = 0;
	for (size_t i = 0; i < n->reader_count; i++) finish_reader(&n->readers[i]);
	if (!n->session) return;
	if (n->attaches) finish_attached(n, keep);
	else roll_back_to(n, 0);
	unlock_all(n);
	charge(n);
}

// detach ends the use of an attached session.
static void detach(nodes *n) {
	if (!n->session) return;
	n->functions->session_limits(n->session, 0, NULL);
	n->session = NULL;
	charge_bytes(n, 0);
}

// idle ends the use of attached sessions. Otherwise it releases the session's snapshot, so that
// the store can reuse its pages.
static void idle(plua_extension *x) {
	nodes *n = (nodes *)x;
	for (size_t i = 0; i < n->reader_count; i++) detach(&n->readers[i]);
	if (n->attaches) detach(n);
	else if (n->session) n->functions->idle(n->session);
}

static void free_iterations(iteration *list) {
	for (iteration *next; list; list = next) {
		next = list->next;
		free(list);
	}
}

static void close_session(plua_extension *x) {
	nodes *n = (nodes *)x;
	if (n->session && !n->attaches) n->functions->session_close(n->session);
	for (size_t i = 0; i < n->reader_count; i++) {
		free_iterations(n->readers[i].open);
		free_iterations(n->readers[i].ended);
		free(n->readers[i].name);
	}
	free(n->readers);
	free_iterations(n->open);
	free_iterations(n->ended);
	free(n);
}

static void attach_reader(nodes *n, const plua_extension_host *host, void *session) {
	n->x.host = *host;
	n->session = session;
	if (!session) return;
	n->began_ms = now_ms();
	n->floor = 1;
	n->functions->session_limits(n->session, 0, host->stop);
}

static void attach(plua_extension *x, void *session, void *const *others, size_t count) {
	nodes *n = (nodes *)x;
	for (size_t i = 0; i < n->reader_count; i++)
		attach_reader(&n->readers[i], &x->host, i < count ? others[i] : NULL);
	n->session = session;
	n->broken = 0;
	if (!session) return;
	n->floor = n->functions->level(n->session) + 1;
	n->functions->session_limits(n->session, 0, x->host.stop);
}

// reader returns what the functions take in place of a session to read the state of another
// pipeline; NULL if the script reads none of this name.
static void *reader(void *x, const char *name) {
	nodes *n = x;
	for (size_t i = 0; i < n->reader_count; i++)
		if (strcmp(n->readers[i].name, name) == 0) return &n->readers[i];
	return NULL;
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
	if (n->attaches) return NULL; // the functions tell whether a session is attached
	if (!n->session && n->functions->session_open(n->store, &n->session) < 0) {
		snprintf(n->error, sizeof n->error, "nodedb: %s", n->functions->message());
		return n->error;
	}
	n->functions->session_limits(n->session, pending_bytes(n), x->host.stop);
	n->ready = 1;
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
	add(n, "ndb_message", (void *)message);
	add(n, "ndb_begin", (void *)begin);
	add(n, "ndb_begin_view", (void *)begin_view);
	add(n, "ndb_level", (void *)level);
	add(n, "ndb_commit", (void *)commit);
	add(n, "ndb_rollback", (void *)rollback);
	add(n, "ndb_restart", (void *)restart);
	add(n, "ndb_restore_local", (void *)restore_local);
	add(n, "ndb_kill_range", (void *)kill_range);
	add(n, "ndb_expire_tree", (void *)expire_tree);
	add(n, "ndb_lock", (void *)lock);
	add(n, "ndb_unlock", (void *)unlock);
	add(n, "ndb_merge", (void *)merge);
	add(n, "ndb_unlock_all", (void *)unlock_all);
	if (!n->attaches) return;
	add(n, "ndb_reader", (void *)reader);
	add(n, "ndb_iter_open", (void *)iter_open);
	add(n, "ndb_iter_fill", (void *)iter_fill);
	add(n, "ndb_iter_valid", (void *)iter_valid);
	add(n, "ndb_iter_seek_after", (void *)iter_seek_after);
	add(n, "ndb_iter_close", (void *)iter_close);
}

plua_extension *ndb_extension_new(const ndb_functions *functions, ndb_store *store) {
	nodes *n = calloc(1, sizeof *n);
	if (!n) return NULL;
	__atomic_store_n(&core, functions, __ATOMIC_RELAXED);
	n->functions = functions;
	n->store = store;
	n->attaches = !store;
	add_functions(n);
	for (int i = 0; i < CODES_MAX && strncmp(functions->code_name(-1 - i), "NDB_E_", 6) == 0; i++)
		n->codes[i] = functions->code_name(-1 - i);
	n->x = (plua_extension){.marker = "nodedb.node",
	    .functions = n->addresses,
	    .codes = n->codes,
	    .open = open_session,
	    .attach = n->attaches ? attach : NULL,
	    .charge = recharge,
	    .finish = finish,
	    .idle = idle,
	    .close = close_session};
	return &n->x;
}

void ndb_extension_free(plua_extension *x) { close_session(x); }

int ndb_extension_read(plua_extension *x, const char *name, int64_t renew_ms) {
	nodes *n = (nodes *)x;
	nodes *readers = realloc(n->readers, (n->reader_count + 1) * sizeof *readers);
	if (!readers) return 0;
	n->readers = readers;
	nodes *r = &readers[n->reader_count];
	*r = (nodes){.functions = n->functions, .attaches = 1, .reads = 1, .renew_ms = renew_ms};
	if (!(r->name = strdup(name))) return 0;
	n->reader_count++;
	return 1;
}
