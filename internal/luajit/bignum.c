// Numbers that a double cannot represent exactly. They are immutable and compare by value.
// Arithmetic is exact while both operands and the result are 64-bit integers; otherwise it uses
// doubles.

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"

typedef struct {
	size_t len;
	char text[];
} big;

// An operand is a 64-bit integer if whole is set, otherwise a double.
typedef struct {
	int whole;
	int64_t i;
	double d;
} operand;

const char *plua_bignum_text(lua_State *L, plua_engine *e, int index, size_t *len) {
	big *b = lua_touserdata(L, index);
	if (!b || !lua_getmetatable(L, index)) return NULL;
	const void *meta = lua_topointer(L, -1);
	lua_pop(L, 1);
	if (meta != e->bignum.address) return NULL;
	*len = b->len;
	return b->text;
}

void plua_bignum_push(lua_State *L, plua_engine *e, const char *text, size_t len) {
	plua_vm_reserve(L, e->vm, len);
	big *b = lua_newuserdata(L, sizeof *b + len);
	b->len = len;
	memcpy(b->text, text, len);
	lua_rawgeti(L, LUA_REGISTRYINDEX, e->bignum.ref);
	lua_setmetatable(L, -2);
}

// read_int64 parses digits without point or exponent. It returns 0 if the number does not fit.
static int read_int64(const char *s, size_t len, int64_t *out) {
	size_t i = *s == '-';
	uint64_t v = 0;
	if (i == len || len - i > 19) return 0;
	for (; i < len; i++) {
		if (s[i] < '0' || s[i] > '9') return 0;
		if (__builtin_mul_overflow(v, (uint64_t)10, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(s[i] - '0'), &v))
			return 0;
	}
	if (v > (uint64_t)INT64_MAX + (*s == '-')) return 0;
	*out = *s == '-' ? (int64_t)(0 - v) : (int64_t)v;
	return 1;
}

static operand operand_at(lua_State *L, plua_engine *e, int index) {
	operand x = {0};
	size_t len;
	const char *s = plua_bignum_text(L, e, index, &len);
	if (s) {
		e->api->exact(s, len, &x.d);
		x.whole = read_int64(s, len, &x.i);
		return x;
	}
	if (lua_type(L, index) != LUA_TNUMBER)
		plua_raise(L, "attempt to perform arithmetic on a %s value and a number of JSON",
		    luaL_typename(L, index));
	x.d = lua_tonumber(L, index);
	x.whole = fabs(x.d) < 9223372036854775808.0 && x.d == floor(x.d);
	if (x.whole) x.i = (int64_t)x.d;
	return x;
}

static int push_whole(lua_State *L, plua_engine *e, int64_t v) {
	double d = (double)v;
	if (fabs(d) < 9223372036854775808.0 && (int64_t)d == v) {
		lua_pushnumber(L, d);
		return 1;
	}
	char text[24];
	plua_bignum_push(L, e, text, (size_t)snprintf(text, sizeof text, "%lld", (long long)v));
	return 1;
}

static int64_t modulo(int64_t a, int64_t b) {
	if (b == -1) return 0;
	int64_t m = a % b;
	return m && (m < 0) != (b < 0) ? m + b : m;
}

static double real(char op, double a, double b) {
	switch (op) {
	case '+': return a + b;
	case '-': return a - b;
	case '*': return a * b;
	case '/': return a / b;
	case '^': return pow(a, b);
	default: return a - floor(a / b) * b;
	}
}

static int exact(char op, int64_t a, int64_t b, int64_t *out) {
	switch (op) {
	case '+': return !__builtin_add_overflow(a, b, out);
	case '-': return !__builtin_sub_overflow(a, b, out);
	case '*': return !__builtin_mul_overflow(a, b, out);
	case '%': return b ? (*out = modulo(a, b), 1) : 0;
	default: return 0;
	}
}

static int arithmetic(lua_State *L, char op) {
	plua_engine *e = plua_engine_of(L);
	operand a = operand_at(L, e, 1), b = operand_at(L, e, 2);
	int64_t v;
	if (a.whole && b.whole && exact(op, a.i, b.i, &v)) return push_whole(L, e, v);
	lua_pushnumber(L, real(op, a.d, b.d));
	return 1;
}

static int big_add(lua_State *L) { return arithmetic(L, '+'); }
static int big_sub(lua_State *L) { return arithmetic(L, '-'); }
static int big_mul(lua_State *L) { return arithmetic(L, '*'); }
static int big_div(lua_State *L) { return arithmetic(L, '/'); }
static int big_mod(lua_State *L) { return arithmetic(L, '%'); }
static int big_pow(lua_State *L) { return arithmetic(L, '^'); }

static int big_unm(lua_State *L) {
	lua_settop(L, 1);
	lua_pushinteger(L, 0);
	lua_insert(L, 1);
	return arithmetic(L, '-');
}

// A decimal in parts: 0.d1d2d3…·10^exp with d1 not zero.
typedef struct {
	int minus;
	const char *s;
	size_t len;
	long exp;
	int zero;
} spelled;

