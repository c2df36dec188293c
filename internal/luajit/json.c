// The module json.

#include <string.h>

#include "engine.h"

// A document of json.decode lives as long as one of its containers. Their environment is its node
// table, which contains the owner.
typedef struct {
	doc *d;
} owner;

static int encode(lua_State *L) {
	plua_engine *e = plua_engine_of(L);
	lua_settop(L, 1);
	doc_buf *b = plua_encode_buffer(e);
	plua_encode(L, e, 1, b);
	plua_vm_reserve(L, e->vm, b->len);
	lua_pushlstring(L, b->data, b->len);
	return 1;
}

static int free_document(lua_State *L) {
	owner *o = lua_touserdata(L, 1);
	plua_engine_of(L)->api->free(o->d);
	o->d = NULL;
	return 0;
}

static owner *push_owner(lua_State *L) {
	owner *o = lua_newuserdata(L, sizeof *o);
	*o = (owner){0};
	lua_pushvalue(L, lua_upvalueindex(1));
	lua_setmetatable(L, -2);
	return o;
}

// parse parses a text into a new document.
static int parse(plua_engine *e, owner *o, const char *s, size_t len, uint32_t *root) {
	int fault = DOC_NO_MEMORY;
	e->api->free(o->d);
	o->d = e->api->new (e->event->max, &e->vm->used, e->vm->limit);
	if (o->d) *root = e->api->parse(o->d, s, len, &fault);
	return fault;
}

static int is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

// decode_container pushes a lazy document, or nil and an error message. It returns the number of
// values pushed.
static int decode_container(lua_State *L, plua_engine *e, const char *s, size_t len) {
	owner *o = push_owner(L);
	uint32_t root = 0;
	int fault = parse(e, o, s, len, &root), at = lua_gettop(L);
	if (fault == DOC_NO_MEMORY) { // free the documents that no script uses
		lua_gc(L, LUA_GCCOLLECT, 0);
		lua_gc(L, LUA_GCCOLLECT, 0); // frees what the first collection finalized
		fault = parse(e, o, s, len, &root);
	}
	if (fault == DOC_NO_MEMORY || fault == DOC_TOO_BIG) plua_check_doc(L, fault);
	if (fault) {
		lua_pushnil(L);
		if (fault == DOC_TOO_MANY_FIELDS) lua_pushfstring(L, "more than %d fields", DOC_MAX_FIELDS);
		else lua_pushfstring(L, "not JSON, at byte %d", (int)o->d->offset + 1);
		return 2;
	}
	lua_newtable(L);
	lua_pushvalue(L, at);
	lua_setfield(L, -2, "owner");
	plua_container_push(L, e, o->d, root, 0, at + 1);
	return 1;
}

static int decode(lua_State *L) {
	plua_engine *e = plua_engine_of(L);
	size_t len;
	luaL_checktype(L, 1, LUA_TSTRING);
	const char *s = lua_tolstring(L, 1, &len);
	lua_settop(L, 1);
	while (len && is_space(*s)) s++, len--;
	while (len && is_space(s[len - 1])) len--;
	if (len && (*s == '{' || *s == '[')) return decode_container(L, e, s, len);
	// A scalar is decoded as the element of an array.
	doc_buf *b = plua_encode_buffer(e);
	int fault = e->api->buf_add(b, "[", 1);
	if (!fault) fault = e->api->buf_add(b, s, len);
	if (!fault) fault = e->api->buf_add(b, "]", 1);
	plua_check_doc(L, fault);
	int n = decode_container(L, e, b->data, b->len);
	if (n == 2) return n;
	plua_container *c = lua_touserdata(L, -1);
	if (e->api->length(c->d, c->node) != 1) {
		lua_pushnil(L);
		lua_pushliteral(L, "not JSON, at byte 1");
		return 2;
	}
	plua_container_push_nodes(L, e, c, -1);
	plua_container_push_value(L, e, c->d, 0, lua_gettop(L), e->api->at(c->d, c->node, 1));
	return 1;
}

