// The functions of the node database, as nodedb/lua/nodedb/ffi.lua calls them through FFI. They
// return codes and never raise. What may take long is done in slices, and ends with the run.

#include "nodes.h"

#include <string.h>
#include <time.h>

#include "engine.h"

void plua_nodes_charge(plua_nodes *n) {
	if (!n->session) return;
	uint64_t bytes = n->functions->session_bytes(n->session);
	if (bytes == n->charged) return;
	plua_vm_charge(n->vm, (int64_t)(bytes - n->charged));
	n->charged = bytes;
}

// Lua has a plua_nodes where the core has a session.
#define RUN(result, name, parameters, arguments) \
	static result run_##name parameters { \
		plua_nodes *n = (plua_nodes *)s; \
		s = n->session; \
		result r = n->functions->name arguments; \
		plua_nodes_charge(n); \
		return r; \
	}
NDB_SESSION_FUNCTIONS(RUN)

static int begin(ndb_session *s) {
	((plua_nodes *)s)->unfinished = 1;
	return run_begin(s);
}

static int begin_view(ndb_session *s) {
	((plua_nodes *)s)->unfinished = 1;
	return run_begin_view(s);
}

enum { LOCK_SLICE_MS = 10, SLICE_STEPS = 10000 };

// lock waits in slices, and counts the wait as time of the event. Lua raises a limit when this has
// returned.
static int lock(ndb_session *s, const ndb_key *keys, size_t count, int64_t timeout_ms) {
	plua_nodes *n = (plua_nodes *)s;
	n->unfinished = 1;
	for (;;) {
		int64_t slice = timeout_ms < 0 || timeout_ms > LOCK_SLICE_MS ? LOCK_SLICE_MS : timeout_ms;
		int code = run_lock(s, keys, count, slice);
		if (code != NDB_E_TIMEOUT || n->vm->run.stop) return code;
		if ((n->waited_ms += slice) > n->event_ms) {
			n->vm->run.stop_event = n->vm->run.event;
			plua_vm_stop(n->vm, PLUA_EVENT_TIME);
			return code;
		}
		if (timeout_ms >= 0 && (timeout_ms -= slice) <= 0) return code;
	}
}

// IN_SLICES runs a call that changes many nodes, without steps, as a transaction of its own, in slices.
#define IN_SLICES(call) do { \
	plua_nodes *n = (plua_nodes *)s; \
	int code = begin(s); \
	if (code < 0) return code; \
	do { \
		*position_len = 0; \
		do { \
			code = call; \
		} while (code == NDB_MORE && !n->vm->run.stop); \
		if (code == NDB_OK) code = run_commit(s, NULL); \
	} while (code == NDB_E_CONFLICT && !n->vm->run.stop); \
	if (code != NDB_OK) n->functions->rollback(n->session); \
	plua_nodes_charge(n); \
	return code == NDB_MORE ? NDB_E_CONFLICT : code; /* Lua raises the limit that has ended it */ \
} while (0)

static int merge(ndb_session *s, const char *to, size_t to_len, const char *from, size_t from_len,
                 uint64_t steps, char *position, size_t *position_len) {
	if (steps) return run_merge(s, to, to_len, from, from_len, steps, position, position_len);
	IN_SLICES(run_merge(s, to, to_len, from, from_len, SLICE_STEPS, position, position_len));
}

static int kill_range(ndb_session *s, const char *key, size_t len, const ndb_scalar *from, const ndb_scalar *to,
                      uint64_t steps, char *position, size_t *position_len) {
	if (steps) return run_kill_range(s, key, len, from, to, steps, position, position_len);
	IN_SLICES(run_kill_range(s, key, len, from, to, SLICE_STEPS, position, position_len));
}

static int expire_tree(ndb_session *s, const char *key, size_t len, uint64_t at_ms, uint64_t steps, char *position,
                       size_t *position_len) {
	if (steps) return run_expire_tree(s, key, len, at_ms, steps, position, position_len);
	IN_SLICES(run_expire_tree(s, key, len, at_ms, SLICE_STEPS, position, position_len));
}

static void unlock_all(plua_nodes *n) { n->functions->unlock_all(n->session); }

