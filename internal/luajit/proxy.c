// Proxies: tables that represent the event and its containers in compiled scripts. They are empty,
// and new for each event. Their metamethods, in engine.lua, read and write the document through
// FFI.
//
// tables[node] is the proxy of a node; tables[0] is that of the event itself. generations[node] is
// the generation of the event for which the proxy was created. metatables[node] is its metatable,
// which contains the node at index NODE, and at OWNER the engine's address, which scripts cannot
// obtain.

#include "engine.h"

enum {
	NODE = 1,
	OWNER = 2
};

static void push_at(lua_State *L, int table, uint32_t node) {
	lua_rawgeti(L, LUA_REGISTRYINDEX, table);
	lua_rawgeti(L, -1, (int)node);
	lua_remove(L, -2);
}

// push_current pushes the proxy of a node, and reports whether it belongs to the current event.
static int push_current(lua_State *L, plua_engine *e, uint32_t node) {
	push_at(L, e->proxies.generations, node);
	int current = node == 0 || lua_tonumber(L, -1) == e->generation;
	lua_pop(L, 1);
	push_at(L, e->proxies.tables, node);
	return current;
}

plua_container *plua_proxy_container(lua_State *L, plua_engine *e, int index) {
	lua_rawgeti(L, -1, OWNER);
	lua_rawgeti(L, -2, NODE);
	int is_proxy = lua_touserdata(L, -2) == e;
	uint32_t node = (uint32_t)lua_tointeger(L, -1);
	lua_pop(L, 2);
	if (!is_proxy) return NULL;
	int current = push_current(L, e, node) && lua_topointer(L, -1) == lua_topointer(L, index);
	lua_pop(L, 1);
	if (!current) return &e->proxies.expired;
	e->proxies.live[node] = (plua_container){e->event, node, e->generation};
	return &e->proxies.live[node];
}

int plua_proxy_is(const plua_engine *e, const plua_container *c) {
	return c >= e->proxies.live && c < e->proxies.live + PLUA_PROXY_NODES;
}

// set_at pops a value and stores it in a table by node.
static void set_at(lua_State *L, int table, uint32_t node) {
	lua_rawgeti(L, LUA_REGISTRYINDEX, table);
	lua_insert(L, -2);
	lua_rawseti(L, -2, (int)node);
	lua_pop(L, 1);
}

static void push_metatable(lua_State *L, plua_engine *e, uint32_t node) {
	push_at(L, e->proxies.metatables, node);
	if (!lua_isnil(L, -1)) return;
	lua_pop(L, 1);
	lua_rawgeti(L, LUA_REGISTRYINDEX, e->proxies.make_metatable);
	lua_pushinteger(L, (int)node);
	lua_call(L, 1, 1);
}

void plua_proxy_push(lua_State *L, plua_engine *e, uint32_t node) {
	if (push_current(L, e, node)) return;
	lua_pop(L, 1);
	lua_newtable(L);
	push_metatable(L, e, node);
	lua_setmetatable(L, -2);
	lua_pushvalue(L, -1);
	set_at(L, e->proxies.tables, node);
	lua_pushnumber(L, e->generation);
	set_at(L, e->proxies.generations, node);
}

// new_table creates a table by node, stores it in a field of the table on top of the stack, and
// returns a reference to it.
static int new_table(lua_State *L, const char *name) {
	lua_createtable(L, PLUA_PROXY_NODES, 0);
	lua_pushvalue(L, -1);
	lua_setfield(L, -3, name);
	return luaL_ref(L, LUA_REGISTRYINDEX);
}

// set_make_metatable(function) sets the function that creates a node's metatable.
static int set_make_metatable(lua_State *L) {
	lua_settop(L, 1);
	plua_engine_of(L)->proxies.make_metatable = luaL_ref(L, LUA_REGISTRYINDEX);
	return 0;
}

void plua_proxy_open(lua_State *L, plua_engine *e) {
	lua_pushcfunction(L, set_make_metatable);
	lua_setfield(L, -2, "set_make_metatable");
	e->proxies.tables = new_table(L, "tables");
	e->proxies.generations = new_table(L, "generations");
	e->proxies.metatables = new_table(L, "metatables");
}
