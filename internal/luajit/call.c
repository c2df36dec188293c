// Functions of Go. A script that calls one leaves a request and yields: the
// crossing ends, Go calls the function, and the next crossing resumes the script,
// which takes the answer. Values cross as text of its own kind, see call.go.

#include <math.h>
#include <string.h>

#include "frontend.h"

static void add(lua_State *L, front *f, const void *data, size_t len) {
	front_error(L, f->api->buf_add(&f->request, data, len));
}

static void add_tag(lua_State *L, front *f, char tag, const void *data, size_t len) {
	uint32_t n = (uint32_t)len;
	add(L, f, &tag, 1);
	add(L, f, &n, sizeof n);
	add(L, f, data, len);
}

static void put(lua_State *L, front *f, int index);

static void enter(lua_State *L, front *f, int index) {
	const void *table = lua_topointer(L, index);
	if (f->depth == FRONT_DEPTH) front_fail(L, f, "a table nested deeper than %d cannot be passed", FRONT_DEPTH);
	for (uint32_t i = 0; i < f->depth; i++)
		if (f->path[i].table == table) front_fail(L, f, "a table that contains itself (a cycle) cannot be passed");
	f->path[f->depth++] = (front_step){.table = table};
	luaL_checkstack(L, 8, "table too deep");
}

static void put_list(lua_State *L, front *f, int index, uint32_t len) {
	add(L, f, "L", 1);
	add(L, f, &len, sizeof len);
	for (uint32_t i = 1; i <= len; i++) {
		PG_CHECK(L, f->vm);
		f->path[f->depth - 1].index = i;
		lua_rawgeti(L, index, (int)i);
		put(L, f, lua_gettop(L));
		lua_pop(L, 1);
	}
}

// put_map writes its entries up to one without a key.
static void put_map(lua_State *L, front *f, int index) {
	add(L, f, "M", 1);
	lua_pushnil(L);
	while (lua_next(L, index)) {
		PG_CHECK(L, f->vm);
		front_step *s = &f->path[f->depth - 1];
		s->key = lua_tolstring(L, -2, &s->key_len);
		add_tag(L, f, 'S', s->key, s->key_len);
		put(L, f, lua_gettop(L));
		lua_pop(L, 1);
	}
	add(L, f, "E", 1);
}

static void put_table(lua_State *L, front *f, int index) {
	uint32_t len;
	enter(L, f, index);
	int shape = front_shape(L, f, index, &len);
	if (shape == SHAPE_LIST || (shape == SHAPE_EMPTY && front_is_marked(L, f, index))) put_list(L, f, index, len);
	else put_map(L, f, index);
	f->depth--;
}

// put_document writes a document as JSON.
static void put_document(lua_State *L, front *f, int index) {
	uint32_t depth = f->depth;
	f->scratch.len = 0;
	part_encode(L, f, index, &f->scratch);
	f->depth = depth;
	add_tag(L, f, 'J', f->scratch.data, f->scratch.len);
}

static void put(lua_State *L, front *f, int index) {
	size_t len;
	const char *s;
	double x;
	if (part_at(L, f, index)) {
		put_document(L, f, index);
		return;
	}
	switch (lua_type(L, index)) {
	case LUA_TNIL: add(L, f, "N", 1); return;
	case LUA_TBOOLEAN: add(L, f, lua_toboolean(L, index) ? "T" : "F", 1); return;
	case LUA_TNUMBER:
		x = lua_tonumber(L, index);
		add(L, f, "D", 1);
		add(L, f, &x, sizeof x);
		return;
	case LUA_TSTRING:
		s = lua_tolstring(L, index, &len);
		add_tag(L, f, 'S', s, len);
		return;
	case LUA_TTABLE: put_table(L, f, index); return;
	case LUA_TLIGHTUSERDATA:
		if (!front_is_null(L, index)) break;
		add(L, f, "N", 1);
		return;
	case LUA_TUSERDATA:
		s = big_text(L, f, index, &len);
		if (!s) break;
		add_tag(L, f, 'B', s, len);
		return;
	}
	front_fail(L, f, "a %s cannot be passed to a Go function", luaL_typename(L, index));
}

// ask(function, …) leaves a request for when the script yields, or ends: then it
// returns true.
static int ask(lua_State *L) {
	front *f = front_of(L);
	int n = lua_gettop(L);
	if (!lua_isyieldable(L))
		return front_raise(L, "a function of Go cannot be called from a function that a function in C has called");
	f->function = (uint32_t)lua_tointeger(L, 1);
	f->request.len = 0;
	front_start(f);
	for (int i = 2; i <= n; i++) put(L, f, i);
	if (f->function && last_of_call(L, f, 1)) {
		last_place(f);
		lua_pushboolean(L, 1);
		return 1;
	}
	f->asked = 1;
	return 0;
}

// call_values(…) leaves values where a request stands.
int call_values(lua_State *L) {
	front *f = front_of(L);
	int n = lua_gettop(L);
	f->request.len = 0;
	front_start(f);
	for (int i = 1; i <= n; i++) put(L, f, i);
	return 0;
}

typedef struct { const char *at, *end; } reader;

static uint32_t take_len(reader *r) {
	uint32_t n;
	memcpy(&n, r->at, sizeof n);
	r->at += sizeof n;
	return n;
}

static int take(lua_State *L, front *f, reader *r);

static void take_list(lua_State *L, front *f, uint32_t n) {
	lua_createtable(L, (int)n, 0);
	lua_rawgeti(L, LUA_REGISTRYINDEX, f->arrays);
	lua_pushvalue(L, -2);
	lua_pushboolean(L, 1);
	lua_rawset(L, -3);
	lua_pop(L, 1);
}

