/* native.c: the backend of the Lua modules through Lua's C API, for Lua 5.1 to 5.4. On LuaJIT it
 * provides the functions that are not worth a call through the FFI (see ffi.lua).
 *
 * It exports functions over encoded paths (keys, which are Lua strings) and plain values. It raises
 * errors of the core as "nodedb: CODE: text", and holds no memory that needs freeing when it does.
 *
 * A Lua state has one session of one store. open(), or the first use, opens it: on the folder in
 * the environment variable NODEDB_FOLDER, or else without a store, for trees in memory only. As
 * always with Lua, only one thread at a time may use a state. */
#include <errno.h>
#include <lauxlib.h>
#include <lua.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../nodedb.h"

#if LUA_VERSION_NUM < 502
#define lua_rawlen lua_objlen
#endif
#if LUA_VERSION_NUM < 504
#define new_userdata(L, size) lua_newuserdata(L, size)
#else
#define new_userdata(L, size) lua_newuserdatauv(L, size, 0)
#endif

#define LARGEST_EXACT 9007199254740992.0 /* 2^53 */

typedef struct iteration iteration;

/* A connection is the session of a Lua state. It is an upvalue of all functions here. */
typedef struct connection {
	ndb_store *store;
	ndb_session *session;
	uint64_t writes; /* counts changes, so that iterations notice them */
	/* a guard function checks each use; the registry holds it under this struct's address */
	int guarded;
	iteration *iterations; /* the open ones */
	struct connection *next_open;
} connection;

struct iteration {
	connection *owner;
	ndb_iter *core; /* NULL after the end */
	ndb_items items;
	uint32_t at;
	uint64_t writes;
	int values, descendants;
	iteration *next, *previous;
};

/* The connections with a store, which are closed at exit: a script that calls os.exit loses
 * nothing. */
static pthread_mutex_t open_mutex = PTHREAD_MUTEX_INITIALIZER;
static connection *open_connections;
static int exit_handler;

static void sync_open_stores(void) {
	pthread_mutex_lock(&open_mutex);
	for (connection *c = open_connections; c; c = c->next_open) ndb_sync(c->store);
	pthread_mutex_unlock(&open_mutex);
}

static void add_open(connection *c) {
	pthread_mutex_lock(&open_mutex);
	if (!exit_handler) exit_handler = atexit(sync_open_stores) == 0;
	c->next_open = open_connections;
	open_connections = c;
	pthread_mutex_unlock(&open_mutex);
}

static void remove_open(connection *c) {
	pthread_mutex_lock(&open_mutex);
	for (connection **at = &open_connections; *at; at = &(*at)->next_open)
		if (*at == c) {
			*at = c->next_open;
			break;
		}
	pthread_mutex_unlock(&open_mutex);
}

/* ---- errors and values ---- */

static int fail(lua_State *L, int code) {
	lua_pushfstring(L, "nodedb: %s: %s", ndb_code_name(code), ndb_message());
	return lua_error(L);
}

static int refuse(lua_State *L, const char *what, int index) {
	lua_pushfstring(L, "nodedb: NDB_E_ARGUMENT: %s, got %s", what, luaL_typename(L, index));
	return lua_error(L);
}

static connection *connected(lua_State *L) { return lua_touserdata(L, lua_upvalueindex(1)); }

static const char *key_at(lua_State *L, int index, size_t *len) {
	if (lua_type(L, index) != LUA_TSTRING) refuse(L, "a node is required", index);
	return lua_tolstring(L, index, len);
}

static int is_number(double n) { return n - n == 0; }

#if LUA_VERSION_NUM >= 503
/* Converts an integer that a double may not hold to its digits; they are a number if canonical. */
static void integer_scalar(lua_Integer n, ndb_scalar *out, char text[32]) {
	*out = (ndb_scalar){.type = NDB_NUMBER, .number = (double)n};
	if (n <= (lua_Integer)LARGEST_EXACT && n >= -(lua_Integer)LARGEST_EXACT) return;
	int len = snprintf(text, 32, LUA_INTEGER_FMT, n);
	if (ndb_number_canonical(text, (size_t)len, out)) return;
	out->type = NDB_STRING;
	out->bytes = text;
	out->len = (uint32_t)len;
}
#endif

/* Reads a subscript or a value. text holds the digits of an integer. */
static void to_scalar(lua_State *L, int index, ndb_scalar *out, char text[32], const char *what) {
	memset(out, 0, sizeof *out);
	switch (lua_type(L, index)) {
	case LUA_TNUMBER:
		out->type = NDB_NUMBER;
		out->number = lua_tonumber(L, index);
		if (!is_number(out->number)) {
			lua_pushfstring(
			    L, "nodedb: NDB_E_ARGUMENT: %s must be a finite number, got %f", what, out->number);
			lua_error(L);
		}
#if LUA_VERSION_NUM >= 503
		if (lua_isinteger(L, index)) integer_scalar(lua_tointeger(L, index), out, text);
#else
		(void)text;
#endif
		return;
	case LUA_TSTRING: {
		size_t len;
		out->type = NDB_STRING;
		out->bytes = lua_tolstring(L, index, &len);
		if (len > UINT32_MAX) refuse(L, "a string must be shorter than 4 GiB", index);
		out->len = (uint32_t)len;
		return;
	}
	case LUA_TBOOLEAN: out->type = lua_toboolean(L, index) ? NDB_TRUE : NDB_FALSE; return;
	}
	lua_pushfstring(L,
	    "nodedb: NDB_E_ARGUMENT: %s must be a string, a number or a boolean, got a %s", what,
	    luaL_typename(L, index));
	lua_error(L);
}

