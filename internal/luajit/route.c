// Routing. to(names, value) returns a userdata, which main returns in place of the value. It
// contains the value's sinks, and its environment contains the value.

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"

typedef struct {
	uint64_t sinks;
} routed;

// next_name returns the name at *at and advances *at past it; NULL at the end.
static const char *next_name(const char **at, size_t *len) {
	const char *name = *at;
	if (!*name) return NULL;
	*len = strcspn(name, "\n");
	*at = name + *len + 1;
	return name;
}

enum {
	NAME_MAX_LEN = 64 // bytes
};

// distance returns the number of insertions, deletions, replacements and swaps of neighbours that
// turn a into b. Neither may be longer than NAME_MAX_LEN.
static size_t distance(const char *a, size_t n, const char *b, size_t m) {
	size_t rows[3][NAME_MAX_LEN + 1], *before = rows[0], *last = rows[1], *row = rows[2];
	for (size_t j = 0; j <= m; j++) last[j] = j;
	for (size_t i = 0; i < n; i++) {
		row[0] = i + 1;
		for (size_t j = 0; j < m; j++) {
			int x = tolower((unsigned char)a[i]), y = tolower((unsigned char)b[j]);
			size_t least = last[j] + (x != y);
			if (last[j + 1] + 1 < least) least = last[j + 1] + 1;
			if (row[j] + 1 < least) least = row[j] + 1;
			int swapped = i && j && x == tolower((unsigned char)b[j - 1]) &&
			              y == tolower((unsigned char)a[i - 1]);
			if (swapped && before[j - 1] + 1 < least) least = before[j - 1] + 1;
			row[j + 1] = least;
		}
		size_t *spare = before;
		before = last, last = row, row = spare;
	}
	return last[m];
}

// push_nearest pushes the known name most similar to name, or nil.
static void push_nearest(lua_State *L, const plua_engine *e, const char *name, size_t len) {
	const char *at = e->sinks, *one, *best = NULL;
	size_t n, best_len = 0, least = (len < 3 ? 1 : len / 3) + 1;
	while (len <= NAME_MAX_LEN && (one = next_name(&at, &n))) {
		size_t d = n <= NAME_MAX_LEN ? distance(name, len, one, n) : least;
		if (d < least) best = one, best_len = n, least = d;
	}
	if (best) lua_pushlstring(L, best, best_len);
	else lua_pushnil(L);
}

// push_known pushes the names of all sinks, in one line.
static void push_known(lua_State *L, const plua_engine *e) {
	const char *at = e->sinks, *name;
	size_t len;
	lua_pushliteral(L, "");
	for (int i = 0; (name = next_name(&at, &len)); i++) {
		lua_pushstring(L, i ? ", " : "");
		lua_pushlstring(L, name, len);
		lua_concat(L, 3);
	}
}

static void raise_unknown(lua_State *L, const plua_engine *e, const char *name, size_t len) {
	push_nearest(L, e, name, len);
	if (!lua_isnil(L, -1))
		plua_raise(L, "unknown sink \"%s\"; did you mean \"%s\"?", name, lua_tostring(L, -1));
	push_known(L, e);
	plua_raise(L, "unknown sink \"%s\"; known sinks: %s", name, lua_tostring(L, -1));
}

// sink_at returns the bit of the sink named at index.
static uint64_t sink_at(lua_State *L, const plua_engine *e, int index) {
	if (lua_type(L, index) != LUA_TSTRING)
		plua_raise(L,
		    "bad argument #1 to 'to' (the name of a sink or a list of names expected, got %s)",
		    luaL_typename(L, index));
	const char *at = e->sinks, *one;
	size_t len, n;
	const char *name = lua_tolstring(L, index, &len);
	for (uint64_t bit = 1; (one = next_name(&at, &n)); bit <<= 1)
		if (n == len && memcmp(one, name, len) == 0) return bit;
	raise_unknown(L, e, name, len);
	return 0;
}

// sinks_in_list returns the bits of the sinks named in the array at stack index 1: the container c,
// or a table.
static uint64_t sinks_in_list(lua_State *L, plua_engine *e, plua_container *c) {
	uint64_t sinks = 0;
	uint32_t len = c ? e->api->length(c->d, c->node) : (uint32_t)lua_objlen(L, 1);
	if (c) plua_container_push_nodes(L, e, c, 1);
	int node_table = lua_gettop(L);
	for (uint32_t i = 1; i <= len; i++) {
		PLUA_CHECK(L, e->vm);
		if (c)
			plua_container_push_value(
			    L, e, c->d, c->generation, node_table, e->api->at(c->d, c->node, i));
		else lua_rawgeti(L, 1, (int)i);
		sinks |= sink_at(L, e, lua_gettop(L));
		lua_pop(L, 1);
	}
	if (!sinks)
		plua_raise(
		    L, "bad argument #1 to 'to' (the list names no sink; return nil to drop an event)");
	return sinks;
}

static uint64_t sinks_at_1(lua_State *L, plua_engine *e) {
	plua_container *c = plua_container_at(L, e, 1);
	if (c) plua_container_check(L, e, 1);
	if (c ? c->d->nodes[c->node].kind == DOC_ARRAY : lua_type(L, 1) == LUA_TTABLE)
		return sinks_in_list(L, e, c);
	return sink_at(L, e, 1);
}

static int to(lua_State *L) {
	plua_engine *e = plua_engine_of(L);
	if (lua_gettop(L) < 2)
		return plua_raise(
		    L, "bad argument #2 to 'to' (an event, a table or a list of them expected)");
	lua_settop(L, 2);
	uint64_t sinks = sinks_at_1(L, e);
	lua_settop(L, 2);
	routed *r = lua_newuserdata(L, sizeof *r);
	r->sinks = sinks;
	lua_rawgeti(L, LUA_REGISTRYINDEX, e->routed.ref);
	lua_setmetatable(L, -2);
	lua_createtable(L, 1, 0);
	lua_pushvalue(L, 2);
	lua_rawseti(L, -2, 1);
	lua_setfenv(L, -2);
	return 1;
}

uint64_t plua_route_push(lua_State *L, plua_engine *e, int index) {
	if (lua_type(L, index) != LUA_TUSERDATA || !lua_getmetatable(L, index)) return 0;
	int is_routed = lua_topointer(L, -1) == e->routed.address;
	lua_pop(L, 1);
	if (!is_routed) return 0;
	lua_getfenv(L, index);
	lua_rawgeti(L, -1, 1);
	lua_remove(L, -2);
	return ((routed *)lua_touserdata(L, index))->sinks;
}

void plua_route_open(lua_State *L, plua_engine *e) {
	lua_newtable(L);
	lua_pushboolean(L, 0);
	lua_setfield(L, -2, "__metatable");
	e->routed.address = lua_topointer(L, -1);
	e->routed.ref = luaL_ref(L, LUA_REGISTRYINDEX);
	if (e->value) return; // values of columns cannot be routed
	lua_rawgeti(L, LUA_REGISTRYINDEX, e->vm->globals);
	lua_pushcfunction(L, to);
	lua_setfield(L, -2, "to");
	lua_pop(L, 1);
}
