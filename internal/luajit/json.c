// The module json.

#include <string.h>

#include "frontend.h"

// What json.decode returns lives as long as one of its parts, which all have the
// family as their environment, and that holds the owner.
typedef struct { doc *d; size_t size; } owner;

static int json_encode(lua_State *L) {
	front *f = front_of(L);
	lua_settop(L, 1);
	doc_buf *b = front_scratch(f);
	front_encode(L, f, 1, b);
	pg_vm_reserve(L, f->vm, b->len);
	lua_pushlstring(L, b->data, b->len);
	return 1;
}

static int owner_gc(lua_State *L) {
	owner *o = lua_touserdata(L, 1);
	front_of(L)->decoded -= o->size;
	front_of(L)->api->free(o->d);
	o->d = NULL;
	o->size = 0;
	return 0;
}

// collect frees documents that are no longer held, before too many are.
static void collect(lua_State *L, front *f) {
	if (f->decoded < f->decoded_max) return;
	lua_gc(L, LUA_GCCOLLECT, 0);
	lua_gc(L, LUA_GCCOLLECT, 0); // what the first one finalized
	if (f->decoded < f->decoded_max) return;
	pg_vm_stop(f->vm, PG_MEMORY);
	pg_vm_raise(L);
}

static owner *owner_push(lua_State *L, front *f) {
	collect(L, f);
	owner *o = lua_newuserdata(L, sizeof *o);
	*o = (owner){0};
	lua_pushvalue(L, lua_upvalueindex(1));
	lua_setmetatable(L, -2);
	o->d = f->api->new(f->event->max);
	if (!o->d) front_error(L, DOC_NO_MEMORY);
	return o;
}

static int is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

// decode_container pushes a lazy document, or nil and why there is none. It returns
// how many values that are.
static int decode_container(lua_State *L, front *f, const char *s, size_t len) {
	owner *o = owner_push(L, f);
	int fault, at = lua_gettop(L);
	uint32_t root = f->api->adopt(o->d, s, len, &fault);
	o->size = len + (size_t)o->d->count * sizeof(doc_node);
	f->decoded += o->size;
	if (fault == DOC_NO_MEMORY || fault == DOC_TOO_BIG) front_error(L, fault);
	if (fault) {
		lua_pushnil(L);
		lua_pushfstring(L, "not JSON, at byte %d", (int)o->d->offset + 1);
		return 2;
	}
	lua_newtable(L);
	lua_pushvalue(L, at);
	lua_setfield(L, -2, "owner");
	part_push(L, f, o->d, root, 0, at + 1);
	return 1;
}

static int json_decode(lua_State *L) {
	front *f = front_of(L);
	size_t len;
	luaL_checktype(L, 1, LUA_TSTRING);
	const char *s = lua_tolstring(L, 1, &len);
	lua_settop(L, 1);
	while (len && is_space(*s)) s++, len--;
	while (len && is_space(s[len - 1])) len--;
	if (len && (*s == '{' || *s == '[')) return decode_container(L, f, s, len);
	// A scalar is read as the element of an array.
	doc_buf *b = front_scratch(f);
	int fault = f->api->buf_add(b, "[", 1);
	if (!fault) fault = f->api->buf_add(b, s, len);
	if (!fault) fault = f->api->buf_add(b, "]", 1);
	front_error(L, fault);
	int n = decode_container(L, f, b->data, b->len);
	if (n == 2) return n;
	part *p = lua_touserdata(L, -1);
	if (f->api->length(p->d, p->node) != 1) {
		lua_pushnil(L);
		lua_pushliteral(L, "not JSON, at byte 1");
		return 2;
	}
	part_family(L, f, p, -1);
	part_value(L, f, p->d, 0, lua_gettop(L), f->api->at(p->d, p->node, 1));
	return 1;
}

