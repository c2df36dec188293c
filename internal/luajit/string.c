/* Replacements for functions of Lua's string library that would ignore the limits. */
#define _GNU_SOURCE
#include <ctype.h>
#include <math.h>
#include <string.h>

#include "pattern.h"
#include "sandbox.h"
#include "strbuf.h"

typedef const unsigned char *bytes;

/* push_capture pushes capture i of the match from s to e, or the whole match if the
 * pattern has no captures. */
static void push_capture(plua_matcher *m, int i, bytes s, bytes e) {
	if (i >= m->captures) {
		if (i != 0) luaL_error(m->L, "invalid capture index");
		lua_pushlstring(m->L, (const char *)s, e - s);
		return;
	}
	const plua_capture *c = &m->capture[i];
	if (c->len == PLUA_CAPTURE_OPEN) luaL_error(m->L, "unfinished capture");
	if (c->len == PLUA_CAPTURE_POSITION) lua_pushinteger(m->L, c->at - m->text + 1);
	else lua_pushlstring(m->L, (const char *)c->at, c->len);
}

/* push_captures pushes all captures; if there are none, it pushes the whole match
 * unless s is NULL. */
static int push_captures(plua_matcher *m, bytes s, bytes e) {
	int n = m->captures == 0 && s ? 1 : m->captures;
	luaL_checkstack(m->L, n, "too many captures");
	for (int i = 0; i < n; i++) push_capture(m, i, s, e);
	return n;
}

/* offset_of converts a Lua position to an offset, which may lie past the end. */
static size_t offset_of(lua_State *L, int arg, size_t len) {
	lua_Number at = luaL_optnumber(L, arg, 1);
	if (at < 0) at += (lua_Number)len + 1;
	if (!(at >= 1)) return 0;
	return at > (lua_Number)len ? len + (at > (lua_Number)len + 1) : (size_t)at - 1;
}

static int find_plain(
    lua_State *L, const char *s, size_t n, size_t from, const char *p, size_t pn) {
	const char *at = pn == 0 ? s + from : memmem(s + from, n - from, p, pn);
	if (!at) {
		lua_pushnil(L);
		return 1;
	}
	lua_pushinteger(L, at - s + 1);
	lua_pushinteger(L, at - s + pn);
	return 2;
}

static int search(lua_State *L, int find) {
	size_t n, pn;
	const char *s = luaL_checklstring(L, 1, &n), *p = luaL_checklstring(L, 2, &pn);
	size_t from = offset_of(L, 3, n);
	if (from > n) {
		lua_pushnil(L);
		return 1;
	}
	if (find == 1 && (lua_toboolean(L, 4) || plua_pattern_is_plain(p, pn)))
		return find_plain(L, s, n, from, p, pn);
	plua_matcher m;
	plua_pattern_init(&m, L, s, n, p, pn);
	bytes at = m.text + from, pattern = (bytes)p;
	int anchored = pn > 0 && *p == '^';
	pattern += anchored;
	do {
		bytes end = plua_pattern_match_at(&m, at, pattern);
		if (!end) continue;
		if (!find) return push_captures(&m, at, end);
		lua_pushinteger(L, at - m.text + 1);
		lua_pushinteger(L, end - m.text);
		return 2 + push_captures(&m, NULL, end);
	} while (at++ < m.text_end && !anchored);
	lua_pushnil(L);
	return 1;
}

static int find(lua_State *L) { return search(L, 1); }
static int find_pattern(lua_State *L) { return search(L, 2); } /* never plain text; for gsub */
static int match(lua_State *L) { return search(L, 0); }

/* gmatch_next has three upvalues: the text, the pattern and the offset of the next search. */
static int gmatch_next(lua_State *L) {
	size_t n, pn;
	const char *s = lua_tolstring(L, lua_upvalueindex(1), &n),
	           *p = lua_tolstring(L, lua_upvalueindex(2), &pn);
	plua_matcher m;
	plua_pattern_init(&m, L, s, n, p, pn);
	for (bytes at = m.text + (size_t)lua_tonumber(L, lua_upvalueindex(3)); at <= m.text_end; at++) {
		bytes end = plua_pattern_match_at(&m, at, (bytes)p);
		if (!end) continue;
		lua_pushnumber(L, (lua_Number)(end - m.text + (end == at)));
		lua_replace(L, lua_upvalueindex(3));
		return push_captures(&m, at, end);
	}
	lua_pushnumber(L, (lua_Number)(n + 1));
	lua_replace(L, lua_upvalueindex(3));
	lua_pushnil(L);
	return 1;
}

static int gmatch(lua_State *L) {
	luaL_checkstring(L, 1);
	luaL_checkstring(L, 2);
	lua_settop(L, 2);
	lua_pushinteger(L, 0);
	lua_pushcclosure(L, gmatch_next, 3);
	return 1;
}

