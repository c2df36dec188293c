// Routing. to(names, value) returns a mark, which main returns in place of the
// value: it says which sinks the value is for, and its environment holds it.

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "frontend.h"

typedef struct { uint64_t sinks; } mark;

// next_name returns the name at *at and moves on behind it; NULL at the end.
static const char *next_name(const char **at, size_t *len) {
	const char *name = *at;
	if (!*name) return NULL;
	*len = strcspn(name, "\n");
	*at = name + *len + 1;
	return name;
}

enum { NAME_MAX_LEN = 64 };

// distance counts the insertions, deletions, replacements and swaps of neighbours
// that turn a into b, of which neither is longer than NAME_MAX_LEN.
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
			int swapped = i && j && x == tolower((unsigned char)b[j - 1]) && y == tolower((unsigned char)a[i - 1]);
			if (swapped && before[j - 1] + 1 < least) least = before[j - 1] + 1;
			row[j + 1] = least;
		}
		size_t *spare = before;
		before = last, last = row, row = spare;
	}
	return last[m];
}

// nearest pushes the name that was probably meant, or nil.
static void nearest(lua_State *L, const front *f, const char *name, size_t len) {
	const char *at = f->sinks, *one, *best = NULL;
	size_t n, best_len = 0, least = (len < 3 ? 1 : len / 3) + 1;
	while (len <= NAME_MAX_LEN && (one = next_name(&at, &n))) {
		size_t d = n <= NAME_MAX_LEN ? distance(name, len, one, n) : least;
		if (d < least) best = one, best_len = n, least = d;
	}
	if (best) lua_pushlstring(L, best, best_len);
	else lua_pushnil(L);
}

// known pushes the names of the sinks in one line.
static void known(lua_State *L, const front *f) {
	const char *at = f->sinks, *name;
	size_t len;
	lua_pushliteral(L, "");
	for (int i = 0; (name = next_name(&at, &len)); i++) {
		lua_pushstring(L, i ? ", " : "");
		lua_pushlstring(L, name, len);
		lua_concat(L, 3);
	}
}

static void unknown(lua_State *L, const front *f, const char *name, size_t len) {
	nearest(L, f, name, len);
	if (!lua_isnil(L, -1)) front_raise(L, "unknown sink \"%s\"; did you mean \"%s\"?", name, lua_tostring(L, -1));
	known(L, f);
	front_raise(L, "unknown sink \"%s\"; known sinks: %s", name, lua_tostring(L, -1));
}

// sink returns the bit of the sink whose name is at index.
static uint64_t sink(lua_State *L, const front *f, int index) {
	if (lua_type(L, index) != LUA_TSTRING)
		front_raise(L, "bad argument #1 to 'to' (the name of a sink or a list of names expected, got %s)", luaL_typename(L, index));
	const char *at = f->sinks, *one;
	size_t len, n;
	const char *name = lua_tolstring(L, index, &len);
	for (uint64_t bit = 1; (one = next_name(&at, &n)); bit <<= 1)
		if (n == len && memcmp(one, name, len) == 0) return bit;
	unknown(L, f, name, len);
	return 0;
}

// listed returns the bits of the sinks named in the array at 1, which is the part p or
// a table.
static uint64_t listed(lua_State *L, front *f, part *p) {
	uint64_t sinks = 0;
	uint32_t len = p ? f->api->length(p->d, p->node) : (uint32_t)lua_objlen(L, 1);
	if (p) part_family(L, f, p, 1);
	int family = lua_gettop(L);
	for (uint32_t i = 1; i <= len; i++) {
		PG_CHECK(L, f->vm);
		if (p) part_value(L, f, p->d, p->life, family, f->api->at(p->d, p->node, i));
		else lua_rawgeti(L, 1, (int)i);
		sinks |= sink(L, f, lua_gettop(L));
		lua_pop(L, 1);
	}
	if (!sinks) front_raise(L, "bad argument #1 to 'to' (the list names no sink; return nil to drop an event)");
	return sinks;
}

static uint64_t sinks_at_1(lua_State *L, front *f) {
	part *p = part_at(L, f, 1);
	if (p) part_check(L, f, 1);
	if (p ? p->d->nodes[p->node].kind == DOC_ARRAY : lua_type(L, 1) == LUA_TTABLE) return listed(L, f, p);
	return sink(L, f, 1);
}

static int to(lua_State *L) {
	front *f = front_of(L);
	if (lua_gettop(L) < 2) return front_raise(L, "bad argument #2 to 'to' (an event, a table or a list of them expected)");
	lua_settop(L, 2);
	uint64_t sinks = sinks_at_1(L, f);
	lua_settop(L, 2);
	mark *m = lua_newuserdata(L, sizeof *m);
	m->sinks = sinks;
	lua_rawgeti(L, LUA_REGISTRYINDEX, f->mark_ref);
	lua_setmetatable(L, -2);
	lua_createtable(L, 1, 0);
	lua_pushvalue(L, 2);
	lua_rawseti(L, -2, 1);
	lua_setfenv(L, -2);
	return 1;
}

// route_of pushes the value of the mark at index and returns its sinks. When there is
// no mark it pushes nothing and returns 0.
uint64_t route_of(lua_State *L, front *f, int index) {
	if (lua_type(L, index) != LUA_TUSERDATA || !lua_getmetatable(L, index)) return 0;
	int marked = lua_topointer(L, -1) == f->mark_meta;
	lua_pop(L, 1);
	if (!marked) return 0;
	lua_getfenv(L, index);
	lua_rawgeti(L, -1, 1);
	lua_remove(L, -2);
	return ((mark *)lua_touserdata(L, index))->sinks;
}

// route_add notes that the last document in f->out is for the sinks of f->route.
int route_add(front *f) {
	if (f->route_count == f->route_cap) {
		uint32_t cap = f->route_cap ? f->route_cap * 2 : 64;
		front_route *routes = realloc(f->routes, cap * sizeof *routes);
		if (!routes) return DOC_NO_MEMORY;
		f->routes = routes;
		f->route_cap = cap;
	}
	f->routes[f->route_count++] = (front_route){f->out_count - 1, f->route};
	return DOC_OK;
}

void route_open(lua_State *L, front *f) {
	lua_newtable(L);
	lua_pushboolean(L, 0);
	lua_setfield(L, -2, "__metatable");
	f->mark_meta = lua_topointer(L, -1);
	f->mark_ref = luaL_ref(L, LUA_REGISTRYINDEX);
	if (f->value) return; // what the function returns is for no sink
	lua_rawgeti(L, LUA_REGISTRYINDEX, f->vm->base);
	lua_pushcfunction(L, to);
	lua_setfield(L, -2, "to");
	lua_pop(L, 1);
}
