// Encodes Lua values as JSON. A table's keys are written in byte order, so that equal values give
// equal bytes.

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"

enum {
	SHORT_LIST = 10 // number of items above which a list must be at least half full
};

typedef struct {
	const char *s;
	size_t len;
} key;

void plua_encode_begin(plua_engine *e) {
	e->encoder.depth = e->encoder.level = 0;
	e->encoder.keys.len = 0;
}

doc_buf *plua_encode_buffer(plua_engine *e) {
	plua_encode_begin(e);
	e->encoder.buffer.len = 0;
	return &e->encoder.buffer;
}

int plua_is_null(lua_State *L, int index) {
	return lua_type(L, index) == LUA_TLIGHTUSERDATA && !lua_touserdata(L, index);
}

int plua_is_array(lua_State *L, plua_engine *e, int index) {
	lua_rawgeti(L, LUA_REGISTRYINDEX, e->encoder.arrays);
	lua_pushvalue(L, index);
	lua_rawget(L, -2);
	int marked = lua_toboolean(L, -1);
	lua_pop(L, 2);
	return marked;
}

void plua_mark_array(lua_State *L, plua_engine *e, int index) {
	lua_rawgeti(L, LUA_REGISTRYINDEX, e->encoder.arrays);
	lua_pushvalue(L, index);
	lua_pushboolean(L, 1);
	lua_rawset(L, -3);
	lua_pop(L, 1);
}

void plua_encode_raise(lua_State *L, plua_engine *e, const char *format, ...) {
	char path[256], text[256];
	size_t n = 0;
	for (uint32_t i = 0; i < e->encoder.depth && n < sizeof path - 40; i++) {
		const plua_path_step *s = &e->encoder.path[i];
		int room = (int)(sizeof path - n - 20),
		    len = (int)s->key_len < room ? (int)s->key_len : room;
		if (s->key)
			n += (size_t)snprintf(path + n, sizeof path - n, n ? ".%.*s" : "%.*s", len, s->key);
		else if (s->index) n += (size_t)snprintf(path + n, sizeof path - n, "[%u]", s->index);
	}
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	path[n] = 0;
	plua_raise(L, n ? "%s: %s" : "%s%s", path, text);
}

// check raises the error for a doc_error from writing to out.
static void check(lua_State *L, plua_engine *e, doc_buf *out, int fault) {
	if (fault == DOC_TOO_BIG && out == &e->out.docs)
		plua_raise(L, "output limit exceeded by this event alone");
	plua_check_doc(L, fault);
}

// plua_table_shape returns the kind of a table. A list may have holes, which become nulls, if it is
// short or at least half full.
int plua_table_shape(lua_State *L, plua_engine *e, int index, uint32_t *len) {
	uint32_t items = 0, names = 0;
	double last = 0;
	const char *name = ""; // the table keeps it alive
	lua_pushnil(L);
	while (lua_next(L, index)) {
		PLUA_CHECK(L, e->vm);
		lua_pop(L, 1);
		if (lua_type(L, -1) == LUA_TSTRING) {
			if (!names++) name = lua_tostring(L, -1);
		} else if (lua_type(L, -1) == LUA_TNUMBER) {
			double i = lua_tonumber(L, -1);
			if (!(i >= 1 && i == floor(i)))
				plua_encode_raise(
				    L, e, "the key %.14g cannot be written as JSON; use strings, or 1 to n", i);
			if (i > last) last = i;
			items++;
		} else {
			plua_encode_raise(L, e,
			    "a key that is a %s cannot be written as JSON; use strings, or 1 to n",
			    luaL_typename(L, -1));
		}
	}
	if (items && names)
		plua_encode_raise(
		    L, e, "a table with list items and the key \"%.63s\" cannot be written as JSON", name);
	if (last > SHORT_LIST && last > 2.0 * items)
		plua_encode_raise(
		    L, e, "a list with only %u of its %.14g items cannot be written as JSON", items, last);
	if (names && plua_is_array(L, e, index))
		plua_encode_raise(L, e, "an array with the key \"%.63s\" cannot be written as JSON", name);
	*len = (uint32_t)last;
	return items ? PLUA_TABLE_LIST : names ? PLUA_TABLE_OBJECT : PLUA_TABLE_EMPTY;
}