/* add_template appends the replacement string, with %0 to %9 replaced by the captures. */
static void add_template(plua_matcher *m, bytes s, bytes e) {
	size_t n;
	lua_State *L = m->L;
	const char *t = lua_tolstring(L, 3, &n);
	for (size_t i = 0; i < n; i++) {
		if (t[i] != '%' || i + 1 == n || !isdigit((unsigned char)t[i + 1])) {
			if (t[i] == '%' && i + 1 < n) i++;
			plua_strbuf_add(L, m->vm, t + i, 1);
			continue;
		}
		if (t[++i] == '0') {
			plua_strbuf_add(L, m->vm, (const char *)s, e - s);
			continue;
		}
		push_capture(m, t[i] - '1', s, e);
		size_t len;
		const char *text = lua_tolstring(L, -1, &len);
		plua_strbuf_add(L, m->vm, text, len);
		lua_pop(L, 1);
	}
}

/* add_value appends the result of a replacement table or function for the match. */
static void add_value(plua_matcher *m, bytes s, bytes e) {
	lua_State *L = m->L;
	plua_vm_enter_c(L, m->vm);
	if (lua_type(L, 3) == LUA_TFUNCTION) {
		lua_pushvalue(L, 3);
		lua_call(L, push_captures(m, s, e), 1);
	} else {
		push_capture(m, 0, s, e);
		lua_gettable(L, 3);
	}
	plua_vm_leave_c(m->vm);
	PLUA_CHECK(L, m->vm);
	if (!lua_toboolean(L, -1)) {
		plua_strbuf_add(L, m->vm, (const char *)s, e - s);
	} else if (!lua_isstring(L, -1)) {
		luaL_error(L, "invalid replacement value (a %s)", luaL_typename(L, -1));
	} else {
		size_t len;
		const char *text = lua_tolstring(L, -1, &len);
		plua_strbuf_add(L, m->vm, text, len);
	}
	lua_pop(L, 1);
}

static int gsub(lua_State *L) {
	size_t n, pn;
	const char *s = luaL_checklstring(L, 1, &n), *p = luaL_checklstring(L, 2, &pn);
	int type = lua_type(L, 3);
	luaL_argcheck(L,
	    type == LUA_TNUMBER || type == LUA_TSTRING || type == LUA_TFUNCTION || type == LUA_TTABLE,
	    3, "string/function/table expected");
	lua_Number limit = luaL_optnumber(L, 4, (lua_Number)n + 1), count = 0;
	plua_matcher m;
	plua_pattern_init(&m, L, s, n, p, pn);
	size_t start = m.vm->strbuf.len;
	int anchored = pn > 0 && *p == '^';
	bytes at = m.text, pattern = (bytes)p + anchored;
	while (count < limit) {
		bytes end = plua_pattern_match_at(&m, at, pattern);
		if (end) {
			count++;
			if (type == LUA_TSTRING || type == LUA_TNUMBER) add_template(&m, at, end);
			else add_value(&m, at, end);
		}
		if (end && end > at) {
			at = end;
		} else if (at < m.text_end) {
			plua_strbuf_add(L, m.vm, (const char *)at++, 1);
		} else {
			break;
		}
		if (anchored) break;
	}
	plua_strbuf_add(L, m.vm, (const char *)at, m.text_end - at);
	plua_strbuf_push(L, m.vm, start);
	lua_pushnumber(L, count);
	return 2;
}

/* fill repeats the first unit bytes of text until it has total bytes. */
static void fill(char *text, size_t unit, size_t total) {
	for (size_t have = unit; have < total;) {
		size_t n = have < total - have ? have : total - have;
		memcpy(text + have, text, n);
		have += n;
	}
}

/* rep(s, n, separator) */
static int rep(lua_State *L) {
	size_t len, gap;
	const char *s = luaL_checklstring(L, 1, &len), *sep = luaL_optlstring(L, 3, "", &gap);
	lua_Number times = luaL_checknumber(L, 2);
	plua_vm *vm = plua_vm_of(L);
	if (!(times >= 1) || len + gap == 0) {
		lua_pushliteral(L, "");
		return 1;
	}
	times = floor(times);
	if (times * (lua_Number)(len + gap) > (lua_Number)vm->limit) {
		plua_vm_stop(vm, PLUA_MEMORY);
		plua_vm_raise(L);
	}
	size_t total = (size_t)times * (len + gap), start = vm->strbuf.len;
	plua_strbuf_need(L, vm, total);
	char *text = vm->strbuf.data + start;
	memcpy(text, s, len);
	memcpy(text + len, sep, gap);
	fill(text, len + gap, total);
	vm->strbuf.len += total - gap;
	plua_strbuf_push(L, vm, start);
	return 1;
}

void plua_string_open(lua_State *L) {
	static const luaL_Reg functions[] = {
	    {"find", find},
	    {"find_pattern", find_pattern},
	    {"match", match},
	    {"gmatch", gmatch},
	    {"gsub", gsub},
	    {"rep", rep},
	    {NULL, NULL},
	};
	lua_newtable(L);
	luaL_setfuncs(L, functions, 0);
}