static void to_subscript(lua_State *L, int index, ndb_scalar *out, char text[32]) {
	int type = lua_type(L, index);
	if (type != LUA_TNUMBER && type != LUA_TSTRING) {
		if (type == LUA_TNONE || type == LUA_TNIL)
			lua_pushliteral(
			    L, "nodedb: NDB_E_ARGUMENT: a subscript must be a string or a number, got nil");
		else
			lua_pushfstring(L,
			    "nodedb: NDB_E_ARGUMENT: a subscript must be a string or a number, got a %s",
			    luaL_typename(L, index));
		lua_error(L);
	}
#if LUA_VERSION_NUM >= 503
	/* In Lua's tables 2^62 and 1 << 62 are the same key, so they must be the same node. */
	lua_Integer whole;
	if (type == LUA_TNUMBER && !lua_isinteger(L, index) &&
	    lua_numbertointeger(lua_tonumber(L, index), &whole) &&
	    (lua_Number)whole == lua_tonumber(L, index)) {
		integer_scalar(whole, out, text);
		return;
	}
#endif
	to_scalar(L, index, out, text, "a subscript");
}

static void push_digits(lua_State *L, const ndb_scalar *s) {
#if LUA_VERSION_NUM >= 503
	char text[32];
	if (s->len < sizeof text && !memchr(s->bytes, '.', s->len)) {
		memcpy(text, s->bytes, s->len);
		text[s->len] = 0;
		errno = 0;
		long long n = strtoll(text, NULL, 10);
		if (errno == 0) {
			lua_pushinteger(L, (lua_Integer)n);
			return;
		}
	}
#endif
	lua_pushlstring(L, s->bytes, s->len);
}

static void push_number(lua_State *L, double n) {
#if LUA_VERSION_NUM >= 503
	if (n >= -9223372036854775808.0 && n < 9223372036854775808.0) {
		lua_Integer whole = (lua_Integer)n;
		if ((double)whole == n) {
			lua_pushinteger(L, whole);
			return;
		}
	}
#endif
	lua_pushnumber(L, n);
}

static void push_scalar(lua_State *L, const ndb_scalar *s) {
	switch (s->type) {
	case NDB_NUMBER: push_number(L, s->number); return;
	case NDB_STRING: lua_pushlstring(L, s->bytes, s->len); return;
	case NDB_DIGITS: push_digits(L, s); return;
	case NDB_FALSE: lua_pushboolean(L, 0); return;
	case NDB_TRUE: lua_pushboolean(L, 1); return;
	default: lua_pushnil(L);
	}
}

/* ---- the store ---- */

static void end_iteration(iteration *it) {
	if (!it->core) return;
	ndb_iter_close(it->core);
	it->core = NULL;
	it->items.count = 0;
	if (it->next) it->next->previous = it->previous;
	if (it->previous) it->previous->next = it->next;
	else it->owner->iterations = it->next;
}

/* Returns the result of ndb_close. */
static int disconnect(connection *c) {
	int code = NDB_OK;
	while (c->iterations) end_iteration(c->iterations);
	if (c->session) ndb_session_close(c->session);
	c->session = NULL;
	if (c->store) {
		remove_open(c);
		code = ndb_close(c->store);
	}
	c->store = NULL;
	return code;
}

static void connect_folder(
    lua_State *L, connection *c, const char *folder, const ndb_options *options) {
	int code = ndb_open(folder, options, &c->store);
	if (code < 0) {
		c->store = NULL;
		fail(L, code);
	}
	code = ndb_session_open(c->store, &c->session);
	if (code < 0) {
		ndb_close(c->store);
		c->store = NULL;
		c->session = NULL;
		fail(L, code);
	}
	/* the process may also have the store open for writing */
	if (options && options->read_only) ndb_session_read_only(c->session);
	add_open(c);
}

static void start(lua_State *L, connection *c) {
	const char *folder = getenv("NODEDB_FOLDER");
	if (folder && *folder) {
		connect_folder(L, c, folder, NULL);
		return;
	}
	int code = ndb_session_open(NULL, &c->session);
	if (code < 0) {
		c->session = NULL;
		fail(L, code);
	}
}

/* Calls the function set by guard(), which raises an error if nodes must not be used now. */
static void ask_guard(lua_State *L, connection *c) {
	luaL_checkstack(L, 2, "guard");
	lua_pushlightuserdata(L, c);
	lua_rawget(L, LUA_REGISTRYINDEX);
	lua_call(L, 0, 0);
}

/* Returns the session without calling the guard, for the functions that implement the guard. */
static ndb_session *unguarded(lua_State *L) {
	connection *c = connected(L);
	if (!c->session) start(L, c);
	return c->session;
}

static ndb_session *session(lua_State *L) {
	connection *c = connected(L);
	if (c->guarded) ask_guard(L, c);
	return unguarded(L);
}

static ndb_session *changing(lua_State *L) {
	connected(L)->writes++;
	return session(L);
}

static ndb_session *unguarded_changing(lua_State *L) {
	connected(L)->writes++;
	return unguarded(L);
}

/* guard(f): calls f before each use of a node; guard(nil) stops that. */
static int core_guard(lua_State *L) {
	connection *c = connected(L);
	lua_settop(L, 1);
	c->guarded = !lua_isnil(L, 1);
	lua_pushlightuserdata(L, c);
	lua_insert(L, 1);
	lua_rawset(L, LUA_REGISTRYINDEX);
	return 0;
}