static int by_bytes(const void *a, const void *b) {
	const key *x = a, *y = b;
	size_t n = x->len < y->len ? x->len : y->len;
	int order = memcmp(x->s, y->s, n);
	return order ? order : (x->len > y->len) - (x->len < y->len);
}

static inline void enter(lua_State *L, plua_engine *e, int index, const char *verb) {
	const void *table = lua_topointer(L, index);
	if (e->encoder.level == PLUA_ENCODE_DEPTH)
		plua_encode_raise(
		    L, e, "a table nested deeper than %d cannot be %s", PLUA_ENCODE_DEPTH, verb);
	for (uint32_t i = 0; i < e->encoder.depth; i++)
		if (e->encoder.path[i].table == table)
			plua_encode_raise(L, e, "a table that contains itself (a cycle) cannot be %s", verb);
	e->encoder.path[e->encoder.depth++] = (plua_path_step){.table = table};
	e->encoder.level++;
	luaL_checkstack(L, 8, "table too deep");
}

void plua_encode_enter(lua_State *L, plua_engine *e, int index, const char *verb) {
	enter(L, e, index, verb);
}

void plua_encode_leave(plua_engine *e) {
	e->encoder.depth--;
	e->encoder.level--;
}

static void list(lua_State *L, plua_engine *e, int index, uint32_t len, doc_buf *out) {
	check(L, e, out, e->api->buf_add(out, "[", 1));
	for (uint32_t i = 1; i <= len; i++) {
		PLUA_CHECK(L, e->vm);
		if (i > 1) check(L, e, out, e->api->buf_add(out, ",", 1));
		e->encoder.path[e->encoder.depth - 1].index = i;
		lua_rawgeti(L, index, (int)i);
		plua_encode(L, e, lua_gettop(L), out);
		lua_pop(L, 1);
	}
	check(L, e, out, e->api->buf_add(out, "]", 1));
}

static size_t collect(lua_State *L, plua_engine *e, int index) {
	size_t count = 0;
	lua_pushnil(L);
	while (lua_next(L, index)) {
		key k;
		k.s = lua_tolstring(L, -2, &k.len);
		check(L, e, NULL, e->api->buf_add(&e->encoder.keys, (const char *)&k, sizeof k));
		lua_pop(L, 1);
		count++;
	}
	return count;
}

static void object(lua_State *L, plua_engine *e, int index, doc_buf *out) {
	size_t from = e->encoder.keys.len, count = collect(L, e, index);
	qsort(e->encoder.keys.data + from, count, sizeof(key), by_bytes);
	check(L, e, out, e->api->buf_add(out, "{", 1));
	for (size_t i = 0; i < count; i++) {
		PLUA_CHECK(L, e->vm);
		key k;
		memcpy(&k, e->encoder.keys.data + from + i * sizeof k, sizeof k);
		e->encoder.path[e->encoder.depth - 1].key = k.s;
		e->encoder.path[e->encoder.depth - 1].key_len = k.len;
		if (!e->api->utf8(k.s, k.len)) plua_encode_raise(L, e, "the key is not valid UTF-8");
		if (i) check(L, e, out, e->api->buf_add(out, ",", 1));
		check(L, e, out, e->api->quote(out, k.s, k.len));
		check(L, e, out, e->api->buf_add(out, ":", 1));
		lua_pushlstring(L, k.s, k.len);
		lua_rawget(L, index);
		plua_encode(L, e, lua_gettop(L), out);
		lua_pop(L, 1);
	}
	e->encoder.keys.len = from;
	check(L, e, out, e->api->buf_add(out, "}", 1));
}

