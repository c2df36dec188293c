// Operations of scripts on the objects and arrays of documents: metamethods, and versions of next,
// pairs, table.insert and table.remove that accept documents.

#include <math.h>

#include "engine.h"

static int is_object(const plua_container *c) { return c->d->nodes[c->node].kind == DOC_OBJECT; }

static int container_index(lua_State *L) {
	plua_engine *e = plua_engine_of(L);
	plua_container *c = plua_container_self(L, e);
	int kind = DOC_MISSING, type = lua_type(L, 2);
	if (is_object(c)) {
		size_t len;
		if (type != LUA_TSTRING) return 0;
		const char *key = lua_tolstring(L, 2, &len);
		kind = e->api->read(c->d, c->node, key, len);
	} else if (type == LUA_TNUMBER) {
		kind = e->api->at(c->d, c->node, lua_tonumber(L, 2));
	}
	if (kind >= DOC_OBJECT) plua_container_push_nodes(L, e, c, 1);
	plua_container_push_value(L, e, c->d, c->generation, lua_gettop(L), kind);
	return 1;
}

// copy_container copies a container into a document as a value.
static uint32_t copy_container(lua_State *L, plua_engine *e, doc *d, int index) {
	doc_buf *b = plua_encode_buffer(e);
	int fault = DOC_OK;
	plua_encode_container(L, e, index, b);
	uint32_t value = e->api->parse(d, b->data, b->len, &fault);
	plua_check_doc(L, fault);
	return value;
}

// external_value creates a value for a table of the script, which is encoded with the document.
static uint32_t external_value(lua_State *L, plua_engine *e, doc *d, int index) {
	uint32_t value = e->api->external(d);
	if (!value) return 0;
	plua_container_push_nodes(L, e, plua_container_at(L, e, 1), 1);
	lua_pushvalue(L, index);
	lua_rawseti(L, -2, -(int)d->externals);
	lua_pop(L, 1);
	return value;
}

// raise_value raises an error about the value of a key.
static void raise_value(lua_State *L, int key, const char *what) {
	if (lua_type(L, key) == LUA_TSTRING) plua_raise(L, "%s: %s", lua_tostring(L, key), what);
	plua_raise(L, "element %d: %s", (int)lua_tonumber(L, key), what);
}

// make_value converts the Lua value at index to a value of d, for the document at stack index 1.
static uint32_t make_value(lua_State *L, plua_engine *e, doc *d, int key, int index) {
	size_t len;
	const char *s;
	switch (lua_type(L, index)) {
	case LUA_TBOOLEAN: return e->api->literal(d, lua_toboolean(L, index) ? DOC_TRUE : DOC_FALSE);
	case LUA_TNUMBER: {
		double x = lua_tonumber(L, index);
		if (!isfinite(x))
			raise_value(L, key, isnan(x) ? "nan is no JSON number" : "inf is no JSON number");
		return e->api->number(d, x);
	}
	case LUA_TSTRING:
		s = lua_tolstring(L, index, &len);
		if (!e->api->utf8(s, len)) raise_value(L, key, "the text is not valid UTF-8");
		return e->api->string(d, s, len);
	case LUA_TTABLE:
		return plua_container_at(L, e, index) ? copy_container(L, e, d, index)
		                                      : external_value(L, e, d, index);
	case LUA_TLIGHTUSERDATA:
		if (plua_is_null(L, index)) return e->api->literal(d, DOC_NULL);
		break;
	case LUA_TUSERDATA:
		if ((s = plua_bignum_text(L, e, index, &len))) return e->api->number_text(d, s, len);
		if (plua_container_at(L, e, index)) return copy_container(L, e, d, index);
	}
	lua_pushfstring(L, "a %s cannot be written as JSON", luaL_typename(L, index));
	raise_value(L, key, lua_tostring(L, -1));
	return 0;
}

static void raise_index(lua_State *L, int key, uint32_t len) {
	lua_pushvalue(L, key);
	const char *k = lua_tostring(L, -1);
	plua_raise(L,
	    "attempt to write element %s of an array of %d; an array can be written from 1 to %d",
	    k ? k : luaL_typename(L, key), (int)len, (int)len + 1);
}