static spelled take_apart(const char *s, size_t len) {
	spelled x = {.minus = *s == '-'};
	const char *end = s + len, *p = s + x.minus, *mantissa_end = p;
	while (mantissa_end < end && *mantissa_end != 'e' && *mantissa_end != 'E') mantissa_end++;
	const char *point = memchr(p, '.', (size_t)(mantissa_end - p));
	const char *first = p;
	while (first < mantissa_end && (*first == '0' || *first == '.')) first++;
	x.zero = first == mantissa_end;
	if (mantissa_end < end) {
		char text[24];
		size_t n = (size_t)(end - mantissa_end - 1) < sizeof text - 1
		               ? (size_t)(end - mantissa_end - 1)
		               : sizeof text - 1;
		memcpy(text, mantissa_end + 1, n);
		text[n] = 0;
		x.exp = strtol(text, NULL, 10);
		if (x.exp > 1000000000L) x.exp = 1000000000L;
		if (x.exp < -1000000000L) x.exp = -1000000000L;
	}
	const char *whole_end = point ? point : mantissa_end;
	x.exp += first < whole_end ? whole_end - first : -(first - whole_end - 1);
	x.s = first;
	x.len = (size_t)(mantissa_end - first);
	return x;
}

static char digit(const spelled *x, size_t *at) {
	if (*at < x->len && x->s[*at] == '.') ++*at;
	return *at < x->len ? x->s[(*at)++] : '0';
}

static int magnitude(const spelled *a, const spelled *b) {
	if (a->zero || b->zero) return b->zero - a->zero;
	if (a->exp != b->exp) return a->exp < b->exp ? -1 : 1;
	for (size_t i = 0, j = 0; i < a->len || j < b->len;) {
		char x = digit(a, &i), y = digit(b, &j);
		if (x != y) return x < y ? -1 : 1;
	}
	return 0;
}

static int compare(spelled a, spelled b) {
	if (a.zero && b.zero) return 0;
	int minus_a = a.minus && !a.zero, minus_b = b.minus && !b.zero;
	if (minus_a != minus_b) return minus_a ? -1 : 1;
	int order = magnitude(&a, &b);
	return minus_a ? -order : order;
}

// spelled_at returns the parts of a number; a plain number is first formatted exactly in buffer.
static spelled spelled_at(lua_State *L, plua_engine *e, int index, char *buffer, size_t size) {
	size_t len;
	const char *s = plua_bignum_text(L, e, index, &len);
	if (s) return take_apart(s, len);
	if (lua_type(L, index) != LUA_TNUMBER)
		plua_raise(
		    L, "attempt to compare a number of JSON with a %s value", luaL_typename(L, index));
	double d = lua_tonumber(L, index);
	if (isinf(d)) return take_apart(d < 0 ? "-1e999999999" : "1e999999999", d < 0 ? 12 : 11);
	return take_apart(buffer, (size_t)snprintf(buffer, size, "%.1100e", d));
}

static int order(lua_State *L) {
	plua_engine *e = plua_engine_of(L);
	char x[1200], y[1200];
	return compare(spelled_at(L, e, 1, x, sizeof x), spelled_at(L, e, 2, y, sizeof y));
}

static int has_nan(lua_State *L) {
	return (lua_type(L, 1) == LUA_TNUMBER && isnan(lua_tonumber(L, 1))) ||
	       (lua_type(L, 2) == LUA_TNUMBER && isnan(lua_tonumber(L, 2)));
}

static int big_eq(lua_State *L) {
	size_t len;
	plua_engine *e = plua_engine_of(L);
	int both = plua_bignum_text(L, e, 1, &len) && plua_bignum_text(L, e, 2, &len);
	lua_pushboolean(L, both && order(L) == 0);
	return 1;
}

static int big_lt(lua_State *L) {
	lua_pushboolean(L, !has_nan(L) && order(L) < 0);
	return 1;
}

static int big_le(lua_State *L) {
	lua_pushboolean(L, !has_nan(L) && order(L) <= 0);
	return 1;
}

static int big_tostring(lua_State *L) {
	size_t len;
	const char *s = plua_bignum_text(L, plua_engine_of(L), 1, &len);
	lua_pushlstring(L, s, len);
	return 1;
}

static void push_text(lua_State *L, int index) {
	size_t len;
	const char *s = plua_bignum_text(L, plua_engine_of(L), index, &len);
	if (s) {
		lua_pushlstring(L, s, len);
	} else if (lua_isstring(L, index)) {
		lua_pushvalue(L, index);
	} else {
		plua_raise(L, "attempt to concatenate a %s value", luaL_typename(L, index));
	}
}

static int big_concat(lua_State *L) {
	push_text(L, 1);
	push_text(L, 2);
	lua_concat(L, 2);
	return 1;
}

static int big_index(lua_State *L) { return plua_raise(L, "attempt to index a number"); }

// number(v) returns a big number as a double, otherwise nothing.
static int big_number(lua_State *L) {
	plua_engine *e = plua_engine_of(L);
	size_t len;
	double d;
	const char *s = plua_bignum_text(L, e, 1, &len);
	if (!s) return 0;
	e->api->exact(s, len, &d);
	lua_pushnumber(L, d);
	return 1;
}

void plua_bignum_open(lua_State *L, plua_engine *e) {
	static const luaL_Reg meta[] = {{"__add", big_add}, {"__sub", big_sub}, {"__mul", big_mul},
	    {"__div", big_div}, {"__mod", big_mod}, {"__pow", big_pow}, {"__unm", big_unm},
	    {"__eq", big_eq}, {"__lt", big_lt}, {"__le", big_le}, {"__concat", big_concat},
	    {"__tostring", big_tostring}, {"__index", big_index}, {"__newindex", big_index},
	    {NULL, NULL}};
	lua_newtable(L);
	luaL_register(L, NULL, meta);
	lua_pushboolean(L, 0);
	lua_setfield(L, -2, "__metatable");
	e->bignum.address = lua_topointer(L, -1);
	e->bignum.ref = luaL_ref(L, LUA_REGISTRYINDEX);
	lua_pushcfunction(L, big_number);
}