/* now(): the milliseconds of a monotonic clock. */
static int core_now(lua_State *L) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	lua_pushnumber(L, (double)t.tv_sec * 1e3 + (double)(t.tv_nsec / 1000000));
	return 1;
}

static ndb_store *store_of(lua_State *L, const char *what) {
	unguarded(L);
	connection *c = connected(L);
	if (!c->store)
		luaL_error(L,
		    "nodedb: NDB_E_ARGUMENT: %s: no store is open: call nodedb.open(folder), or set NODEDB_FOLDER",
		    what);
	return c->store;
}

/* unsigned_option reads options[name], a whole number. */
static uint64_t unsigned_option(lua_State *L, int index, const char *name) {
	lua_getfield(L, index, name);
	double n = lua_isnil(L, -1) ? 0 : lua_tonumber(L, -1);
	if (!(lua_isnil(L, -1) || lua_type(L, -1) == LUA_TNUMBER) || !(n >= 0 && n < 1e15))
		luaL_error(L, "nodedb: NDB_E_ARGUMENT: open: option %s must be a number, 0 or more", name);
	lua_pop(L, 1);
	return (uint64_t)n;
}

static int core_open(lua_State *L) {
	static const char *const names[] = {
	    "read_only", "no_sync", "flush_ms", "transaction_bytes", "pending_bytes"};
	connection *c = connected(L);
	if (lua_type(L, 1) != LUA_TSTRING)
		refuse(L, "open: argument 1 must be the path of a folder", 1);
	ndb_options options = {0};
	if (!lua_isnoneornil(L, 2)) {
		if (!lua_istable(L, 2)) refuse(L, "open: argument 2 must be a table of options", 2);
		for (lua_pushnil(L); lua_next(L, 2); lua_pop(L, 1)) {
			size_t i = 0, count = sizeof names / sizeof *names;
			while (i < count &&
			       !(lua_type(L, -2) == LUA_TSTRING && strcmp(lua_tostring(L, -2), names[i]) == 0))
				i++;
			if (i == count)
				return luaL_error(L,
				    "nodedb: NDB_E_ARGUMENT: open: unknown option; the options are read_only, no_sync, flush_ms, transaction_bytes and pending_bytes");
		}
		lua_getfield(L, 2, "read_only");
		options.read_only = lua_toboolean(L, -1) ? NDB_READ_ONLY_SESSIONS : 0;
		lua_getfield(L, 2, "no_sync");
		options.no_sync = lua_toboolean(L, -1);
		uint64_t flush = unsigned_option(L, 2, "flush_ms");
		options.flush_ms = flush > 3600000 ? 3600000 : (int)flush;
		options.transaction_bytes = unsigned_option(L, 2, "transaction_bytes");
		options.pending_bytes = unsigned_option(L, 2, "pending_bytes");
	}
	if (c->store)
		return luaL_error(
		    L, "nodedb: NDB_E_ARGUMENT: open: a store is already open: call nodedb.close() first");
	if (c->session)
		return luaL_error(L,
		    "nodedb: NDB_E_ARGUMENT: open: nodes were already used without a store: call open first, or drop the trees in memory with nodedb.close()");
	connect_folder(L, c, lua_tostring(L, 1), &options);
	return 0;
}

static int core_close(lua_State *L) {
	int code = disconnect(connected(L));
	if (code < 0) return fail(L, code);
	return 0;
}

static int connection_gc(lua_State *L) {
	disconnect(lua_touserdata(L, 1));
	return 0;
}

static int core_sync(lua_State *L) {
	int code = ndb_sync(store_of(L, "sync"));
	return code < 0 ? fail(L, code) : 0;
}

static int core_wait(lua_State *L) {
	unguarded(L);
	connection *c = connected(L);
	int code = c->store ? ndb_wait(c->session, (uint64_t)lua_tonumber(L, 1)) : NDB_OK;
	return code < 0 ? fail(L, code) : 0;
}

static int core_stat(lua_State *L) {
	ndb_statistics s;
	memset(&s, 0, sizeof s);
	int code = ndb_stat(store_of(L, "stat"), &s);
	if (code < 0) return fail(L, code);
	const struct {
		const char *name;
		double n;
	} fields[] = {{"nodes", (double)s.nodes}, {"map_bytes", (double)s.map_bytes},
	    {"used_bytes", (double)s.used_bytes}, {"free_bytes", (double)s.free_bytes},
	    {"pending_bytes", (double)s.pending_bytes}, {"commits", (double)s.commits},
	    {"expiring", (double)s.expiring}, {"readers", s.readers}, {"locks", s.locks},
	    {"depth", s.depth}, {"processes", s.processes}};
	lua_createtable(L, 0, sizeof fields / sizeof *fields);
	for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
		push_number(L, fields[i].n);
		lua_setfield(L, -2, fields[i].name);
	}
	return 1;
}

static int core_backup(lua_State *L) {
	if (lua_type(L, 1) != LUA_TSTRING)
		refuse(L, "backup: argument 1 must be the path of a new folder", 1);
	int code = ndb_backup(store_of(L, "backup"), lua_tostring(L, 1));
	return code < 0 ? fail(L, code) : 0;
}

static int core_compact(lua_State *L) {
	if (lua_type(L, 1) != LUA_TSTRING)
		refuse(L, "compact: argument 1 must be the path of a folder that no process has open", 1);
	int code = ndb_compact(lua_tostring(L, 1));
	return code < 0 ? fail(L, code) : 0;
}