static int write_object(lua_State *L, plua_engine *e, plua_container *c) {
	size_t len;
	if (lua_type(L, 2) != LUA_TSTRING) {
		lua_pushvalue(L, 2);
		const char *k = lua_tostring(L, -1);
		return plua_raise(L, "the key of an object must be a string, not the %s %s",
		    luaL_typename(L, 2), k ? k : "");
	}
	const char *key = lua_tolstring(L, 2, &len);
	if (lua_isnil(L, 3)) return plua_check_doc(L, e->api->remove(c->d, c->node, key, len));
	if (!e->api->utf8(key, len)) return plua_raise(L, "the key is not valid UTF-8");
	uint32_t value = make_value(L, e, c->d, 2, 3);
	return plua_check_doc(L, e->api->put(c->d, c->node, key, len, value));
}

static int write_array(lua_State *L, plua_engine *e, plua_container *c) {
	uint32_t len = e->api->length(c->d, c->node);
	double i = lua_type(L, 2) == LUA_TNUMBER ? lua_tonumber(L, 2) : 0;
	if (lua_isnil(L, 3) && i == len + 1.0) return 0;
	if (!(i >= 1 && i <= len + 1.0 && i == floor(i))) raise_index(L, 2, len);
	if (lua_isnil(L, 3)) {
		if (i == len) return plua_check_doc(L, e->api->remove_at(c->d, c->node, i));
		return plua_check_doc(L, e->api->put_at(c->d, c->node, i, e->api->literal(c->d, DOC_NULL)));
	}
	return plua_check_doc(L, e->api->put_at(c->d, c->node, i, make_value(L, e, c->d, 2, 3)));
}

static int container_newindex(lua_State *L) {
	plua_engine *e = plua_engine_of(L);
	plua_container *c = plua_container_self(L, e);
	return is_object(c) ? write_object(L, e, c) : write_array(L, e, c);
}

static int container_len(lua_State *L) {
	plua_engine *e = plua_engine_of(L);
	plua_container *c = plua_container_self(L, e);
	lua_pushinteger(L, is_object(c) ? 0 : e->api->length(c->d, c->node));
	return 1;
}

static int next_element(lua_State *L, plua_engine *e, plua_container *c, double i) {
	uint32_t len = e->api->length(c->d, c->node);
	plua_container_push_nodes(L, e, c, 1);
	int node_table = lua_gettop(L);
	for (i = i + 1; i <= len; i++) {
		int kind = e->api->at(c->d, c->node, i);
		if (kind <= DOC_NULL) continue;
		lua_pushnumber(L, i);
		plua_container_push_value(L, e, c->d, c->generation, node_table, kind);
		return 2;
	}
	lua_pushnil(L);
	return 1;
}

// key_of_next returns the index passed to next, 0 for nil. It may be past the end if the element
// was removed. A string of digits is not an index.
static double key_of_next(lua_State *L) {
	double i = lua_tonumber(L, 2);
	int valid = lua_type(L, 2) == LUA_TNUMBER && i >= 0 && i < 9223372036854775808.0 &&
	            i == (double)(int64_t)i;
	if (!valid && !lua_isnil(L, 2)) plua_raise(L, "invalid key to 'next'");
	return i;
}

// next(document, key)
static int container_next(lua_State *L) {
	plua_engine *e = plua_engine_of(L);
	plua_container *c = plua_container_check(L, e, 1);
	lua_settop(L, 2);
	if (!is_object(c)) return next_element(L, e, c, key_of_next(L));
	uint32_t field = 0;
	if (!lua_isnil(L, 2)) {
		size_t len;
		const char *key = lua_type(L, 2) == LUA_TSTRING ? lua_tolstring(L, 2, &len)
		                                                : NULL; // the number 2 is not "2"
		if (key) field = e->api->find(c->d, c->node, key, len);
		if (!field) return plua_raise(L, "invalid key to 'next'");
	}
	plua_container_push_nodes(L, e, c, 1);
	while ((field = e->api->step(c->d, c->node, field))) {
		if (c->d->nodes[c->d->got].kind == DOC_NULL) continue;
		lua_pushlstring(L, c->d->str, c->d->str_len);
		plua_container_push_value(L, e, c->d, c->generation, 3, e->api->value(c->d, c->d->got));
		return 2;
	}
	lua_pushnil(L);
	return 1;
}

static int container_pairs(lua_State *L) {
	plua_container_check(L, plua_engine_of(L), 1);
	lua_pushvalue(L, lua_upvalueindex(1));
	lua_pushvalue(L, 1);
	lua_pushnil(L);
	return 3;
}