static int isnull(lua_State *L) {
	plua_engine *e = plua_engine_of(L);
	if (lua_gettop(L) < 2) {
		lua_pushboolean(L, plua_is_null(L, 1));
		return 1;
	}
	int kind = DOC_MISSING;
	plua_container *c = plua_container_at(L, e, 1);
	if (c) {
		c = plua_container_check(L, e, 1);
		size_t len;
		int object = c->d->nodes[c->node].kind == DOC_OBJECT;
		if (object && lua_type(L, 2) == LUA_TSTRING) {
			const char *key = lua_tolstring(L, 2, &len);
			kind = e->api->read(c->d, c->node, key, len);
		} else if (!object && lua_type(L, 2) == LUA_TNUMBER) {
			kind = e->api->at(c->d, c->node, lua_tonumber(L, 2));
		}
		lua_pushboolean(L, kind == DOC_NULL);
		return 1;
	}
	luaL_checktype(L, 1, LUA_TTABLE);
	lua_pushvalue(L, 2);
	lua_rawget(L, 1);
	lua_pushboolean(L, plua_is_null(L, -1));
	return 1;
}

// is_array_argument reports whether array()'s only argument is itself the array. An empty array
// created by array() is an element instead, as in kelindar/lua.
static int is_array_argument(lua_State *L, plua_engine *e) {
	plua_container *c = plua_container_at(L, e, 1);
	if (c) {
		plua_container_check(L, e, 1);
		return c->d->nodes[c->node].kind == DOC_ARRAY;
	}
	if (lua_type(L, 1) != LUA_TTABLE) return 0;
	lua_pushnil(L);
	if (!lua_next(L, 1)) return !plua_is_array(L, e, 1);
	lua_pop(L, 2);
	return lua_objlen(L, 1) > 0;
}

// array(table) marks a table as an array, even if it is empty. array(…) with other arguments
// returns a marked table of the arguments.
static int array(lua_State *L) {
	plua_engine *e = plua_engine_of(L);
	int n = lua_gettop(L);
	if (n == 1 && is_array_argument(L, e)) {
		if (!plua_container_at(L, e, 1)) plua_mark_array(L, e, 1);
		lua_settop(L, 1);
		return 1;
	}
	lua_createtable(L, n, 0);
	plua_mark_array(L, e, n + 1);
	for (int i = 1; i <= n; i++) {
		lua_pushvalue(L, i);
		lua_rawseti(L, n + 1, i);
	}
	return 1;
}

static int empty(lua_State *L) {
	lua_settop(L, 0);
	return array(L);
}

static int describe(lua_State *L) {
	plua_engine *e = plua_engine_of(L);
	if (luaL_getmetafield(L, 1, "__tostring") && !plua_container_at(L, e, 1)) {
		lua_pushvalue(L, 1);
		lua_call(L, 1, 1);
		return 1;
	}
	lua_settop(L, 1);
	if (!lua_isnil(L, 1)) return encode(L);
	lua_pushliteral(L, "nil");
	return 1;
}

// plua_json_describe replaces the error object on top of the stack with a text, if it has one.
void plua_json_describe(lua_State *L) {
	lua_pushvalue(L, -1);
	lua_pushcfunction(L, describe);
	lua_insert(L, -2);
	if (lua_pcall(L, 1, 1, 0) == 0 && lua_type(L, -1) == LUA_TSTRING) lua_replace(L, -2);
	else lua_pop(L, 1);
}

void plua_json_open(lua_State *L, plua_engine *e) {
	static const luaL_Reg functions[] = {
	    {"encode", encode}, {"isnull", isnull}, {"array", array}, {"empty", empty}, {NULL, NULL}};
	lua_newtable(L);
	lua_newtable(L);
	lua_pushliteral(L, "k");
	lua_setfield(L, -2, "__mode");
	lua_setmetatable(L, -2);
	e->encoder.arrays = luaL_ref(L, LUA_REGISTRYINDEX);
	lua_newtable(L);
	luaL_register(L, NULL, functions);
	lua_newtable(L);
	lua_pushcfunction(L, free_document);
	lua_setfield(L, -2, "__gc");
	lua_pushcclosure(L, decode, 1);
	lua_setfield(L, -2, "decode");
	lua_pushlightuserdata(L, NULL);
	lua_setfield(L, -2, "null");
}
