#include "vm.h"

#include <luajit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "sandbox.h"

/* luajit_build identifies the archive that tools/luajit/build.sh built. With it in the object, a
 * new archive makes Go compile this package and link again. */
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

struct text {
	plua_vm *vm;
	const char *name, *text;
	size_t len;
	int status;
};

static int call_global(lua_State *L) {
	lua_rawgeti(L, LUA_REGISTRYINDEX, plua_vm_of(L)->globals);
	lua_getfield(L, -1, lua_touserdata(L, 1));
	lua_call(L, 0, 0);
	return 0;
}

/* new_thread creates a main thread, the coroutine that runs the script. */
static int new_thread(lua_State *L) {
	plua_vm *vm = plua_vm_of(L);
	lua_State *co = lua_newthread(L);
	lua_rawgeti(L, LUA_REGISTRYINDEX, vm->main_threads);
	lua_pushvalue(L, -2);
	lua_pushboolean(L, 1);
	lua_rawset(L, -3);
	lua_pop(L, 1);
	lua_rawseti(L, LUA_REGISTRYINDEX, vm->thread);
	vm->co = co;
	return 0;
}

/* open_libs makes all allocations of the open, in one protected call. */
static int open_libs(lua_State *L) {
	struct text *t = lua_touserdata(L, 1);
	luaL_openlibs(L);
	lua_pushcfunction(L, plua_error_handler);
	t->vm->handler = luaL_ref(L, LUA_REGISTRYINDEX);
	lua_pushcfunction(L, call_global);
	t->vm->call_global = luaL_ref(L, LUA_REGISTRYINDEX);
	lua_pushcfunction(L, new_thread);
	t->vm->new_thread = luaL_ref(L, LUA_REGISTRYINDEX);
	lua_pushboolean(L, 1);
	t->vm->thread = luaL_ref(L, LUA_REGISTRYINDEX);
	lua_pushboolean(L, 1);
	t->vm->slot = luaL_ref(L, LUA_REGISTRYINDEX);
	if (luaL_loadbufferx(L, t->text, t->len, t->name, "t")) return lua_error(L);
	plua_sandbox_open(L, t->vm);
	return 0;
}

plua_vm *plua_vm_open(size_t memory_limit, int jit, const char *sandbox, size_t len) {
	plua_vm *vm = calloc(1, sizeof *vm);
	if (!vm) return NULL;
	vm->limit = memory_limit;
	plua_slab_open(&vm->slab);
	vm->L = lua_newstate(plua_vm_alloc, vm);
	if (!vm->L) {
		plua_slab_close(&vm->slab);
		free(vm);
		return NULL;
	}
	vm->stack = __builtin_frame_address(0);
	if (!jit) luaJIT_setmode(vm->L, 0, LUAJIT_MODE_ENGINE | LUAJIT_MODE_OFF);
	struct text t = {vm, "=" PLUA_SANDBOX, sandbox, len, 0};
	if (lua_cpcall(vm->L, open_libs, &t) != 0 || vm->run.stop) {
		plua_vm_close(vm);
		return NULL;
	}
	return vm;
}

void plua_vm_close(plua_vm *vm) {
	lua_sethook(vm->L, NULL, 0, 0);
	lua_close(vm->L);
	for (plua_file *file = vm->files, *next; file; file = next) {
		next = file->next;
		free(file->lines.all);
		free(file);
	}
	free(vm->lines.all);
	plua_slab_close(&vm->slab);
	free(vm->strbuf.data);
	free(vm->log.data);
	free(vm);
}

/* begin_call records the C stack's position at the outermost call, and returns the previous one. */
static char *begin_call(plua_vm *vm) {
	char *outer = vm->stack;
	if (vm->depth == 0 && !vm->frames) vm->stack = __builtin_frame_address(0);
	return outer;
}

int plua_vm_fail(plua_vm *vm, int status) {
	if (status == LUA_ERRMEM && !vm->run.stop) plua_vm_stop(vm, PLUA_MEMORY);
	plua_error_finish(vm);
	return (int)vm->error.kind;
}

int plua_vm_call(plua_vm *vm, int nargs, int nresults) {
	lua_State *L = vm->L;
	char *stack = begin_call(vm);
	int depth = vm->depth, at = lua_gettop(L) - nargs;
	plua_frame *frames = vm->frames;
	size_t built = vm->strbuf.len;
	vm->error.kind = PLUA_OK;
	lua_rawgeti(L, LUA_REGISTRYINDEX, vm->handler);
	lua_insert(L, at);
	int status = lua_pcall(L, nargs, nresults, at);
	lua_remove(L, at);
	vm->depth = depth, vm->frames = frames, vm->stack = stack, vm->strbuf.len = built;
	if (status == 0) return PLUA_OK;
	plua_vm_fail(vm, status);
	lua_settop(L, at - 1);
	return vm->error.kind;
}

