// Lua values as JSON. A table's keys are written in byte order, so that the same
// values give the same bytes.

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend.h"

typedef struct { const char *s; size_t len; } key;

void front_start(front *f) {
	f->depth = 0;
	f->keys.len = 0;
}

doc_buf *front_scratch(front *f) {
	front_start(f);
	f->scratch.len = 0;
	return &f->scratch;
}

int front_is_null(lua_State *L, int index) {
	return lua_type(L, index) == LUA_TLIGHTUSERDATA && !lua_touserdata(L, index);
}

int front_is_marked(lua_State *L, front *f, int index) {
	lua_rawgeti(L, LUA_REGISTRYINDEX, f->arrays);
	lua_pushvalue(L, index);
	lua_rawget(L, -2);
	int marked = lua_toboolean(L, -1);
	lua_pop(L, 2);
	return marked;
}

void front_fail(lua_State *L, front *f, const char *format, ...) {
	char path[256], text[256];
	size_t n = 0;
	for (uint32_t i = 0; i < f->depth && n < sizeof path - 40; i++) {
		const front_step *s = &f->path[i];
		int room = (int)(sizeof path - n - 20), len = (int)s->key_len < room ? (int)s->key_len : room;
		if (s->key) n += (size_t)snprintf(path + n, sizeof path - n, n ? ".%.*s" : "%.*s", len, s->key);
		else if (s->index) n += (size_t)snprintf(path + n, sizeof path - n, "[%u]", s->index);
	}
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	path[n] = 0;
	front_raise(L, n ? "%s: %s" : "%s%s", path, text);
}

void front_check(lua_State *L, front *f, doc_buf *out, int fault) {
	if (fault == DOC_TOO_BIG && out == &f->out) front_raise(L, "output limit exceeded by this event alone");
	front_error(L, fault);
}

// front_shape tells what a table is. A list may have holes, which become nulls,
// while it is short or at least half full.
int front_shape(lua_State *L, front *f, int index, uint32_t *len) {
	uint32_t items = 0, names = 0;
	double last = 0;
	const char *name = ""; // the table keeps it
	lua_pushnil(L);
	while (lua_next(L, index)) {
		PG_CHECK(L, f->vm);
		lua_pop(L, 1);
		if (lua_type(L, -1) == LUA_TSTRING) {
			if (!names++) name = lua_tostring(L, -1);
		} else if (lua_type(L, -1) == LUA_TNUMBER) {
			double i = lua_tonumber(L, -1);
			if (!(i >= 1 && i == floor(i))) front_fail(L, f, "the key %.14g cannot be written as JSON; use strings, or 1 to n", i);
			if (i > last) last = i;
			items++;
		} else {
			front_fail(L, f, "a key that is a %s cannot be written as JSON; use strings, or 1 to n", luaL_typename(L, -1));
		}
	}
	if (items && names) front_fail(L, f, "a table with list items and the key \"%.63s\" cannot be written as JSON", name);
	if (last > 16 && last > 2.0 * items) front_fail(L, f, "a list with only %u of its %.14g items cannot be written as JSON", items, last);
	if (names && front_is_marked(L, f, index)) front_fail(L, f, "an array with the key \"%.63s\" cannot be written as JSON", name);
	*len = (uint32_t)last;
	return items ? SHAPE_LIST : names ? SHAPE_OBJECT : SHAPE_EMPTY;
}

static int by_bytes(const void *a, const void *b) {
	const key *x = a, *y = b;
	size_t n = x->len < y->len ? x->len : y->len;
	int order = memcmp(x->s, y->s, n);
	return order ? order : (x->len > y->len) - (x->len < y->len);
}

static void enter(lua_State *L, front *f, int index) {
	const void *table = lua_topointer(L, index);
	if (f->depth == FRONT_DEPTH) front_fail(L, f, "a table nested deeper than %d cannot be written as JSON", FRONT_DEPTH);
	for (uint32_t i = 0; i < f->depth; i++)
		if (f->path[i].table == table) front_fail(L, f, "a table that contains itself (a cycle) cannot be written as JSON");
	f->path[f->depth++] = (front_step){.table = table};
	luaL_checkstack(L, 8, "table too deep");
}