/* The first faults of a check. They are kept outside of Lua, whose errors must not unwind
 * through the core. */
typedef struct {
	char *text;
	size_t len, cap;
} report;

static int add_fault(void *user, const char *line) {
	report *r = user;
	size_t len = strlen(line);
	if (r->len + len + 1 <= r->cap) {
		memcpy(r->text + r->len, line, len);
		r->text[r->len + len] = '\n';
		r->len += len + 1;
	}
	return 0;
}

static int core_check(lua_State *L) {
	ndb_store *store = store_of(L, "check");
	report r = {.cap = 64 << 10};
	r.text = lua_newuserdata(L, r.cap);
	int code = ndb_check(store, add_fault, &r);
	if (code < 0) return fail(L, code);
	lua_pushinteger(L, code);
	lua_pushlstring(L, r.text, r.len);
	return 2;
}

/* ---- keys ---- */

static int core_root(lua_State *L) {
	char key[NDB_KEY_MAX];
	size_t len;
	if (lua_type(L, 1) != LUA_TSTRING) refuse(L, "a name must be a string", 1);
	const char *name = lua_tolstring(L, 1, &len);
	int code = ndb_key_name(key, sizeof key, name, len);
	if (code < 0) return fail(L, code);
	lua_pushlstring(L, key, (size_t)code);
	return 1;
}

/* append(key, subscript): returns the child's key, and the subscript as iterations return it. */
static int core_append(lua_State *L) {
	char key[NDB_KEY_MAX], text[NDB_KEY_MAX], digits[32];
	size_t len, at;
	const char *parent = key_at(L, 1, &len);
	ndb_scalar subscript;
	to_subscript(L, 2, &subscript, digits);
	if (len > sizeof key) refuse(L, "a node is required", 1);
	memcpy(key, parent, len);
	int code = ndb_key_append(key, len, sizeof key, &subscript);
	if (code < 0) return fail(L, code);
	lua_pushlstring(L, key, (size_t)code);
	at = len;
	code = ndb_key_decode(key, (size_t)code, &at, &subscript, text);
	if (code < 0) return fail(L, code);
	push_scalar(L, &subscript);
	return 2;
}

static int core_decode(lua_State *L) {
	char text[NDB_KEY_MAX];
	size_t len, at = 0;
	const char *key = key_at(L, 1, &len);
	int count = 0;
	luaL_checkstack(L, NDB_SUBSCRIPTS_MAX + 2, "subscripts");
	for (;;) {
		ndb_scalar subscript;
		int code = ndb_key_decode(key, len, &at, &subscript, text);
		if (code == NDB_NONE) return count;
		if (code < 0) return fail(L, code);
		push_scalar(L, &subscript);
		count++;
	}
}

static int core_depth(lua_State *L) {
	size_t len;
	const char *key = key_at(L, 1, &len);
	int code = ndb_key_depth(key, len);
	if (code < 0) return fail(L, code);
	lua_pushinteger(L, code);
	return 1;
}

static int core_parent(lua_State *L) {
	size_t len;
	const char *key = key_at(L, 1, &len);
	int code = ndb_key_parent(key, len);
	if (code < 0) return fail(L, code);
	if (code == 0) return 0;
	lua_pushlstring(L, key, (size_t)code);
	return 1;
}

/* ---- text ---- */

/* push_zwrite pushes the result of a zwrite function. */
static int push_zwrite(lua_State *L, const char *key, size_t len, const ndb_scalar *value) {
	char small[1024];
	char *text = small;
	size_t cap = sizeof small;
	for (;;) {
		long written =
		    key ? ndb_zwrite_key(key, len, text, cap) : ndb_zwrite_scalar(value, text, cap);
		if (written < 0) return fail(L, (int)written);
		if ((size_t)written <= cap) {
			lua_pushlstring(L, text, (size_t)written);
			return 1;
		}
		cap = (size_t)written;
		text = lua_newuserdata(L, cap);
	}
}

static int core_zwrite_key(lua_State *L) {
	size_t len;
	const char *key = key_at(L, 1, &len);
	return push_zwrite(L, key, len, NULL);
}

static int core_zwrite(lua_State *L) {
	ndb_scalar value;
	char digits[32];
	to_scalar(L, 1, &value, digits, "a value");
	return push_zwrite(L, NULL, 0, &value);
}

static int bad_text(lua_State *L, const char *text, size_t at) {
	return luaL_error(
	    L, "nodedb: NDB_E_ARGUMENT: invalid zwrite text at byte %d: %s", (int)at + 1, text + at);
}

static int core_zread(lua_State *L) {
	size_t len, at = 0;
	if (lua_type(L, 1) != LUA_TSTRING) refuse(L, "the argument must be text in zwrite form", 1);
	const char *text = lua_tolstring(L, 1, &len);
	char *bytes = lua_newuserdata(L, len + 1);
	ndb_scalar value;
	int code = ndb_zwrite_parse_scalar(text, len, &at, &value, bytes);
	if (code < 0) return fail(L, code);
	if (at != len) return bad_text(L, text, at);
	push_scalar(L, &value);
	return 1;
}