// take pushes the next value. It pushes nothing, and returns 0, at the end of a map.
static int take(lua_State *L, front *f, reader *r) {
	uint32_t n;
	double x;
	PG_CHECK(L, f->vm);
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
		n = take_len(r);
		pg_vm_reserve(L, f->vm, n);
		lua_pushlstring(L, r->at, n);
		r->at += n;
		break;
	case 'B':
		n = take_len(r);
		big_push(L, f, r->at, n);
		r->at += n;
		break;
	case 'L':
		n = take_len(r);
		pg_vm_reserve(L, f->vm, n * 8);
		take_list(L, f, n);
		for (uint32_t i = 1; i <= n; i++) {
			take(L, f, r);
			lua_rawseti(L, -2, (int)i);
		}
		break;
	case 'M':
		lua_newtable(L);
		while (take(L, f, r)) {
			take(L, f, r);
			lua_rawset(L, -3);
		}
		break;
	case 'E': return 0;
	default: lua_pushnil(L);
	}
	return 1;
}

// place pushes where in the script L is, as in "email.lua:12: ".
static void place(lua_State *L) {
	lua_Debug ar;
	for (int level = 0; lua_getstack(L, level, &ar); level++) {
		lua_getinfo(L, "Sl", &ar);
		if (*ar.source != '@') continue;
		lua_pushfstring(L, "%s:%d: ", ar.short_src, ar.currentline);
		return;
	}
	lua_pushliteral(L, "");
}

// call_answer() returns what the function of Go returned, or raises its error.
int call_answer(lua_State *L) {
	front *f = front_of(L);
	reader r = {f->answer, f->answer + f->answer_len};
	if (!r.at) return front_raise(L, "the function of Go did not answer");
	f->answer = NULL;
	if (*r.at++ != 'E') {
		int n = 0;
		lua_settop(L, 0);
		for (; r.at < r.end; n++) take(L, f, &r);
		return n;
	}
	place(L);
	lua_pushlstring(L, r.at, (size_t)(r.end - r.at));
	lua_concat(L, 2);
	return lua_error(L);
}

enum { MEASURED_MAX = 1 << 20 };

static void check_labels(lua_State *L, int index) {
	lua_pushnil(L);
	while (lua_next(L, index)) {
		int list = lua_type(L, -2) == LUA_TNUMBER, type = lua_type(L, -1);
		if (list ? type != LUA_TSTRING : lua_type(L, -2) != LUA_TSTRING || (type != LUA_TSTRING && type != LUA_TNUMBER && type != LUA_TBOOLEAN))
			front_raise(L, "argument 3 must be labels: {name = \"value\"} or {\"name:value\"}");
		lua_pop(L, 1);
	}
}

// measure(kind, name, value, labels) keeps a measurement until the crossing ends.
static int measure(lua_State *L) {
	front *f = front_of(L);
	lua_settop(L, 4);
	if (lua_type(L, 2) != LUA_TSTRING) return front_raise(L, "argument 1 must be a string, not a %s", luaL_typename(L, 2));
	if (lua_type(L, 3) != LUA_TNUMBER) return front_raise(L, "argument 2 must be a number, not a %s", luaL_typename(L, 3));
	if (lua_type(L, 4) == LUA_TTABLE && !part_at(L, f, 4)) check_labels(L, 4);
	else if (!lua_isnil(L, 4)) return front_raise(L, "argument 3 must be labels: {name = \"value\"} or {\"name:value\"}");
	f->request.len = 0;
	front_start(f);
	put(L, f, 3);
	put(L, f, 1);
	put(L, f, 2);
	put(L, f, 4);
	uint32_t n = (uint32_t)f->request.len;
	if (f->measured.len + n + sizeof n > MEASURED_MAX) {
		f->unmeasured++;
		return 0;
	}
	front_error(L, f->api->buf_add(&f->measured, (const char *)&n, sizeof n));
	front_error(L, f->api->buf_add(&f->measured, f->request.data, n));
	return 0;
}

// compile(text, path, name) compiles a file that the script requires.
static int compile(lua_State *L) {
	pg_vm *vm = pg_vm_of(L);
	size_t len;
	const char *text = luaL_checklstring(L, 1, &len), *chunk = pg_vm_file(vm, luaL_checkstring(L, 2));
	if (!chunk) front_error(L, DOC_NO_MEMORY);
	if (luaL_loadbufferx(L, text, len, chunk, "t")) return lua_error(L);
	lua_rawgeti(L, LUA_REGISTRYINDEX, vm->env);
	lua_setfenv(L, -2);
	return 1;
}

static int now(lua_State *L) {
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	lua_pushnumber(L, (double)t.tv_sec + (double)(t.tv_nsec / 1000) / 1e6);
	return 1;
}

static int now_seconds(lua_State *L) {
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	lua_pushnumber(L, (double)t.tv_sec);
	return 1;
}

// call_open pushes a table of the functions that frontend.lua builds on.
void call_open(lua_State *L, front *f) {
	static const luaL_Reg functions[] = {
		{"ask", ask}, {"answer", call_answer}, {"measure", measure}, {"compile", compile},
		{"now", now}, {"unix", now_seconds}, {NULL, NULL}};
	lua_newtable(L);
	luaL_register(L, NULL, functions);
	lua_pushstring(L, f->functions);
	lua_setfield(L, -2, "names");
	if (f->calls_directly) direct_open(L);
}
