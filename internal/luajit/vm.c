#include "vm.h"

#include <luajit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fault.h"
#include "limit.h"
#include "sandbox.h"

pg_vm *pg_vm_of(lua_State *L) {
	void *vm;
	lua_getallocf(L, &vm);
	return vm;
}

struct text {
	pg_vm *vm;
	const char *name, *text;
	size_t len;
	int status;
};

static int call_global(lua_State *L) {
	lua_rawgeti(L, LUA_REGISTRYINDEX, pg_vm_of(L)->base);
	lua_getfield(L, -1, lua_touserdata(L, 1));
	lua_call(L, 0, 0);
	return 0;
}

/* open_libs does all that may allocate below one protected call. */
static int open_libs(lua_State *L) {
	struct text *t = lua_touserdata(L, 1);
	luaL_openlibs(L);
	lua_pushcfunction(L, pg_fault_handler);
	t->vm->handler = luaL_ref(L, LUA_REGISTRYINDEX);
	lua_pushcfunction(L, call_global);
	t->vm->caller = luaL_ref(L, LUA_REGISTRYINDEX);
	lua_pushboolean(L, 1);
	t->vm->slot = luaL_ref(L, LUA_REGISTRYINDEX);
	if (luaL_loadbufferx(L, t->text, t->len, t->name, "t")) return lua_error(L);
	pg_sandbox_open(L, t->vm);
	return 0;
}

pg_vm *pg_vm_open(size_t memory_limit, int jit, const char *prelude, size_t len) {
	pg_vm *vm = calloc(1, sizeof *vm);
	if (!vm) return NULL;
	vm->limit = memory_limit;
	vm->L = lua_newstate(pg_alloc, vm);
	if (!vm->L) {
		free(vm);
		return NULL;
	}
	vm->stack = __builtin_frame_address(0);
	if (!jit) luaJIT_setmode(vm->L, 0, LUAJIT_MODE_ENGINE | LUAJIT_MODE_OFF);
	struct text t = {vm, "=" PG_PRELUDE, prelude, len, 0};
	if (lua_cpcall(vm->L, open_libs, &t) != 0 || vm->run.stop) {
		pg_vm_close(vm);
		return NULL;
	}
	return vm;
}

void pg_vm_close(pg_vm *vm) {
	lua_sethook(vm->L, NULL, 0, 0);
	lua_close(vm->L);
	free(vm->scratch.data);
	free(vm->log.data);
	free(vm);
}

/* begin_call notes how deep the C stack is when we come in from outside. */
static char *begin_call(pg_vm *vm) {
	char *outer = vm->stack;
	if (vm->depth == 0 && !vm->frames) vm->stack = __builtin_frame_address(0);
	return outer;
}

int pg_vm_call(pg_vm *vm, int nargs, int nresults) {
	lua_State *L = vm->L;
	char *stack = begin_call(vm);
	int depth = vm->depth, at = lua_gettop(L) - nargs;
	pg_frame *frames = vm->frames;
	size_t scratch = vm->scratch.len;
	vm->fault.kind = PG_OK;
	lua_rawgeti(L, LUA_REGISTRYINDEX, vm->handler);
	lua_insert(L, at);
	int status = lua_pcall(L, nargs, nresults, at);
	lua_remove(L, at);
	vm->depth = depth, vm->frames = frames, vm->stack = stack, vm->scratch.len = scratch;
	if (status == 0) return PG_OK;
	pg_fault_settle(vm, status);
	lua_settop(L, at - 1);
	return vm->fault.kind;
}

static int load_text(lua_State *L) {
	struct text *t = lua_touserdata(L, 1);
	t->status = luaL_loadbufferx(L, t->text, t->len, t->name, "t");
	if (t->status) {
		pg_fault_syntax(L, t->vm);
		return 0;
	}
	if (t->name == t->vm->chunk) {
		lua_rawgeti(L, LUA_REGISTRYINDEX, t->vm->env);
		lua_setfenv(L, -2);
	}
	lua_rawseti(L, LUA_REGISTRYINDEX, t->vm->slot);
	return 0;
}

/* push_text compiles a chunk and leaves it on the stack. */
static int push_text(pg_vm *vm, const char *name, const char *text, size_t len) {
	struct text t = {vm, name, text, len, 0};
	vm->fault.kind = PG_OK;
	int status = lua_cpcall(vm->L, load_text, &t);
	if (status) {
		pg_fault_settle(vm, status);
		lua_settop(vm->L, 0);
		return vm->fault.kind;
	}
	if (t.status) return vm->fault.kind;
	lua_rawgeti(vm->L, LUA_REGISTRYINDEX, vm->slot);
	return PG_OK;
}

int pg_vm_host(pg_vm *vm, const char *name, const char *text, size_t len, int nargs, int nresults) {
	int kind = push_text(vm, name, text, len);
	if (kind) return kind;
	lua_insert(vm->L, -nargs - 1);
	return pg_vm_call(vm, nargs, nresults);
}

int pg_vm_load(pg_vm *vm, const char *name, const char *text, size_t len) {
	size_t n = strlen(name), room = sizeof vm->chunk - sizeof "@...";
	snprintf(vm->chunk, sizeof vm->chunk, n > room ? "@...%s" : "@%s", n > room ? name + n - room : name);
	vm->run.event = PG_NO_EVENT;
	int kind = push_text(vm, vm->chunk, text, len);
	if (!kind) kind = pg_vm_call(vm, 0, 0);
	if (kind) return kind;
	lua_rawgeti(vm->L, LUA_REGISTRYINDEX, vm->seal);
	return pg_vm_call(vm, 0, 0);
}

int pg_vm_call_global(pg_vm *vm, const char *name) {
	lua_rawgeti(vm->L, LUA_REGISTRYINDEX, vm->caller);
	lua_pushlightuserdata(vm->L, (void *)name);
	return pg_vm_call(vm, 1, 0);
}