static int core_load_line(lua_State *L) {
	char key[NDB_KEY_MAX];
	size_t len, at = 0;
	if (lua_type(L, 1) != LUA_TSTRING) refuse(L, "the argument must be a line in zwrite form", 1);
	const char *text = lua_tolstring(L, 1, &len);
	int key_len = ndb_zwrite_parse_key(text, len, &at, key);
	if (key_len < 0) return fail(L, key_len);
	if (at >= len || text[at] != '=') return bad_text(L, text, at);
	at++;
	char *bytes = lua_newuserdata(L, len + 1);
	ndb_scalar value;
	int code = ndb_zwrite_parse_scalar(text, len, &at, &value, bytes);
	if (code < 0) return fail(L, code);
	if (at != len) return bad_text(L, text, at);
	code = ndb_set(changing(L), key, (size_t)key_len, &value);
	return code < 0 ? fail(L, code) : 0;
}

/* ---- nodes ---- */

static int core_get(lua_State *L) {
	size_t len;
	const char *key = key_at(L, 1, &len);
	ndb_scalar value;
	int code = ndb_get(session(L), key, len, &value);
	if (code == NDB_OK) push_scalar(L, &value);
	else if (code == NDB_NONE) lua_pushnil(L);
	else return fail(L, code);
	return 1;
}

static int core_set(lua_State *L) {
	size_t len;
	const char *key = key_at(L, 1, &len);
	ndb_scalar value;
	char digits[32];
	to_scalar(L, 2, &value, digits, "a value");
	int code = ndb_set(changing(L), key, len, &value);
	return code < 0 ? fail(L, code) : 0;
}

/* set_child(key, subscript, value) */
static int core_set_child(lua_State *L) {
	char digits[32], value_digits[32];
	size_t len;
	const char *key = key_at(L, 1, &len);
	ndb_scalar subscript, value;
	to_subscript(L, 2, &subscript, digits);
	to_scalar(L, 3, &value, value_digits, "a value");
	int code = ndb_set_child(changing(L), key, len, &subscript, &value);
	return code < 0 ? fail(L, code) : 0;
}

static int core_set_new(lua_State *L) {
	size_t len;
	const char *key = key_at(L, 1, &len);
	ndb_scalar value;
	char digits[32];
	to_scalar(L, 2, &value, digits, "a value");
	int code = ndb_set_new(changing(L), key, len, &value);
	if (code < 0) return fail(L, code);
	lua_pushboolean(L, code == NDB_OK);
	return 1;
}

static int core_compare_and_set(lua_State *L) {
	size_t len;
	const char *key = key_at(L, 1, &len);
	ndb_scalar expected = {.type = NDB_ABSENT}, value;
	char digits[32], expected_digits[32];
	if (!lua_isnoneornil(L, 2)) to_scalar(L, 2, &expected, expected_digits, "the expected value");
	to_scalar(L, 3, &value, digits, "a value");
	int code = ndb_compare_and_set(changing(L), key, len, &expected, &value);
	if (code < 0) return fail(L, code);
	lua_pushboolean(L, code == NDB_OK);
	return 1;
}

static int core_data(lua_State *L) {
	size_t len;
	const char *key = key_at(L, 1, &len);
	int code = ndb_data(session(L), key, len);
	if (code < 0) return fail(L, code);
	lua_pushinteger(L, code);
	return 1;
}

static int core_increment(lua_State *L) {
	size_t len;
	const char *key = key_at(L, 1, &len);
	ndb_scalar by = {.type = NDB_NUMBER, .number = 1}, sum;
	char digits[32];
	if (!lua_isnoneornil(L, 2)) to_scalar(L, 2, &by, digits, "the increment");
	int code = ndb_increment(changing(L), key, len, &by, &sum);
	if (code < 0) return fail(L, code);
	push_scalar(L, &sum);
	return 1;
}

static int core_kill(lua_State *L) {
	size_t len;
	const char *key = key_at(L, 1, &len);
	int code = ndb_kill(changing(L), key, len);
	return code < 0 ? fail(L, code) : 0;
}

static int core_kill_value(lua_State *L) {
	size_t len;
	const char *key = key_at(L, 1, &len);
	int code = ndb_kill_value(changing(L), key, len);
	return code < 0 ? fail(L, code) : 0;
}

static int core_expire(lua_State *L) {
	size_t len;
	const char *key = key_at(L, 1, &len);
	int code = ndb_expire(changing(L), key, len, (uint64_t)lua_tonumber(L, 2));
	if (code < 0) return fail(L, code);
	lua_pushboolean(L, code == NDB_OK);
	return 1;
}

static int core_ttl(lua_State *L) {
	size_t len;
	const char *key = key_at(L, 1, &len);
	uint64_t ms = 0;
	int code = ndb_ttl(session(L), key, len, &ms);
	if (code < 0) return fail(L, code);
	if (code == NDB_NONE) return 0;
	push_number(L, (double)ms);
	return 1;
}

#define STEPS 10000 /* nodes per call of a count or merge */

static int core_count(lua_State *L) {
	size_t len, position_len = 0;
	const char *key = key_at(L, 1, &len);
	char position[NDB_KEY_MAX];
	uint64_t count = 0;
	ndb_session *s = session(L);
	int code;
	do code = ndb_count(s, key, len, STEPS, position, &position_len, &count);
	while (code == NDB_MORE);
	if (code < 0) return fail(L, code);
	push_number(L, (double)count);
	return 1;
}

static int core_merge(lua_State *L) {
	size_t len, from_len, position_len = 0;
	const char *key = key_at(L, 1, &len), *from = key_at(L, 2, &from_len);
	char position[NDB_KEY_MAX];
	ndb_session *s = changing(L);
	uint64_t steps =
	    ndb_level(s) > 0 ? STEPS : 0; /* outside a transaction, one call makes all changes */
	int code;
	do code = ndb_merge(s, key, len, from, from_len, steps, position, &position_len);
	while (code == NDB_MORE);
	return code < 0 ? fail(L, code) : 0;
}