void plua_nodes_finish(plua_nodes *n) {
	n->unfinished = 0;
	n->waited_ms = 0;
	if (!n->session) return;
	while (n->functions->level(n->session) > 0 && n->functions->rollback(n->session) >= 0) continue;
	unlock_all(n);
	plua_nodes_charge(n);
}

void plua_nodes_idle(plua_nodes *n) {
	if (n->session) n->functions->idle(n->session);
}

void plua_nodes_close(plua_nodes *n) {
	if (n->session) n->functions->session_close(n->session);
	n->session = NULL;
}

// What the script has changed and the store has yet to write is no memory of the VM: the script
// waits while it is more than a quarter of the VM's limit.
static uint64_t pending_bytes(const plua_vm *vm) {
	enum { LEAST = 1 << 20 };
	return vm->limit / 4 > LEAST ? vm->limit / 4 : LEAST;
}

// session() opens the session. It returns what the functions take for one.
static int session(lua_State *L) {
	plua_nodes *n = &plua_engine_of(L)->nodes;
	if (!n->session && n->functions->session_open(n->store, &n->session) < 0)
		return plua_raise(L, "nodedb: %s", n->functions->message());
	n->functions->session_limits(n->session, pending_bytes(n->vm), &n->vm->run.stop);
	plua_nodes_charge(n);
	lua_pushlightuserdata(L, n);
	return 1;
}

// proxy(metatable) returns an empty userdata.
static int proxy(lua_State *L) {
	lua_settop(L, 1);
	lua_newuserdata(L, 0);
	lua_insert(L, 1);
	lua_setmetatable(L, 1);
	return 1;
}

// digits(v) returns the text of a number that a double cannot hold, nil for anything else.
static int digits(lua_State *L) {
	size_t len;
	const char *text = plua_bignum_text(L, plua_engine_of(L), 1, &len);
	if (text) lua_pushlstring(L, text, len);
	else lua_pushnil(L);
	return 1;
}

// now() returns the milliseconds of a clock that only goes forward.
static int now(lua_State *L) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	lua_pushnumber(L, (double)t.tv_sec * 1e3 + (double)(t.tv_nsec / 1000000));
	return 1;
}

static void set_address(lua_State *L, const char *name, void *f) {
	lua_pushlightuserdata(L, f);
	lua_setfield(L, -2, name);
}

static void push_addresses(lua_State *L, plua_nodes *n) {
	lua_newtable(L);
#define SET_RUN(result, name, parameters, arguments) set_address(L, "ndb_" #name, (void *)run_##name);
#define SET_OTHER(result, name, parameters) set_address(L, "ndb_" #name, (void *)n->functions->name);
	NDB_SESSION_FUNCTIONS(SET_RUN)
	NDB_OTHER_FUNCTIONS(SET_OTHER)
	set_address(L, "ndb_begin", (void *)begin);
	set_address(L, "ndb_begin_view", (void *)begin_view);
	set_address(L, "ndb_kill_range", (void *)kill_range);
	set_address(L, "ndb_expire_tree", (void *)expire_tree);
	set_address(L, "ndb_lock", (void *)lock);
	set_address(L, "ndb_merge", (void *)merge);
	set_address(L, "ndb_unlock_all", (void *)unlock_all);
}

static void push_codes(lua_State *L, plua_nodes *n) {
	const char *name;
	lua_newtable(L);
	for (int code = -1; strncmp(name = n->functions->code_name(code), "NDB_E_", 6) == 0; code--) {
		lua_pushinteger(L, code);
		lua_setfield(L, -2, name);
	}
}

void plua_nodes_open(lua_State *L, plua_nodes *n) {
	static const luaL_Reg functions[] = {{"session", session}, {"proxy", proxy}, {"digits", digits}, {"now", now}, {NULL, NULL}};
	if (!n->functions) {
		lua_pushnil(L);
		return;
	}
	lua_newtable(L);
	luaL_register(L, NULL, functions);
	push_addresses(L, n);
	lua_setfield(L, -2, "addresses");
	lua_pushboolean(L, n->collect);
	lua_setfield(L, -2, "collect");
	push_codes(L, n);
	lua_setfield(L, -2, "codes");
}
