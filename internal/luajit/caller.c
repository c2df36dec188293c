#include "caller.h"

#include <stdlib.h>
#include <string.h>

enum {
	IDLE_MAX = 1024, // threads
	ARGS_FAST = 8    // arguments
};

plua_caller *plua_caller_open(plua_engine *e, int64_t limit) {
	plua_caller *c = calloc(1, sizeof *c);
	if (c) *c = (plua_caller){.engine = e, .limit = limit};
	return c;
}

void plua_caller_close(plua_caller *c) {
	if (!c) return;
	free(c->threads);
	free(c->refs);
	free(c->idle);
	free(c->functions);
	free(c);
}

static int64_t clock_of(int precise) {
	struct timespec t;
	clock_gettime(precise ? CLOCK_MONOTONIC : CLOCK_MONOTONIC_COARSE, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

// charge returns how much of a call's limit the time between two Go functions uses. The clock also
// advances while the thread does not run, so each such time is capped. The watchdog enforces the
// limit within it.
static int64_t charge(const plua_caller *c, int64_t from, int64_t to) {
	int64_t cap = c->limit / 10;
	return to - from < cap ? to - from : cap;
}

static int find_global(lua_State *L) {
	lua_rawgeti(L, LUA_REGISTRYINDEX, plua_vm_of(L)->globals);
	lua_getfield(L, -1, lua_touserdata(L, 1));
	lua_pushinteger(L, lua_isfunction(L, -1) ? luaL_ref(L, LUA_REGISTRYINDEX) : 0);
	return 1;
}

int plua_caller_bind(plua_caller *c, uint32_t number, const char *name) {
	plua_vm *vm = c->engine->vm;
	if (number >= c->functions_count) {
		uint32_t count = (number + 8) & ~7u;
		int *functions = realloc(c->functions, count * sizeof *functions);
		if (!functions) return 0;
		memset(functions + c->functions_count, 0, (count - c->functions_count) * sizeof *functions);
		c->functions = functions;
		c->functions_count = count;
	}
	lua_pushcfunction(vm->L, find_global);
	lua_pushlightuserdata(vm->L, (void *)name);
	if (plua_vm_call(vm, 1, 1)) return 0;
	c->functions[number] = (int)lua_tointeger(vm->L, -1);
	lua_pop(vm->L, 1);
	return c->functions[number] != 0;
}

// new_thread() creates a coroutine for a call, and returns it and a reference to it.
static int new_thread(lua_State *L) {
	lua_rawgeti(L, LUA_REGISTRYINDEX, plua_vm_of(L)->main_threads);
	lua_newthread(L);
	lua_pushvalue(L, -1);
	lua_pushboolean(L, 1);
	lua_rawset(L, -4);
	lua_pushvalue(L, -1);
	lua_pushinteger(L, luaL_ref(L, LUA_REGISTRYINDEX));
	return 2;
}

static int threads_need(plua_caller *c) {
	if (c->count < c->cap) return 1;
	uint32_t cap = c->cap ? c->cap * 2 : 16;
	lua_State **threads = realloc(c->threads, cap * sizeof *threads);
	if (threads) c->threads = threads;
	int *refs = realloc(c->refs, cap * sizeof *refs);
	if (refs) c->refs = refs;
	uint32_t *idle = realloc(c->idle, cap * sizeof *idle);
	if (idle) c->idle = idle;
	if (!threads || !refs || !idle) return 0;
	c->cap = cap;
	return 1;
}

// allocate_number returns a free coroutine number.
static int allocate_number(plua_caller *c, uint32_t *number) {
	if (c->count - c->waiting - c->idle_count > 0)
		for (uint32_t i = 0; i < c->count; i++)
			if (!c->threads[i]) {
				*number = i;
				return 1;
			}
	if (!threads_need(c)) return 0;
	*number = c->count++;
	return 1;
}

// acquire_thread returns an idle or new coroutine that can run a function.
static int acquire_thread(plua_caller *c, uint32_t *number) {
	plua_vm *vm = c->engine->vm;
	if (c->idle_count) {
		*number = c->idle[--c->idle_count];
		return PLUA_OK;
	}
	lua_pushcfunction(vm->L, new_thread);
	int kind = plua_vm_call(vm, 0, 2);
	if (kind) return kind;
	int ref = (int)lua_tointeger(vm->L, -1);
	lua_State *co = lua_tothread(vm->L, -2);
	lua_pop(vm->L, 2);
	if (!allocate_number(c, number)) {
		luaL_unref(vm->L, LUA_REGISTRYINDEX, ref);
		vm->error.kind = PLUA_OK;
		return plua_vm_fail(vm, LUA_ERRMEM);
	}
	c->threads[*number] = co;
	c->refs[*number] = ref;
	return PLUA_OK;
}

// free_thread frees a coroutine and its number.
static void free_thread(plua_caller *c, uint32_t number) {
	plua_vm *vm = c->engine->vm;
	if (vm->co == c->threads[number]) vm->co = NULL;
	luaL_unref(vm->L, LUA_REGISTRYINDEX, c->refs[number]);
	c->threads[number] = NULL;
}

// release_thread keeps a coroutine for the next call, if it is reusable.
static void release_thread(plua_caller *c, uint32_t number, int reusable) {
	if (!reusable || c->idle_count == IDLE_MAX) {
		free_thread(c, number);
		return;
	}
	lua_settop(c->threads[number], 0);
	c->idle[c->idle_count++] = number;
}

// push_scalars pushes the arguments if they are few and need no allocation. It returns their
// number, or -1.
static int push_scalars(lua_State *co, const char *at, const char *end) {
	int n = 0;
	double x;
	while (at < end) {
		if (n++ == ARGS_FAST) goto other;
		switch (*at++) {
		case 'N': lua_pushnil(co); break;
		case 'T': lua_pushboolean(co, 1); break;
		case 'F': lua_pushboolean(co, 0); break;
		case 'D':
			memcpy(&x, at, sizeof x);
			at += sizeof x;
			lua_pushnumber(co, x);
			break;
		default: goto other;
		}
	}
	return n;
other:
	lua_settop(co, 1); // the function
	return -1;
}

// decode_args(co) decodes the arguments and moves them to co.
static int decode_args(lua_State *L) {
	lua_State *co = lua_touserdata(L, 1);
	lua_settop(L, 0); // results begin at 1
	int n = plua_gocall_results(L);
	if (!lua_checkstack(co, n + 1)) luaL_error(L, "too many arguments");
	lua_xmove(L, co, n);
	return 0;
}

static int push_args(plua_caller *c, lua_State *co, const char *args, size_t len) {
	plua_vm *vm = c->engine->vm;
	int n = push_scalars(co, args + 1, args + len);
	if (n >= 0) return n;
	c->engine->gocall.answer = args;
	c->engine->gocall.answer_len = len;
	lua_pushcfunction(vm->L, decode_args);
	lua_pushlightuserdata(vm->L, co);
	return plua_vm_call(vm, 1, 0) ? -1 : lua_gettop(co) - 1;
}

// encode_scalar appends a value to the request without using Lua. If it cannot, it does nothing and
// returns 0.
static int encode_scalar(plua_engine *e, lua_State *co, int index) {
	const char *s;
	size_t len;
	double x;
	switch (lua_type(co, index)) {
	case LUA_TNIL: return e->api->buf_add(&e->gocall.request, "N", 1);
	case LUA_TBOOLEAN:
		return e->api->buf_add(&e->gocall.request, lua_toboolean(co, index) ? "T" : "F", 1);
	case LUA_TNUMBER:
		x = lua_tonumber(co, index);
		if (e->api->buf_add(&e->gocall.request, "D", 1)) return 1;
		return e->api->buf_add(&e->gocall.request, (const char *)&x, sizeof x);
	case LUA_TSTRING: {
		s = lua_tolstring(co, index, &len);
		uint32_t n = (uint32_t)len;
		return e->api->buf_add(&e->gocall.request, "S", 1) ||
		       e->api->buf_add(&e->gocall.request, (const char *)&n, sizeof n) ||
		       e->api->buf_add(&e->gocall.request, s, len);
	}
	}
	return 1;
}

// encode_results encodes the function's results to gocall.request.
static int encode_results(plua_caller *c, lua_State *co) {
	plua_engine *e = c->engine;
	int n = lua_gettop(co), i = 1;
	e->gocall.request.len = 0;
	while (i <= n && encode_scalar(e, co, i) == 0) i++;
	if (i > n) return PLUA_OK;
	lua_State *L = e->vm->L;
	lua_pushcfunction(L, plua_values_keep);
	if (!lua_checkstack(L, n)) n = 0;
	lua_xmove(co, L, n);
	return plua_vm_call(e->vm, n, 0);
}

// fail_limit fails a call that yielded just when its limit was exceeded.
static int fail_limit(plua_vm *vm) {
	vm->error.kind = PLUA_OK;
	return plua_vm_fail(vm, LUA_ERRRUN);
}

// end_crossing completes a crossing that returned kind.
static int end_crossing(plua_caller *c, uint32_t number, int kind) {
	plua_vm *vm = c->engine->vm;
	int reusable = kind == PLUA_OK;
	if (kind == PLUA_WAITING && vm->run.stop) kind = fail_limit(vm);
	if (kind == PLUA_WAITING) {
		c->thread = number;
		c->waiting++;
		plua_vm_pause(vm);
		return kind;
	}
	if (reusable)
		kind =
		    c->engine->gocall.tail.results ? PLUA_TAIL_CALL : encode_results(c, c->threads[number]);
	release_thread(c, number, reusable);
	plua_vm_end(vm);
	if (vm->broken) plua_vm_clear_stop(vm);
	/* Collect now, so that waiting calls do not spend their time on this call's garbage. */
	if (c->waiting && (vm->broken || vm->over_limit)) plua_vm_collect(vm);
	return kind;
}

int plua_caller_start(
    plua_caller *c, uint32_t function, uint32_t event, const char *args, size_t len) {
	plua_vm *vm = c->engine->vm;
	uint32_t number = 0;
	if (function >= c->functions_count || !c->functions[function]) return PLUA_UNBOUND;
	vm->run.event = event;
	plua_vm_continue(vm);
	int kind = acquire_thread(c, &number);
	if (kind) {
		plua_vm_end(vm);
		return kind;
	}
	lua_State *co = vm->co = c->threads[number];
	c->engine->gocall.tail.results = 0;
	lua_rawgeti(co, LUA_REGISTRYINDEX, c->functions[function]);
	int n = len ? push_args(c, co, args, len) : 0;
	c->spent = 0;
	kind = n < 0 ? (int)vm->error.kind : plua_vm_resume_keeping(vm, n);
	return end_crossing(c, number, kind);
}

int plua_caller_resume(plua_caller *c, uint32_t thread, uint32_t event, int64_t spent, int precise,
    const char *answer, size_t len) {
	plua_engine *e = c->engine;
	plua_vm *vm = e->vm;
	int64_t from = clock_of(precise);
	c->waiting--;
	e->gocall.answer = answer;
	e->gocall.answer_len = len;
	e->gocall.tail.results = 0;
	vm->co = c->threads[thread];
	vm->run.event = event;
	if (spent >= c->limit) {
		vm->run.stop_event = event;
		plua_vm_stop(vm, PLUA_EVENT_TIME);
	}
	plua_vm_continue(vm);
	int kind = plua_vm_resume_keeping(vm, 0);
	if (kind == PLUA_WAITING) c->spent = spent + charge(c, from, clock_of(precise));
	return end_crossing(c, thread, kind);
}

void plua_caller_drop(plua_caller *c, uint32_t thread) {
	c->waiting--;
	free_thread(c, thread);
}