/* ---- many nodes ---- */

/* clock(): the time by which nodes expire, in ms since 1970 */
static int core_clock(lua_State *L) {
	push_number(L, (double)ndb_clock(session(L)));
	return 1;
}

static int core_expire_at(lua_State *L) {
	size_t len;
	const char *key = key_at(L, 1, &len);
	int code = ndb_expire_at(changing(L), key, len, (uint64_t)lua_tonumber(L, 2));
	if (code < 0) return fail(L, code);
	lua_pushboolean(L, code == NDB_OK);
	return 1;
}

static int core_expire_tree(lua_State *L) {
	size_t len, position_len = 0;
	const char *key = key_at(L, 1, &len);
	char position[NDB_KEY_MAX];
	ndb_session *s = changing(L);
	uint64_t at_ms = (uint64_t)lua_tonumber(L, 2), steps = ndb_level(s) > 0 ? STEPS : 0;
	int code;
	do code = ndb_expire_tree(s, key, len, at_ms, steps, position, &position_len);
	while (code == NDB_MORE);
	return code < 0 ? fail(L, code) : 0;
}

/* kill_range(key, from, to) */
static int core_kill_range(lua_State *L) {
	size_t len, position_len = 0;
	const char *key = key_at(L, 1, &len);
	char position[NDB_KEY_MAX], from_digits[32], to_digits[32];
	ndb_scalar from, to;
	int bounded_from = !lua_isnoneornil(L, 2), bounded_to = !lua_isnoneornil(L, 3);
	if (bounded_from) to_subscript(L, 2, &from, from_digits);
	if (bounded_to) to_subscript(L, 3, &to, to_digits);
	ndb_session *s = changing(L);
	uint64_t steps = ndb_level(s) > 0 ? STEPS : 0;
	int code;
	do
		code = ndb_kill_range(s, key, len, bounded_from ? &from : NULL, bounded_to ? &to : NULL,
		    steps, position, &position_len);
	while (code == NDB_MORE);
	return code < 0 ? fail(L, code) : 0;
}

/* set_all(keys, values): two lists, which keep their strings alive during the call */
static int core_set_all(lua_State *L) {
	size_t count = lua_rawlen(L, 1);
	ndb_pair *pairs = lua_newuserdata(L, (count + 1) * sizeof *pairs);
	char(*digits)[32] = lua_newuserdata(L, (count + 1) * sizeof *digits);
	for (size_t i = 0; i < count; i++) {
		lua_rawgeti(L, 1, (int)i + 1);
		pairs[i].key = key_at(L, -1, &pairs[i].len);
		lua_rawgeti(L, 2, (int)i + 1);
		to_scalar(L, -1, &pairs[i].value, digits[i], "a value");
		lua_pop(L, 2);
	}
	int code = ndb_set_all(changing(L), pairs, count);
	return code < 0 ? fail(L, code) : 0;
}

static int core_begin_view(lua_State *L) {
	int code = ndb_begin_view(changing(L));
	return code < 0 ? fail(L, code) : 0;
}

/* ---- single steps ---- */

static int core_next_sibling(lua_State *L) {
	size_t len;
	const char *key = key_at(L, 1, &len);
	ndb_scalar next;
	int code = ndb_next_sibling(session(L), key, len, lua_toboolean(L, 2), &next);
	if (code < 0) return fail(L, code);
	if (code == NDB_NONE) return 0;
	push_scalar(L, &next);
	return 1;
}

static int core_next_node(lua_State *L) {
	size_t len, next_len;
	const char *key = key_at(L, 1, &len), *next;
	int code = ndb_next_node(session(L), key, len, lua_toboolean(L, 2), &next, &next_len);
	if (code < 0) return fail(L, code);
	if (code == NDB_NONE) return 0;
	lua_pushlstring(L, next, next_len);
	return 1;
}

/* ---- iterations ---- */

#define ITERATION "nodedb.iteration" /* the metatable, in the registry */

static int iteration_gc(lua_State *L) {
	end_iteration(lua_touserdata(L, 1));
	return 0;
}

/* refill gets the next batch. It returns 0 at the end. */
static int refill(lua_State *L, iteration *it) {
	if (it->core && it->owner->guarded) ask_guard(L, it->owner);
	if (!it->core) return 0;
	if (it->at < it->items.count) {
		/* The script has changed something since the batch was read. */
		it->writes = it->owner->writes;
		if (ndb_iter_valid(it->core)) return 1;
		int code = ndb_iter_seek_after(it->core, it->at - 1);
		if (code < 0) fail(L, code);
	}
	it->writes = it->owner->writes;
	it->at = 0;
	it->items.count = 0;
	int code = ndb_iter_fill(it->core, &it->items);
	if (code == NDB_NONE) {
		end_iteration(it);
		return 0;
	}
	if (code < 0) fail(L, code);
	return 1;
}

static int iteration_next(lua_State *L) {
	iteration *it = lua_touserdata(L, lua_upvalueindex(1));
	if (it->at >= it->items.count || it->writes != it->owner->writes) {
		if (!refill(L, it)) return 0;
	}
	uint32_t i = it->at++;
	if (it->descendants) lua_pushlstring(L, it->items.key[i], it->items.key_len[i]);
	else push_scalar(L, &it->items.subscript[i]);
	if (!it->values) return 1;
	push_scalar(L, &it->items.value[i]);
	return 2;
}

