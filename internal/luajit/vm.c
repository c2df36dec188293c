#include "vm.h"

#include <luajit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fault.h"
#include "limit.h"
#include "sandbox.h"

/* luajit_build is the identity of the archive that tools/luajit/build.sh made. It stands
 * in the object so that a new archive makes Go compile this package and link again. */
#ifdef __SANITIZE_ADDRESS__
#if __has_include("luajit_build_asan.h")
#include "luajit_build_asan.h"
#endif
#elif __has_include("luajit_build.h")
#include "luajit_build.h"
#endif
#ifdef LUAJIT_BUILD
__attribute__((used)) static const char luajit_build[] = LUAJIT_BUILD;
#endif

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

/* new_thread makes the coroutine that runs the script. */
static int new_thread(lua_State *L) {
	pg_vm *vm = pg_vm_of(L);
	lua_State *co = lua_newthread(L);
	lua_rawgeti(L, LUA_REGISTRYINDEX, vm->mains);
	lua_pushvalue(L, -2);
	lua_pushboolean(L, 1);
	lua_rawset(L, -3);
	lua_pop(L, 1);
	lua_rawseti(L, LUA_REGISTRYINDEX, vm->thread);
	vm->co = co;
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
	lua_pushcfunction(L, new_thread);
	t->vm->threads = luaL_ref(L, LUA_REGISTRYINDEX);
	lua_pushboolean(L, 1);
	t->vm->thread = luaL_ref(L, LUA_REGISTRYINDEX);
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
	pg_slab_open(&vm->slab);
	vm->L = lua_newstate(pg_alloc, vm);
	if (!vm->L) {
		pg_slab_close(&vm->slab);
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
	for (pg_file *file = vm->files, *next; file; file = next) {
		next = file->next;
		free(file);
	}
	pg_slab_close(&vm->slab);
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

int pg_vm_thread(pg_vm *vm) {
	if (vm->co && lua_status(vm->co) == 0) return PG_OK;
	lua_rawgeti(vm->L, LUA_REGISTRYINDEX, vm->threads);
	return pg_vm_call(vm, 0, 0);
}

/* failed finds out what ended vm->co, whose stack is as it was then. */
static void failed(pg_vm *vm, int status) {
	if (status != LUA_ERRMEM) {
		lua_rawgeti(vm->L, LUA_REGISTRYINDEX, vm->handler);
		lua_xmove(vm->co, vm->L, 1);
		int again = lua_pcall(vm->L, 1, 0, 0);
		if (again) {
			lua_pop(vm->L, 1);
			status = again;
		}
	}
	pg_fault_settle(vm, status);
}

int pg_vm_resume(pg_vm *vm, int nargs) {
	int kind = pg_vm_step(vm, nargs);
	if (kind == PG_OK) lua_settop(vm->co, 0); // what it returned would pile up
	return kind;
}

int pg_vm_step(pg_vm *vm, int nargs) {
	char *stack = begin_call(vm);
	int depth = vm->depth;
	size_t scratch = vm->scratch.len;
	pg_frame frame = {vm->co, vm->frames};
	vm->frames = &frame;
	vm->fault.kind = PG_OK;
	int status = lua_resume(vm->co, nargs);
	if (status > LUA_YIELD) {
		vm->frames = &frame;
		failed(vm, status);
	}
	vm->depth = depth, vm->frames = frame.outer, vm->stack = stack, vm->scratch.len = scratch;
	return status == 0 ? PG_OK : status == LUA_YIELD ? PG_CALL : (int)vm->fault.kind;
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

/* name_chunk keeps the end of a name that is too long. */
static void name_chunk(char chunk[LUA_IDSIZE], const char *name) {
	size_t n = strlen(name), room = LUA_IDSIZE - sizeof "@...";
	snprintf(chunk, LUA_IDSIZE, n > room ? "@...%s" : "@%s", n > room ? name + n - room : name);
}

const char *pg_vm_file(pg_vm *vm, const char *name) {
	pg_file *file = malloc(sizeof *file);
	if (!file) return NULL;
	name_chunk(file->chunk, name);
	file->next = vm->files;
	vm->files = file;
	return file->chunk;
}

int pg_vm_text(pg_vm *vm, const char *name, const char *text, size_t len) {
	name_chunk(vm->chunk, name);
	vm->run.event = PG_NO_EVENT;
	int kind = pg_vm_thread(vm);
	if (!kind) kind = push_text(vm, vm->chunk, text, len);
	if (!kind) lua_xmove(vm->L, vm->co, 1);
	return kind;
}

int pg_vm_seal(pg_vm *vm) {
	lua_rawgeti(vm->L, LUA_REGISTRYINDEX, vm->seal);
	return pg_vm_call(vm, 0, 0);
}

int pg_vm_load(pg_vm *vm, const char *name, const char *text, size_t len) {
	int kind = pg_vm_text(vm, name, text, len);
	if (!kind) kind = pg_vm_resume(vm, 0);
	return kind ? kind : pg_vm_seal(vm);
}

int pg_vm_call_global(pg_vm *vm, const char *name) {
	lua_rawgeti(vm->L, LUA_REGISTRYINDEX, vm->caller);
	lua_pushlightuserdata(vm->L, (void *)name);
	return pg_vm_call(vm, 1, 0);
}