static void table(lua_State *L, plua_engine *e, int index, doc_buf *out) {
	uint32_t len;
	enter(L, e, index, "written as JSON");
	switch (plua_table_shape(L, e, index, &len)) {
	case PLUA_TABLE_LIST: list(L, e, index, len, out); break;
	case PLUA_TABLE_OBJECT: object(L, e, index, out); break;
	default: check(L, e, out, e->api->buf_add(out, plua_is_array(L, e, index) ? "[]" : "{}", 2));
	}
	plua_encode_leave(e);
}

static void number(lua_State *L, plua_engine *e, double x, doc_buf *out) {
	if (!isfinite(x)) plua_encode_raise(L, e, "%s is no JSON number", isnan(x) ? "nan" : "inf");
	check(L, e, out, e->api->put_number(out, x));
}

static void text(lua_State *L, plua_engine *e, int index, doc_buf *out) {
	size_t len;
	const char *s = lua_tolstring(L, index, &len);
	if (!e->api->utf8(s, len)) plua_encode_raise(L, e, "the text is not valid UTF-8");
	check(L, e, out, e->api->quote(out, s, len));
}

static void encode_userdata(lua_State *L, plua_engine *e, int index, doc_buf *out) {
	size_t len;
	const char *s = plua_bignum_text(L, e, index, &len);
	if (s) check(L, e, out, e->api->buf_add(out, s, len));
	else if (plua_container_at(L, e, index)) plua_encode_container(L, e, index, out);
	else plua_encode_raise(L, e, "a %s cannot be written as JSON", luaL_typename(L, index));
}

typedef struct {
	lua_State *L;
	doc *d;
} encoding;

// encode_external encodes a table of the script that was assigned into a document. The document's
// node table is on top of the stack.
static int encode_external(void *context, uint32_t number, doc_buf *out) {
	encoding *enc = context;
	lua_State *L = enc->L;
	plua_engine *e = plua_engine_of(L);
	const doc_node *field = &enc->d->nodes[enc->d->field];
	uint32_t level = e->encoder.level;
	e->encoder.level = enc->d->depth;
	e->encoder.path[e->encoder.depth++] =
	    (plua_path_step){.key = field->key, .key_len = field->key_len};
	luaL_checkstack(L, 8, "document too deep");
	lua_rawgeti(L, lua_gettop(L), -(int)number);
	plua_encode(L, e, lua_gettop(L), out);
	lua_pop(L, 1);
	e->encoder.depth--;
	e->encoder.level = level;
	return DOC_OK;
}

void plua_encode_container(lua_State *L, plua_engine *e, int index, doc_buf *out) {
	plua_container *c = plua_container_check(L, e, index);
	encoding enc = {L, c->d};
	void *outer = c->d->context;
	c->d->encode_external = encode_external;
	c->d->context = &enc;
	luaL_checkstack(L, 8, "document too deep");
	plua_container_push_nodes(L, e, c, index);
	int fault = e->api->encode(c->d, c->node, e->encoder.level, out);
	lua_pop(L, 1);
	c->d->context = outer;
	check(L, e, out, fault);
}

void plua_encode(lua_State *L, plua_engine *e, int index, doc_buf *out) {
	switch (lua_type(L, index)) {
	case LUA_TNIL: check(L, e, out, e->api->buf_add(out, "null", 4)); break;
	case LUA_TBOOLEAN:
		check(L, e, out,
		    lua_toboolean(L, index) ? e->api->buf_add(out, "true", 4)
		                            : e->api->buf_add(out, "false", 5));
		break;
	case LUA_TNUMBER: number(L, e, lua_tonumber(L, index), out); break;
	case LUA_TSTRING: text(L, e, index, out); break;
	case LUA_TTABLE:
		if (plua_container_at(L, e, index)) plua_encode_container(L, e, index, out);
		else table(L, e, index, out);
		break;
	case LUA_TLIGHTUSERDATA:
		if (plua_is_null(L, index)) {
			check(L, e, out, e->api->buf_add(out, "null", 4));
			break;
		}
	// fall through
	default: encode_userdata(L, e, index, out);
	}
}