static int open_iteration(
    lua_State *L, int flags, const ndb_scalar *from, const ndb_scalar *to, uint64_t limit) {
	size_t len;
	const char *key = key_at(L, 1, &len);
	ndb_session *s = session(L);
	iteration *it = new_userdata(L, sizeof *it);
	memset(it, 0, sizeof *it);
	luaL_getmetatable(L, ITERATION);
	lua_setmetatable(L, -2);
	int code = ndb_iter_open(s, key, len, flags, from, to, limit, &it->core);
	if (code < 0) {
		it->core = NULL;
		return fail(L, code);
	}
	it->owner = connected(L);
	it->writes = it->owner->writes;
	it->values = (flags & NDB_VALUES) != 0;
	it->descendants = (flags & NDB_DESCENDANTS) != 0;
	it->next = it->owner->iterations;
	if (it->next) it->next->previous = it;
	it->owner->iterations = it;
	lua_pushcclosure(L, iteration_next, 1);
	return 1;
}

/* siblings(key, flags, from, to, limit): a function that returns the next subscript, and with
 * flag VALUES its value. */
static int core_siblings(lua_State *L) {
	ndb_scalar from, to;
	char from_digits[32], to_digits[32];
	int bounded_from = !lua_isnoneornil(L, 3), bounded_to = !lua_isnoneornil(L, 4);
	if (bounded_from) to_subscript(L, 3, &from, from_digits);
	if (bounded_to) to_subscript(L, 4, &to, to_digits);
	return open_iteration(L, (int)lua_tonumber(L, 2), bounded_from ? &from : NULL,
	    bounded_to ? &to : NULL, (uint64_t)lua_tonumber(L, 5));
}

/* descendants(key, flags, limit, from, to): the same for whole keys, also as bounds. */
static int core_descendants(lua_State *L) {
	ndb_scalar bounds[2];
	const ndb_scalar *given[2] = {NULL, NULL};
	for (int i = 0; i < 2; i++) {
		if (lua_isnoneornil(L, 4 + i)) continue;
		size_t len;
		const char *key = key_at(L, 4 + i, &len);
		if (len > NDB_KEY_MAX + 1) refuse(L, "a node is required", 4 + i);
		bounds[i] = (ndb_scalar){.bytes = key, .len = (uint32_t)len, .type = NDB_STRING};
		given[i] = &bounds[i];
	}
	return open_iteration(L, (int)lua_tonumber(L, 2) | NDB_DESCENDANTS | NDB_KEYS, given[0],
	    given[1], (uint64_t)lua_tonumber(L, 3));
}

/* ---- transactions ---- */

/* These do not call the guard, since the guard calls them. */

static int core_begin(lua_State *L) {
	int code = ndb_begin(unguarded_changing(L));
	return code < 0 ? fail(L, code) : 0;
}

/* commit(): the commit's number, 0 for an inner one; false after a conflict. */
static int core_commit(lua_State *L) {
	uint64_t number = 0;
	int code = ndb_commit(unguarded_changing(L), &number);
	if (code == NDB_E_CONFLICT) lua_pushboolean(L, 0);
	else if (code < 0) return fail(L, code);
	else push_number(L, (double)number);
	return 1;
}

static int core_rollback(lua_State *L) {
	int code = ndb_rollback(unguarded_changing(L));
	return code < 0 ? fail(L, code) : 0;
}

static int core_restart(lua_State *L) {
	int code = ndb_restart(unguarded_changing(L));
	return code < 0 ? fail(L, code) : 0;
}

static int core_level(lua_State *L) {
	lua_pushinteger(L, ndb_level(unguarded(L)));
	return 1;
}

static int core_restore_local(lua_State *L) {
	size_t len;
	if (lua_type(L, 1) != LUA_TSTRING)
		refuse(L, "the name of a tree in memory must be a string", 1);
	const char *name = lua_tolstring(L, 1, &len);
	int code = ndb_restore_local(unguarded(L), name, len);
	return code < 0 ? fail(L, code) : 0;
}

/* ---- locks ---- */

static int core_lock(lua_State *L) {
	ndb_session *s = session(L);
	size_t count = lua_rawlen(L, 1);
	ndb_key *keys = lua_newuserdata(L, (count + 1) * sizeof *keys);
	int list = 1;
	for (size_t i = 0; i < count; i++) {
		lua_rawgeti(L, list, (int)i + 1);
		keys[i].key = key_at(L, -1, &keys[i].len);
		lua_pop(L, 1); /* the table keeps it alive */
	}
	int code = ndb_lock(s, keys, count, (int64_t)lua_tonumber(L, 2));
	return code < 0 ? fail(L, code) : 0;
}

static int core_unlock(lua_State *L) {
	size_t len;
	const char *key = key_at(L, 1, &len);
	int code = ndb_unlock(session(L), key, len);
	return code < 0 ? fail(L, code) : 0;
}

static int core_unlock_all(lua_State *L) {
	ndb_unlock_all(session(L));
	return 0;
}

/* ---- the module ---- */

/* proxy(metatable): returns an empty userdata. */
static int core_proxy(lua_State *L) {
	new_userdata(L, 0);
	lua_pushvalue(L, 1);
	lua_setmetatable(L, -2);
	return 1;
}