int plua_vm_need_thread(plua_vm *vm) {
	if (vm->co && lua_status(vm->co) == 0) return PLUA_OK;
	lua_rawgeti(vm->L, LUA_REGISTRYINDEX, vm->new_thread);
	return plua_vm_call(vm, 0, 0);
}

/* fail_thread completes the error that ended vm->co, whose stack is still intact. */
static void fail_thread(plua_vm *vm, int status) {
	if (status != LUA_ERRMEM) {
		lua_rawgeti(vm->L, LUA_REGISTRYINDEX, vm->handler);
		lua_xmove(vm->co, vm->L, 1);
		int handled = lua_pcall(vm->L, 1, 0, 0);
		if (handled != 0) {
			lua_pop(vm->L, 1);
			status = handled;
		}
	}
	plua_vm_fail(vm, status);
}

int plua_vm_resume(plua_vm *vm, int nargs) {
	int kind = plua_vm_resume_keeping(vm, nargs);
	if (kind == PLUA_OK) lua_settop(vm->co, 0); /* drops its results */
	return kind;
}

int plua_vm_resume_keeping(plua_vm *vm, int nargs) {
	char *stack = begin_call(vm);
	int depth = vm->depth;
	size_t built = vm->strbuf.len;
	plua_frame frame = {vm->co, vm->frames};
	vm->frames = &frame;
	vm->error.kind = PLUA_OK;
	int status = lua_resume(vm->co, nargs);
	if (status > LUA_YIELD) {
		vm->frames = &frame;
		fail_thread(vm, status);
	}
	vm->depth = depth, vm->frames = frame.outer, vm->stack = stack, vm->strbuf.len = built;
	return status == 0 ? PLUA_OK : status == LUA_YIELD ? PLUA_WAITING : (int)vm->error.kind;
}

static int load_text(lua_State *L) {
	struct text *t = lua_touserdata(L, 1);
	t->status = luaL_loadbufferx(L, t->text, t->len, t->name, "t");
	if (t->status) {
		plua_error_syntax(L, t->vm);
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
static int push_text(plua_vm *vm, const char *name, const char *text, size_t len) {
	struct text t = {vm, name, text, len, 0};
	vm->error.kind = PLUA_OK;
	int status = lua_cpcall(vm->L, load_text, &t);
	if (status) {
		int kind = plua_vm_fail(vm, status);
		lua_settop(vm->L, 0);
		return kind;
	}
	if (t.status) return vm->error.kind;
	lua_rawgeti(vm->L, LUA_REGISTRYINDEX, vm->slot);
	return PLUA_OK;
}

int plua_vm_run_trusted(
    plua_vm *vm, const char *name, const char *text, size_t len, int nargs, int nresults) {
	int kind = push_text(vm, name, text, len);
	if (kind) return kind;
	lua_insert(vm->L, -nargs - 1);
	return plua_vm_call(vm, nargs, nresults);
}

/* name_chunk keeps only the end of a name that is too long. */
static void name_chunk(char chunk[LUA_IDSIZE], const char *name) {
	size_t n = strlen(name), room = LUA_IDSIZE - sizeof "@...";
	snprintf(chunk, LUA_IDSIZE, n > room ? "@...%s" : "@%s", n > room ? name + n - room : name);
}

const char *plua_vm_add_file(plua_vm *vm, const char *name) {
	char chunk[LUA_IDSIZE];
	name_chunk(chunk, name);
	// A file that failed can be required again and again.
	for (plua_file *file = vm->files; file; file = file->next)
		if (!strcmp(file->chunk, chunk)) return file->chunk;
	plua_file *file = calloc(1, sizeof *file);
	if (!file) return NULL;
	memcpy(file->chunk, chunk, sizeof chunk);
	file->next = vm->files;
	vm->files = file;
	return file->chunk;
}

int plua_vm_compile(plua_vm *vm, const char *name, const char *text, size_t len) {
	name_chunk(vm->chunk, name);
	vm->run.event = PLUA_NO_EVENT;
	int kind = plua_vm_need_thread(vm);
	if (!kind) kind = push_text(vm, vm->chunk, text, len);
	if (!kind) lua_xmove(vm->L, vm->co, 1);
	return kind;
}

int plua_vm_seal(plua_vm *vm) {
	lua_rawgeti(vm->L, LUA_REGISTRYINDEX, vm->seal);
	return plua_vm_call(vm, 0, 0);
}

int plua_vm_load(plua_vm *vm, const char *name, const char *text, size_t len) {
	int kind = plua_vm_compile(vm, name, text, len);
	if (!kind) kind = plua_vm_resume(vm, 0);
	return kind ? kind : plua_vm_seal(vm);
}

int plua_vm_call_global(plua_vm *vm, const char *name) {
	lua_rawgeti(vm->L, LUA_REGISTRYINDEX, vm->call_global);
	lua_pushlightuserdata(vm->L, (void *)name);
	return plua_vm_call(vm, 1, 0);
}