static void list(lua_State *L, front *f, int index, uint32_t len, doc_buf *out) {
	front_check(L, f, out, f->api->buf_add(out, "[", 1));
	for (uint32_t i = 1; i <= len; i++) {
		PG_CHECK(L, f->vm);
		if (i > 1) front_check(L, f, out, f->api->buf_add(out, ",", 1));
		f->path[f->depth - 1].index = i;
		lua_rawgeti(L, index, (int)i);
		front_encode(L, f, lua_gettop(L), out);
		lua_pop(L, 1);
	}
	front_check(L, f, out, f->api->buf_add(out, "]", 1));
}

static size_t collect(lua_State *L, front *f, int index) {
	size_t count = 0;
	lua_pushnil(L);
	while (lua_next(L, index)) {
		key k;
		k.s = lua_tolstring(L, -2, &k.len);
		front_check(L, f, NULL, f->api->buf_add(&f->keys, (const char *)&k, sizeof k));
		lua_pop(L, 1);
		count++;
	}
	return count;
}

static void object(lua_State *L, front *f, int index, doc_buf *out) {
	size_t from = f->keys.len, count = collect(L, f, index);
	qsort(f->keys.data + from, count, sizeof(key), by_bytes);
	front_check(L, f, out, f->api->buf_add(out, "{", 1));
	for (size_t i = 0; i < count; i++) {
		PG_CHECK(L, f->vm);
		key k;
		memcpy(&k, f->keys.data + from + i * sizeof k, sizeof k);
		f->path[f->depth - 1].key = k.s;
		f->path[f->depth - 1].key_len = k.len;
		if (!f->api->utf8(k.s, k.len)) front_fail(L, f, "the key is not valid UTF-8");
		if (i) front_check(L, f, out, f->api->buf_add(out, ",", 1));
		front_check(L, f, out, f->api->quote(out, k.s, k.len));
		front_check(L, f, out, f->api->buf_add(out, ":", 1));
		lua_pushlstring(L, k.s, k.len);
		lua_rawget(L, index);
		front_encode(L, f, lua_gettop(L), out);
		lua_pop(L, 1);
	}
	f->keys.len = from;
	front_check(L, f, out, f->api->buf_add(out, "}", 1));
}

static void table(lua_State *L, front *f, int index, doc_buf *out) {
	uint32_t len;
	enter(L, f, index);
	switch (front_shape(L, f, index, &len)) {
	case SHAPE_LIST: list(L, f, index, len, out); break;
	case SHAPE_OBJECT: object(L, f, index, out); break;
	default: front_check(L, f, out, f->api->buf_add(out, front_is_marked(L, f, index) ? "[]" : "{}", 2));
	}
	f->depth--;
}

static void number(lua_State *L, front *f, double x, doc_buf *out) {
	if (!isfinite(x)) front_fail(L, f, "%s is no JSON number", isnan(x) ? "nan" : "inf");
	front_check(L, f, out, f->api->put_number(out, x));
}

static void text(lua_State *L, front *f, int index, doc_buf *out) {
	size_t len;
	const char *s = lua_tolstring(L, index, &len);
	if (!f->api->utf8(s, len)) front_fail(L, f, "the text is not valid UTF-8");
	front_check(L, f, out, f->api->quote(out, s, len));
}

static void userdata(lua_State *L, front *f, int index, doc_buf *out) {
	size_t len;
	const char *s = big_text(L, f, index, &len);
	if (s) front_check(L, f, out, f->api->buf_add(out, s, len));
	else if (part_at(L, f, index)) part_encode(L, f, index, out);
	else front_fail(L, f, "a %s cannot be written as JSON", luaL_typename(L, index));
}

void front_encode(lua_State *L, front *f, int index, doc_buf *out) {
	switch (lua_type(L, index)) {
	case LUA_TNIL: front_check(L, f, out, f->api->buf_add(out, "null", 4)); break;
	case LUA_TBOOLEAN:
		front_check(L, f, out, lua_toboolean(L, index) ? f->api->buf_add(out, "true", 4) : f->api->buf_add(out, "false", 5));
		break;
	case LUA_TNUMBER: number(L, f, lua_tonumber(L, index), out); break;
	case LUA_TSTRING: text(L, f, index, out); break;
	case LUA_TTABLE:
		if (part_at(L, f, index)) part_encode(L, f, index, out);
		else table(L, f, index, out);
		break;
	case LUA_TLIGHTUSERDATA:
		if (front_is_null(L, index)) {
			front_check(L, f, out, f->api->buf_add(out, "null", 4));
			break;
		}
	// fall through
	default: userdata(L, f, index, out);
	}
}
