// Containers: the objects and arrays of a document in Lua.
//
// The environment of a container is its document's node table: node_table[node] is the container of
// a node, so that reading the node again returns the same object, and node_table[-n] is the n-th
// table of the script that was assigned into the document.

#include "engine.h"

plua_container *plua_container_at(lua_State *L, plua_engine *e, int index) {
	if (!lua_getmetatable(L, index)) return NULL;
	plua_container *c = NULL;
	if (lua_topointer(L, -1) == e->container.address) c = lua_touserdata(L, index);
	else if (e->compiled) c = plua_proxy_container(L, e, index);
	lua_pop(L, 1);
	return c;
}

void plua_container_push_nodes(lua_State *L, plua_engine *e, const plua_container *c, int index) {
	if (plua_proxy_is(e, c)) lua_rawgeti(L, LUA_REGISTRYINDEX, e->node_table);
	else lua_getfenv(L, index);
}

static plua_container *check_alive(lua_State *L, plua_engine *e, plua_container *c) {
	if (c == &e->proxies.expired || (c->generation && c->generation != e->generation))
		plua_raise(
		    L, "an event was used after its call of main has ended; keep its values instead");
	return c;
}

plua_container *plua_container_check(lua_State *L, plua_engine *e, int index) {
	plua_container *c = plua_container_at(L, e, index);
	if (!c) luaL_argerror(L, index, "document expected");
	return check_alive(L, e, c);
}

plua_container *plua_container_self(lua_State *L, plua_engine *e) {
	plua_container *c = lua_touserdata(L, 1);
	return check_alive(L, e, c ? c : plua_container_at(L, e, 1));
}

void plua_container_push(
    lua_State *L, plua_engine *e, doc *d, uint32_t node, double life, int node_table) {
	if (e->compiled && node < PLUA_PROXY_NODES && d == e->event && life == e->generation) {
		plua_proxy_push(L, e, node);
		return;
	}
	lua_rawgeti(L, node_table, (int)node);
	plua_container *c = lua_touserdata(L, -1);
	if (c && c->generation == life) return;
	lua_pop(L, 1);
	c = lua_newuserdata(L, sizeof *c);
	*c = (plua_container){d, node, life};
	lua_rawgeti(L, LUA_REGISTRYINDEX, e->container.ref);
	lua_setmetatable(L, -2);
	lua_pushvalue(L, node_table);
	lua_setfenv(L, -2);
	lua_pushvalue(L, -1);
	lua_rawseti(L, node_table, (int)node);
}

// plua_container_push_value pushes the value found by doc_read or a similar function.
void plua_container_push_value(
    lua_State *L, plua_engine *e, doc *d, double life, int node_table, int kind) {
	switch (kind) {
	case DOC_FALSE: lua_pushboolean(L, 0); break;
	case DOC_TRUE: lua_pushboolean(L, 1); break;
	case DOC_NUMBER: lua_pushnumber(L, d->num); break;
	case DOC_STRING: lua_pushlstring(L, d->str, d->str_len); break;
	case DOC_OBJECT:
	case DOC_ARRAY: plua_container_push(L, e, d, d->got, life, node_table); break;
	case DOC_BIGNUM: plua_bignum_push(L, e, d->str, d->str_len); break;
	case DOC_EXTERNAL: lua_rawgeti(L, node_table, -(int)d->num); break;
	default: lua_pushnil(L);
	}
}

int plua_check_doc(lua_State *L, int error) {
	switch (error) {
	case DOC_OK: return 0;
	case DOC_TOO_DEEP: return plua_raise(L, "the document is nested deeper than %d", DOC_MAX_DEPTH);
	case DOC_TOO_MANY_FIELDS:
		return plua_raise(L, "the document has more than %d fields", DOC_MAX_FIELDS);
	default: // DOC_NO_MEMORY or DOC_TOO_BIG
		plua_vm_stop(plua_vm_of(L), PLUA_MEMORY);
		return plua_vm_raise(L);
	}
}
