// Calls of Go functions. A script that calls one leaves a request and yields. The crossing ends, Go
// calls the function, and the next crossing resumes the script, which reads the answer. In a
// Caller, a function that does not wait is called directly from C, which is cheaper than a yield. A
// function that waits would block a thread there.

#include <math.h>
#include <string.h>

#include "engine.h"

// plua_call_go calls the requested function, for a *luajit.Engine. It returns whether there is an
// answer. It is in direct.go.
extern int plua_call_go(void *owner);

// request(function, …) leaves a request. It returns true if the call of the function is the
// script's last act, so that it is called after the script has ended; otherwise the script must
// yield.
static int request(lua_State *L) {
	plua_engine *e = plua_engine_of(L);
	int n = lua_gettop(L);
	if (!lua_isyieldable(L))
		return plua_raise(
		    L, "a Go function cannot be called from a function that a C function has called");
	e->gocall.function = (uint32_t)lua_tointeger(L, 1);
	plua_values_begin(e);
	for (int i = 2; i <= n; i++) plua_values_encode(L, e, i);
	plua_values_reserve(L, e);
	if (e->gocall.function && plua_tail_call_detect(L, e, 1)) {
		plua_tail_call_locate(e);
		lua_pushboolean(L, 1);
		return 1;
	}
	return 0;
}

// push_place pushes the current place in the script, as in "email.lua:12: ".
static void push_place(lua_State *L) {
	lua_Debug ar;
	for (int level = 0; lua_getstack(L, level, &ar); level++) {
		lua_getinfo(L, "Sl", &ar);
		if (*ar.source != '@') continue;
		lua_pushfstring(L, "%s:%d: ", ar.short_src, ar.currentline);
		return;
	}
	lua_pushliteral(L, "");
}

int plua_gocall_results(lua_State *L) {
	plua_engine *e = plua_engine_of(L);
	const char *answer = e->gocall.answer, *end = answer + e->gocall.answer_len;
	if (!answer) return plua_raise(L, "the Go function did not answer");
	e->gocall.answer = NULL;
	if (*answer++ != 'E') {
		lua_settop(L, 0);
		return plua_values_decode(L, e, answer, end);
	}
	push_place(L);
	lua_pushlstring(L, answer, (size_t)(end - answer));
	lua_concat(L, 2);
	return lua_error(L);
}

void plua_gocall_answer(plua_engine *e, const char *data, size_t len) {
	e->gocall.request.len = 0;
	int error = e->api->buf_add(&e->gocall.request, data, len);
	e->gocall.answer = error ? NULL : e->gocall.request.data;
	e->gocall.answer_len = error ? 0 : len;
}

// result() returns the function's results, or raises its error or that of an exceeded limit.
static int result(lua_State *L) {
	plua_engine *e = plua_engine_of(L);
	PLUA_CHECK(L, e->vm);
	return e->gocall.answer ? plua_gocall_results(L) : 0;
}

static int call_direct(lua_State *L) {
	plua_engine *e = plua_engine_of(L);
	e->gocall.request.len = 0;
	if (lua_gettop(L) > 0) plua_values_keep(L);
	e->gocall.function = (uint32_t)lua_tointeger(L, lua_upvalueindex(1));
	if (plua_tail_call_detect(L, e, 0)) return 0;
	return plua_call_go(e->gocall.owner) || e->vm->run.stop ? result(L) : 0;
}

// new_direct(number) returns a function that calls a Go function from C.
static int new_direct(lua_State *L) {
	lua_settop(L, 1);
	lua_pushcclosure(L, call_direct, 1);
	return 1;
}

enum {
	MEASUREMENTS_MAX = 1 << 20 // bytes
};

static void check_labels(lua_State *L, int index) {
	lua_pushnil(L);
	while (lua_next(L, index)) {
		int list = lua_type(L, -2) == LUA_TNUMBER, type = lua_type(L, -1);
		if (list ? type != LUA_TSTRING
		         : lua_type(L, -2) != LUA_TSTRING ||
		               (type != LUA_TSTRING && type != LUA_TNUMBER && type != LUA_TBOOLEAN))
			plua_raise(L, "argument 3 must be labels: {name = \"value\"} or {\"name:value\"}");
		lua_pop(L, 1);
	}
}

// measure(kind, name, value, labels) stores a measurement, which Go reads after the crossing.
static int measure(lua_State *L) {
	plua_engine *e = plua_engine_of(L);
	lua_settop(L, 4);
	if (lua_type(L, 2) != LUA_TSTRING)
		return plua_raise(L, "argument 1 must be a string, not a %s", luaL_typename(L, 2));
	if (lua_type(L, 3) != LUA_TNUMBER)
		return plua_raise(L, "argument 2 must be a number, not a %s", luaL_typename(L, 3));
	if (lua_type(L, 4) == LUA_TTABLE && !plua_container_at(L, e, 4)) check_labels(L, 4);
	else if (!lua_isnil(L, 4))
		return plua_raise(L, "argument 3 must be labels: {name = \"value\"} or {\"name:value\"}");
	plua_values_begin(e);
	plua_values_encode(L, e, 3);
	plua_values_encode(L, e, 1);
	plua_values_encode(L, e, 2);
	plua_values_encode(L, e, 4);
	uint32_t n = (uint32_t)e->gocall.request.len;
	if (e->gocall.measurements.len + n + sizeof n > MEASUREMENTS_MAX) {
		e->gocall.measurements_lost++;
		return 0;
	}
	plua_check_doc(L, e->api->buf_add(&e->gocall.measurements, (const char *)&n, sizeof n));
	plua_check_doc(L, e->api->buf_add(&e->gocall.measurements, e->gocall.request.data, n));
	return 0;
}

// compile(text, path, name) compiles a file that the script requires.
static int compile(lua_State *L) {
	plua_vm *vm = plua_vm_of(L);
	size_t len;
	const char *text = luaL_checklstring(L, 1, &len),
	           *chunk = plua_vm_add_file(vm, luaL_checkstring(L, 2));
	if (!chunk) plua_check_doc(L, DOC_NO_MEMORY);
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

// The same in an engine that attaches sessions: during such a run the time stands still.
static int run_now(lua_State *L) {
	double time = plua_engine_of(L)->time;
	if (time == 0) return now(L);
	lua_pushnumber(L, time);
	return 1;
}

static int run_seconds(lua_State *L) {
	double time = plua_engine_of(L)->time;
	if (time == 0) return now_seconds(L);
	lua_pushnumber(L, floor(time));
	return 1;
}

void plua_gocall_open(lua_State *L, plua_engine *e) {
	static const luaL_Reg functions[] = {{"request", request}, {"results", plua_gocall_results},
	    {"measure", measure}, {"compile", compile}, {NULL, NULL}},
	                      clock[] = {{"now", now}, {"unix", now_seconds}, {NULL, NULL}},
	                      run_clock[] = {{"now", run_now}, {"unix", run_seconds}, {NULL, NULL}};
	lua_newtable(L);
	luaL_register(L, NULL, functions);
	if (!e->gocall.clock) luaL_register(L, NULL, plua_extension_attaches(e) ? run_clock : clock);
	lua_pushstring(L, e->gocall.names);
	lua_setfield(L, -2, "names");
	if (!e->gocall.direct) return;
	lua_pushcfunction(L, new_direct);
	lua_setfield(L, -2, "direct");
}