static int json_isnull(lua_State *L) {
	front *f = front_of(L);
	int none = lua_gettop(L) < 2;
	if (none) {
		lua_pushboolean(L, front_is_null(L, 1));
		return 1;
	}
	int kind = DOC_MISSING;
	part *p = part_at(L, f, 1);
	if (p) {
		p = part_check(L, f, 1);
		size_t len;
		int object = p->d->nodes[p->node].kind == DOC_OBJECT;
		if (object && lua_type(L, 2) == LUA_TSTRING) {
			const char *key = lua_tolstring(L, 2, &len);
			kind = f->api->read(p->d, p->node, key, len);
		} else if (!object && lua_type(L, 2) == LUA_TNUMBER) {
			kind = f->api->at(p->d, p->node, lua_tonumber(L, 2));
		}
		lua_pushboolean(L, kind == DOC_NULL);
		return 1;
	}
	luaL_checktype(L, 1, LUA_TTABLE);
	lua_pushvalue(L, 2);
	lua_rawget(L, 1);
	lua_pushboolean(L, front_is_null(L, -1));
	return 1;
}

static void mark(lua_State *L, front *f, int index) {
	lua_rawgeti(L, LUA_REGISTRYINDEX, f->arrays);
	lua_pushvalue(L, index);
	lua_pushboolean(L, 1);
	lua_rawset(L, -3);
	lua_pop(L, 1);
}

static int is_marked(lua_State *L, front *f, int index) {
	lua_rawgeti(L, LUA_REGISTRYINDEX, f->arrays);
	lua_pushvalue(L, index);
	lua_rawget(L, -2);
	int marked = lua_toboolean(L, -1);
	lua_pop(L, 2);
	return marked;
}

// is_listed tells whether the only argument of array() is the array itself. An empty
// array that array() made is an element, as in kelindar/lua.
static int is_listed(lua_State *L, front *f) {
	part *p = part_at(L, f, 1);
	if (p) {
		part_check(L, f, 1);
		return p->d->nodes[p->node].kind == DOC_ARRAY;
	}
	if (lua_type(L, 1) != LUA_TTABLE) return 0;
	lua_pushnil(L);
	if (!lua_next(L, 1)) return !is_marked(L, f, 1);
	lua_pop(L, 2);
	return lua_objlen(L, 1) > 0;
}

// array(table) marks a table, so that it is an array even when it is empty. Other
// arguments become the elements of a new one.
static int json_array(lua_State *L) {
	front *f = front_of(L);
	int n = lua_gettop(L);
	if (n == 1 && is_listed(L, f)) {
		if (!part_at(L, f, 1)) mark(L, f, 1);
		lua_settop(L, 1);
		return 1;
	}
	lua_createtable(L, n, 0);
	mark(L, f, n + 1);
	for (int i = 1; i <= n; i++) {
		lua_pushvalue(L, i);
		lua_rawseti(L, n + 1, i);
	}
	return 1;
}

static int json_empty(lua_State *L) {
	lua_settop(L, 0);
	return json_array(L);
}

static int describe(lua_State *L) {
	front *f = front_of(L);
	if (luaL_getmetafield(L, 1, "__tostring") && !part_at(L, f, 1)) {
		lua_pushvalue(L, 1);
		lua_call(L, 1, 1);
		return 1;
	}
	lua_settop(L, 1);
	if (!lua_isnil(L, 1)) return json_encode(L);
	lua_pushliteral(L, "nil");
	return 1;
}

// front_describe replaces the error object on top of the stack by a text, if it has one.
void front_describe(lua_State *L) {
	lua_pushvalue(L, -1);
	lua_pushcfunction(L, describe);
	lua_insert(L, -2);
	if (lua_pcall(L, 1, 1, 0) == 0 && lua_type(L, -1) == LUA_TSTRING) lua_replace(L, -2);
	else lua_pop(L, 1);
}

void json_open(lua_State *L, front *f) {
	static const luaL_Reg functions[] = {
		{"encode", json_encode}, {"isnull", json_isnull}, {"array", json_array}, {"empty", json_empty}, {NULL, NULL}};
	lua_newtable(L);
	lua_newtable(L);
	lua_pushliteral(L, "k");
	lua_setfield(L, -2, "__mode");
	lua_setmetatable(L, -2);
	f->arrays = luaL_ref(L, LUA_REGISTRYINDEX);
	lua_newtable(L);
	luaL_register(L, NULL, functions);
	lua_newtable(L);
	lua_pushcfunction(L, owner_gc);
	lua_setfield(L, -2, "__gc");
	lua_pushcclosure(L, json_decode, 1);
	lua_setfield(L, -2, "decode");
	lua_pushlightuserdata(L, NULL);
	lua_setfield(L, -2, "null");
}