// An array knows its length, so ipairs does not stop at a null.
static int next_item(lua_State *L) {
	plua_engine *e = plua_engine_of(L);
	plua_container *c = plua_container_check(L, e, 1);
	double i = luaL_checknumber(L, 2) + 1;
	lua_settop(L, 2);
	if (is_object(c) || i > e->api->length(c->d, c->node)) return 0;
	lua_pushnumber(L, i);
	plua_container_push_nodes(L, e, c, 1);
	plua_container_push_value(L, e, c->d, c->generation, 4, e->api->at(c->d, c->node, i));
	lua_remove(L, 4);
	return 2;
}

static int container_ipairs(lua_State *L) {
	plua_container_check(L, plua_engine_of(L), 1);
	lua_pushvalue(L, lua_upvalueindex(1));
	lua_pushvalue(L, 1);
	lua_pushinteger(L, 0);
	return 3;
}

static int container_tostring(lua_State *L) {
	lua_pushfstring(L, "table: %c", lua_topointer(L, 1));
	return 1;
}

static int check_array(lua_State *L, plua_engine *e, plua_container **c) {
	*c = plua_container_check(L, e, 1);
	if (is_object(*c)) plua_raise(L, "an object of JSON is no list");
	return (int)e->api->length((*c)->d, (*c)->node);
}

// insert(array, [index,] value)
static int container_insert(lua_State *L) {
	plua_engine *e = plua_engine_of(L);
	plua_container *c;
	int len = check_array(L, e, &c);
	if (lua_gettop(L) == 2) {
		lua_pushinteger(L, len + 1);
		lua_insert(L, 2);
	}
	double i = luaL_checknumber(L, 2);
	if (!(i >= 1 && i <= len + 1 && i == floor(i))) raise_index(L, 2, (uint32_t)len);
	luaL_checkany(L, 3);
	uint32_t value =
	    lua_isnil(L, 3) ? e->api->literal(c->d, DOC_NULL) : make_value(L, e, c->d, 2, 3);
	return plua_check_doc(L, e->api->insert(c->d, c->node, i, value));
}

// remove(array, [index])
static int container_remove(lua_State *L) {
	plua_engine *e = plua_engine_of(L);
	plua_container *c;
	int len = check_array(L, e, &c);
	double i = luaL_optnumber(L, 2, len);
	if (!(i >= 1 && i <= len && i == floor(i))) return 0;
	lua_settop(L, 1);
	plua_container_push_nodes(L, e, c, 1);
	plua_container_push_value(L, e, c->d, c->generation, 2, e->api->at(c->d, c->node, i));
	plua_check_doc(L, e->api->remove_at(c->d, c->node, i));
	return 1;
}

static void set_iterator(
    lua_State *L, const char *name, lua_CFunction function, lua_CFunction step) {
	lua_pushcfunction(L, step);
	lua_pushcclosure(L, function, 1);
	lua_setfield(L, -2, name);
}

// is(value)
static int container_is(lua_State *L) {
	lua_pushboolean(L, plua_container_at(L, plua_engine_of(L), 1) != NULL);
	return 1;
}

void plua_metamethods_open(lua_State *L, plua_engine *e) {
	static const luaL_Reg meta[] = {{"__index", container_index},
	    {"__newindex", container_newindex}, {"__len", container_len},
	    {"__tostring", container_tostring}, {NULL, NULL}};
	static const luaL_Reg functions[] = {{"is", container_is}, {"next", container_next},
	    {"read", container_index}, {"write", container_newindex}, {"length", container_len},
	    {"insert", container_insert}, {"remove", container_remove}, {NULL, NULL}};
	lua_newtable(L);
	luaL_register(L, NULL, meta);
	set_iterator(L, "__pairs", container_pairs, container_next);
	set_iterator(L, "__ipairs", container_ipairs, next_item);
	lua_pushboolean(L, 0);
	lua_setfield(L, -2, "__metatable");
	e->container.address = lua_topointer(L, -1);
	e->container.ref = luaL_ref(L, LUA_REGISTRYINDEX);
	lua_newtable(L);
	e->node_table = luaL_ref(L, LUA_REGISTRYINDEX);
	lua_newtable(L);
	luaL_register(L, NULL, functions);
	set_iterator(L, "pairs", container_pairs, container_next);
	set_iterator(L, "ipairs", container_ipairs, next_item);
}
