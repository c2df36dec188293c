#include "invoke.h"

#include <stdlib.h>
#include <string.h>

#include "fault.h"

enum { IDLE_MAX = 1024, ARGS_FAST = 8 };

calls *calls_open(front *f, int64_t limit) {
	calls *c = calloc(1, sizeof *c);
	if (c) *c = (calls){.f = f, .limit = limit};
	return c;
}

void calls_close(calls *c) {
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

// piece is what the time between two functions of Go counts for. The clock runs on
// while the thread does not, so that no piece counts for much; how long one may be the
// watchdog sees to.
static int64_t piece(const calls *c, int64_t from, int64_t to) {
	int64_t most = c->limit / 10;
	return to - from < most ? to - from : most;
}

static int find_global(lua_State *L) {
	lua_rawgeti(L, LUA_REGISTRYINDEX, pg_vm_of(L)->base);
	lua_getfield(L, -1, lua_touserdata(L, 1));
	lua_pushinteger(L, lua_isfunction(L, -1) ? luaL_ref(L, LUA_REGISTRYINDEX) : 0);
	return 1;
}

int calls_bind(calls *c, uint32_t number, const char *name) {
	pg_vm *vm = c->f->vm;
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
	if (pg_vm_call(vm, 1, 1)) return 0;
	c->functions[number] = (int)lua_tointeger(vm->L, -1);
	lua_pop(vm->L, 1);
	return c->functions[number] != 0;
}

// new_thread() makes a coroutine for a call, and returns a reference to it.
static int new_thread(lua_State *L) {
	lua_rawgeti(L, LUA_REGISTRYINDEX, pg_vm_of(L)->mains);
	lua_newthread(L);
	lua_pushvalue(L, -1);
	lua_pushboolean(L, 1);
	lua_rawset(L, -4);
	lua_pushvalue(L, -1);
	lua_pushinteger(L, luaL_ref(L, LUA_REGISTRYINDEX));
	return 2;
}

static int threads_need(calls *c) {
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

// take_number finds a number whose coroutine is gone, or a new one.
static int take_number(calls *c, uint32_t *number) {
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

// take_thread picks a coroutine that can run a function.
static int take_thread(calls *c, uint32_t *number) {
	pg_vm *vm = c->f->vm;
	if (c->idle_count) {
		*number = c->idle[--c->idle_count];
		return PG_OK;
	}
	lua_pushcfunction(vm->L, new_thread);
	int kind = pg_vm_call(vm, 0, 2);
	if (kind) return kind;
	int ref = (int)lua_tointeger(vm->L, -1);
	lua_State *co = lua_tothread(vm->L, -2);
	lua_pop(vm->L, 2);
	if (!take_number(c, number)) {
		luaL_unref(vm->L, LUA_REGISTRYINDEX, ref);
		pg_vm_stop(vm, PG_MEMORY);
		vm->fault.kind = PG_OK;
		pg_fault_settle(vm, LUA_ERRMEM);
		return PG_MEMORY;
	}
	c->threads[*number] = co;
	c->refs[*number] = ref;
	return PG_OK;
}

static void forget(calls *c, uint32_t number) {
	pg_vm *vm = c->f->vm;
	if (vm->co == c->threads[number]) vm->co = NULL;
	luaL_unref(vm->L, LUA_REGISTRYINDEX, c->refs[number]);
	c->threads[number] = NULL;
}

// put_back keeps a coroutine for the next call, unless it has ended with its call.
static void put_back(calls *c, uint32_t number, int sound) {
	if (!sound || c->idle_count == IDLE_MAX) {
		forget(c, number);
		return;
	}
	lua_settop(c->threads[number], 0);
	c->idle[c->idle_count++] = number;
}

// push_plain pushes arguments that cannot fail, and returns how many, or -1.
static int push_plain(lua_State *co, const char *at, const char *end) {
	int n = 0;
	double x;
	while (at < end) {
		if (n++ == ARGS_FAST) goto not_plain;
		switch (*at++) {
		case 'N': lua_pushnil(co); break;
		case 'T': lua_pushboolean(co, 1); break;
		case 'F': lua_pushboolean(co, 0); break;
		case 'D':
			memcpy(&x, at, sizeof x);
			at += sizeof x;
			lua_pushnumber(co, x);
			break;
		default: goto not_plain;
		}
	}
	return n;
not_plain:
	lua_settop(co, 1); // the function
	return -1;
}

// make_values(co) moves the arguments to where they are wanted.
static int make_values(lua_State *L) {
	lua_State *co = lua_touserdata(L, 1);
	lua_settop(L, 0);
	int n = call_answer(L);
	if (!lua_checkstack(co, n + 1)) luaL_error(L, "too many arguments");
	lua_xmove(L, co, n);
	return 0;
}

static int push_values(calls *c, lua_State *co, const char *args, size_t len) {
	pg_vm *vm = c->f->vm;
	int n = push_plain(co, args + 1, args + len);
	if (n >= 0) return n;
	c->f->answer = args;
	c->f->answer_len = len;
	lua_pushcfunction(vm->L, make_values);
	lua_pushlightuserdata(vm->L, co);
	return pg_vm_call(vm, 1, 0) ? -1 : lua_gettop(co) - 1;
}

static int put_plain(front *f, lua_State *co, int index) {
	const char *s;
	size_t len;
	double x;
	switch (lua_type(co, index)) {
	case LUA_TNIL: return f->api->buf_add(&f->request, "N", 1);
	case LUA_TBOOLEAN: return f->api->buf_add(&f->request, lua_toboolean(co, index) ? "T" : "F", 1);
	case LUA_TNUMBER:
		x = lua_tonumber(co, index);
		if (f->api->buf_add(&f->request, "D", 1)) return 1;
		return f->api->buf_add(&f->request, (const char *)&x, sizeof x);
	case LUA_TSTRING: {
		s = lua_tolstring(co, index, &len);
		uint32_t n = (uint32_t)len;
		return f->api->buf_add(&f->request, "S", 1) || f->api->buf_add(&f->request, (const char *)&n, sizeof n) ||
		       f->api->buf_add(&f->request, s, len);
	}
	}
	return 1;
}

// take_results leaves what the function returned in f->request.
static int take_results(calls *c, lua_State *co) {
	front *f = c->f;
	int n = lua_gettop(co), i = 1;
	f->request.len = 0;
	while (i <= n && put_plain(f, co, i) == 0) i++;
	if (i > n) return PG_OK;
	lua_State *L = f->vm->L;
	lua_pushcfunction(L, call_values);
	if (!lua_checkstack(L, n)) n = 0;
	lua_xmove(co, L, n);
	return pg_vm_call(f->vm, n, 0);
}

// limit_hit tells of a call that yielded just when its limit struck.
static int limit_hit(pg_vm *vm) {
	vm->fault.kind = PG_OK;
	pg_fault_settle(vm, LUA_ERRRUN);
	return (int)vm->fault.kind;
}

static int ended(calls *c, uint32_t number, int kind) {
	pg_vm *vm = c->f->vm;
	int sound = kind == PG_OK;
	if (kind == PG_CALL && vm->run.stop) kind = limit_hit(vm);
	if (kind == PG_CALL) {
		c->thread = number;
		c->waiting++;
		pg_vm_pause(vm);
		return kind;
	}
	if (sound) kind = c->f->last.results ? PG_LAST : take_results(c, c->threads[number]);
	put_back(c, number, sound);
	pg_vm_end(vm);
	if (vm->broken) pg_vm_forgive(vm);
	return kind;
}

int calls_start(calls *c, uint32_t function, uint32_t event, const char *args, size_t len) {
	pg_vm *vm = c->f->vm;
	uint32_t number;
	if (function >= c->functions_count || !c->functions[function]) return PG_UNBOUND;
	vm->run.event = event;
	pg_vm_continue(vm);
	int kind = take_thread(c, &number);
	if (kind) {
		pg_vm_end(vm);
		return kind;
	}
	lua_State *co = vm->co = c->threads[number];
	c->f->asked = c->f->last.results = 0;
	lua_rawgeti(co, LUA_REGISTRYINDEX, c->functions[function]);
	int n = len ? push_values(c, co, args, len) : 0;
	c->spent = 0;
	kind = n < 0 ? (int)vm->fault.kind : pg_vm_step(vm, n);
	return ended(c, number, kind);
}

int calls_resume(calls *c, uint32_t thread, uint32_t event, int64_t spent, int precise, const char *answer, size_t len) {
	front *f = c->f;
	pg_vm *vm = f->vm;
	int64_t from = clock_of(precise);
	c->waiting--;
	f->answer = answer;
	f->answer_len = len;
	f->asked = f->last.results = 0;
	vm->co = c->threads[thread];
	vm->run.event = event;
	if (spent >= c->limit) {
		vm->run.stop_event = event;
		pg_vm_stop(vm, PG_EVENT_TIME);
	}
	pg_vm_continue(vm);
	int kind = pg_vm_step(vm, 0);
	if (kind == PG_CALL) c->spent = spent + piece(c, from, clock_of(precise));
	return ended(c, thread, kind);
}

void calls_drop(calls *c, uint32_t thread) {
	c->waiting--;
	forget(c, thread);
}