static const luaL_Reg functions[] = {{"open", core_open}, {"close", core_close},
    {"sync", core_sync}, {"wait", core_wait}, {"stat", core_stat}, {"backup", core_backup},
    {"compact", core_compact}, {"check", core_check}, {"root", core_root}, {"append", core_append},
    {"decode", core_decode}, {"depth", core_depth}, {"parent", core_parent},
    {"zwrite_key", core_zwrite_key}, {"zwrite", core_zwrite}, {"zread", core_zread},
    {"load_line", core_load_line}, {"get", core_get}, {"set", core_set},
    {"set_child", core_set_child}, {"set_new", core_set_new},
    {"compare_and_set", core_compare_and_set}, {"data", core_data}, {"increment", core_increment},
    {"kill", core_kill}, {"kill_value", core_kill_value}, {"expire", core_expire},
    {"ttl", core_ttl}, {"count", core_count}, {"merge", core_merge},
    {"next_sibling", core_next_sibling}, {"next_node", core_next_node}, {"siblings", core_siblings},
    {"descendants", core_descendants}, {"begin", core_begin}, {"commit", core_commit},
    {"rollback", core_rollback}, {"restart", core_restart}, {"level", core_level},
    {"restore_local", core_restore_local}, {"guard", core_guard}, {"now", core_now},
    {"clock", core_clock}, {"expire_at", core_expire_at}, {"expire_tree", core_expire_tree},
    {"kill_range", core_kill_range}, {"set_all", core_set_all}, {"begin_view", core_begin_view},
    {"lock", core_lock}, {"unlock", core_unlock}, {"unlock_all", core_unlock_all},
    {"proxy", core_proxy}, {NULL, NULL}};

#if LUA_VERSION_NUM == 501
/* session(): returns the session, for calls through LuaJIT's FFI. */
static int core_session(lua_State *L) {
	lua_pushlightuserdata(L, session(L));
	return 1;
}

/* The functions of the core that ffi.lua calls. */
#define ADDRESS(name) \
	{ #name, (void *)name }
static const struct {
	const char *name;
	void *address;
} addresses[] = {ADDRESS(ndb_message), ADDRESS(ndb_code_name), ADDRESS(ndb_key_name),
    ADDRESS(ndb_key_append), ADDRESS(ndb_key_decode), ADDRESS(ndb_key_depth),
    ADDRESS(ndb_key_parent), ADDRESS(ndb_zwrite_key), ADDRESS(ndb_zwrite_scalar),
    ADDRESS(ndb_zwrite_parse_key), ADDRESS(ndb_zwrite_parse_scalar), ADDRESS(ndb_get),
    ADDRESS(ndb_set), ADDRESS(ndb_set_child), ADDRESS(ndb_set_new), ADDRESS(ndb_compare_and_set),
    ADDRESS(ndb_data), ADDRESS(ndb_increment), ADDRESS(ndb_kill), ADDRESS(ndb_kill_value),
    ADDRESS(ndb_expire), ADDRESS(ndb_ttl), ADDRESS(ndb_count), ADDRESS(ndb_merge),
    ADDRESS(ndb_next_sibling), ADDRESS(ndb_next_node), ADDRESS(ndb_iter_open),
    ADDRESS(ndb_iter_fill), ADDRESS(ndb_iter_valid), ADDRESS(ndb_iter_seek_after),
    ADDRESS(ndb_iter_close), ADDRESS(ndb_begin), ADDRESS(ndb_commit), ADDRESS(ndb_rollback),
    ADDRESS(ndb_restart), ADDRESS(ndb_level), ADDRESS(ndb_restore_local), ADDRESS(ndb_lock),
    ADDRESS(ndb_unlock), ADDRESS(ndb_unlock_all), ADDRESS(ndb_clock), ADDRESS(ndb_expire_at),
    ADDRESS(ndb_expire_tree), ADDRESS(ndb_kill_range), ADDRESS(ndb_set_all),
    ADDRESS(ndb_begin_view)};
#endif

#ifdef __GNUC__
__attribute__((visibility("default")))
#endif
int luaopen_nodedb_native(lua_State *L) {
	luaL_newmetatable(L, ITERATION);
	lua_pushcfunction(L, iteration_gc);
	lua_setfield(L, -2, "__gc");
	lua_pop(L, 1);

	connection *c = lua_newuserdata(L, sizeof *c);
	memset(c, 0, sizeof *c);
	lua_createtable(L, 0, 1);
	lua_pushcfunction(L, connection_gc);
	lua_setfield(L, -2, "__gc");
	lua_setmetatable(L, -2);
	int self = lua_gettop(L);

	lua_createtable(L, 0, (int)(sizeof functions / sizeof *functions) + 5);
	for (const luaL_Reg *f = functions; f->name; f++) {
		lua_pushvalue(L, self);
		lua_pushcclosure(L, f->func, 1);
		lua_setfield(L, -2, f->name);
	}
	lua_createtable(L, 0, 16);
	for (int code = -1; strncmp(ndb_code_name(code), "NDB_", 4) == 0; code--) {
		lua_pushinteger(L, code);
		lua_setfield(L, -2, ndb_code_name(code));
	}
	lua_setfield(L, -2, "codes");
	lua_newtable(L); /* state shared by the modules over this backend */
	lua_setfield(L, -2, "shared");
#if LUA_VERSION_NUM == 501
	lua_pushvalue(L, self);
	lua_pushcclosure(L, core_session, 1);
	lua_setfield(L, -2, "session");
	lua_createtable(L, 0, (int)(sizeof addresses / sizeof *addresses));
	for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++) {
		lua_pushlightuserdata(L, addresses[i].address);
		lua_setfield(L, -2, addresses[i].name);
	}
	lua_setfield(L, -2, "addresses");
#endif
	return 1;
}
