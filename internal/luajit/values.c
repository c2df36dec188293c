// Values that cross between Lua and Go, in the encoding described in values.go.

#include <string.h>

#include "engine.h"

static void add(lua_State *L, plua_engine *e, const void *data, size_t len) {
	plua_check_doc(L, e->api->buf_add(&e->gocall.request, data, len));
}

static void add_text(lua_State *L, plua_engine *e, char tag, const void *data, size_t len) {
	uint32_t n = (uint32_t)len;
	add(L, e, &tag, 1);
	add(L, e, &n, sizeof n);
	add(L, e, data, len);
}

static void encode_list(lua_State *L, plua_engine *e, int index, uint32_t len) {
	add(L, e, "L", 1);
	add(L, e, &len, sizeof len);
	for (uint32_t i = 1; i <= len; i++) {
		PLUA_CHECK(L, e->vm);
		e->encoder.path[e->encoder.depth - 1].index = i;
		lua_rawgeti(L, index, (int)i);
		plua_values_encode(L, e, lua_gettop(L));
		lua_pop(L, 1);
	}
}

// encode_map encodes the entries of a table with string keys.
static void encode_map(lua_State *L, plua_engine *e, int index) {
	add(L, e, "M", 1);
	lua_pushnil(L);
	while (lua_next(L, index)) {
		PLUA_CHECK(L, e->vm);
		plua_path_step *s = &e->encoder.path[e->encoder.depth - 1];
		s->key = lua_tolstring(L, -2, &s->key_len);
		add_text(L, e, 'S', s->key, s->key_len);
		plua_values_encode(L, e, lua_gettop(L));
		lua_pop(L, 1);
	}
	add(L, e, "E", 1);
}

static void encode_table(lua_State *L, plua_engine *e, int index) {
	uint32_t len;
	plua_encode_enter(L, e, index, "passed");
	int shape = plua_table_shape(L, e, index, &len);
	if (shape == PLUA_TABLE_LIST || (shape == PLUA_TABLE_EMPTY && plua_is_array(L, e, index)))
		encode_list(L, e, index, len);
	else encode_map(L, e, index);
	plua_encode_leave(e);
}

enum {
	DOCUMENT_VALUES = 3 // cost to parse one value of a document in Go, in values
};

// encode_document encodes a document as JSON.
static void encode_document(lua_State *L, plua_engine *e, int index) {
	e->encoder.buffer.len = 0;
	plua_encode_container(L, e, index, &e->encoder.buffer);
	e->gocall.values += DOCUMENT_VALUES * (size_t)plua_container_at(L, e, index)->d->count;
	add_text(L, e, 'J', e->encoder.buffer.data, e->encoder.buffer.len);
}

void plua_values_encode(lua_State *L, plua_engine *e, int index) {
	size_t len;
	const char *s;
	double x;
	e->gocall.values++;
	if (plua_container_at(L, e, index)) {
		encode_document(L, e, index);
		return;
	}
	switch (lua_type(L, index)) {
	case LUA_TNIL: add(L, e, "N", 1); return;
	case LUA_TBOOLEAN: add(L, e, lua_toboolean(L, index) ? "T" : "F", 1); return;
	case LUA_TNUMBER:
		x = lua_tonumber(L, index);
		add(L, e, "D", 1);
		add(L, e, &x, sizeof x);
		return;
	case LUA_TSTRING:
		s = lua_tolstring(L, index, &len);
		add_text(L, e, 'S', s, len);
		return;
	case LUA_TTABLE: encode_table(L, e, index); return;
	case LUA_TLIGHTUSERDATA:
		if (!plua_is_null(L, index)) break;
		add(L, e, "N", 1);
		return;
	case LUA_TUSERDATA:
		s = plua_bignum_text(L, e, index, &len);
		if (!s) break;
		add_text(L, e, 'B', s, len);
		return;
	}
	plua_encode_raise(L, e, "a %s cannot be passed to a Go function", luaL_typename(L, index));
}

enum {
	GO_VALUE = 64 // bytes of a value in Go
};

void plua_values_begin(plua_engine *e) {
	e->gocall.request.len = e->gocall.values = 0;
	plua_encode_begin(e);
}

void plua_values_reserve(lua_State *L, plua_engine *e) {
	plua_vm_reserve(L, e->vm, e->gocall.request.len + e->gocall.values * GO_VALUE);
}

int plua_values_keep(lua_State *L) {
	plua_engine *e = plua_engine_of(L);
	int n = lua_gettop(L);
	plua_values_begin(e);
	for (int i = 1; i <= n; i++) plua_values_encode(L, e, i);
	plua_values_reserve(L, e);
	return 0;
}

typedef struct {
	const char *at;
} reader;

static uint32_t decode_len(reader *r) {
	uint32_t n;
	memcpy(&n, r->at, sizeof n);
	r->at += sizeof n;
	return n;
}

// decode pushes the next value. At the end of a map it pushes nothing and returns 0.
static int decode(lua_State *L, plua_engine *e, reader *r) {
	uint32_t n;
	double x;
	PLUA_CHECK(L, e->vm);
	luaL_checkstack(L, 8, "the answer is nested too deep");
	switch (*r->at++) {
	case 'T': lua_pushboolean(L, 1); break;
	case 'F': lua_pushboolean(L, 0); break;
	case 'D':
		memcpy(&x, r->at, sizeof x);
		r->at += sizeof x;
		lua_pushnumber(L, x);
		break;
	case 'S':
		n = decode_len(r);
		plua_vm_reserve(L, e->vm, n);
		lua_pushlstring(L, r->at, n);
		r->at += n;
		break;
	case 'B':
		n = decode_len(r);
		plua_bignum_push(L, e, r->at, n);
		r->at += n;
		break;
	case 'L':
		n = decode_len(r);
		plua_vm_reserve(L, e->vm, n * 8);
		lua_createtable(L, (int)n, 0);
		plua_mark_array(L, e, lua_gettop(L));
		for (uint32_t i = 1; i <= n; i++) {
			decode(L, e, r);
			lua_rawseti(L, -2, (int)i);
		}
		break;
	case 'M':
		lua_newtable(L);
		while (decode(L, e, r)) {
			decode(L, e, r);
			lua_rawset(L, -3);
		}
		break;
	case 'E': return 0;
	default: lua_pushnil(L);
	}
	return 1;
}

int plua_values_decode(lua_State *L, plua_engine *e, const char *data, const char *end) {
	int n = 0;
	for (reader r = {data}; r.at < end; n++) decode(L, e, &r);
	return n;
}
