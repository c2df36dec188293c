#include "error.h"
#include "sandbox.h"

/* Each coroutine that resumes another one, and each callback from C, takes C stack, which nothing
 * else limits. */
enum {
	DEPTH_MAX = 190,      /* coroutines */
	STACK_MAX = 512 << 10 /* bytes */
};

void plua_vm_enter_c(lua_State *L, plua_vm *vm) {
	ptrdiff_t used = vm->stack - (char *)__builtin_frame_address(0);
	if (vm->depth >= DEPTH_MAX || used > STACK_MAX || used < -STACK_MAX)
		luaL_error(L, "C stack overflow");
	vm->depth++;
}

void plua_vm_leave_c(plua_vm *vm) { vm->depth--; }

enum {
	RETURNED,
	YIELDED,
	FAILED
};

/* is_suspended reports whether co can be resumed. Coroutines that run, or wait for one that they
 * resumed, are in the list of frames. */
static int is_suspended(plua_vm *vm, lua_State *co) {
	if (co == vm->L) return 0;
	for (plua_frame *f = vm->frames; f; f = f->outer)
		if (f->L == co) return 0;
	return lua_status(co) == LUA_YIELD || (lua_status(co) == 0 && lua_gettop(co) > 0);
}

/* step(co, ...) resumes co and returns the status and the values. */
static int step(lua_State *L) {
	plua_vm *vm = plua_vm_of(L);
	lua_State *co = lua_tothread(L, 1);
	luaL_argcheck(L, co != NULL, 1, "coroutine expected");
	PLUA_CHECK(L, vm);
	if (!is_suspended(vm, co)) {
		lua_pushinteger(L, FAILED);
		lua_pushstring(L, "cannot resume a coroutine that is not suspended");
		return 2;
	}
	int n = lua_gettop(L) - 1, depth = vm->depth;
	size_t built = vm->strbuf.len;
	if (!lua_checkstack(co, n + 1)) luaL_error(L, "too many arguments to resume");
	plua_vm_enter_c(L, vm);
	plua_frame frame = {co, vm->frames};
	vm->frames = &frame;
	lua_xmove(L, co, n);
	int status = lua_resume(co, n);
	vm->frames = frame.outer;
	vm->depth = depth;
	vm->strbuf.len = built;
	if (status == LUA_ERRMEM) plua_vm_stop(vm, PLUA_MEMORY);
	PLUA_CHECK(L, vm);
	n = status == 0 || status == LUA_YIELD ? lua_gettop(co) : 1;
	if (!lua_checkstack(L, n + 2)) {
		lua_settop(co, 0);
		luaL_error(L, "too many results to resume");
	}
	lua_settop(L, 0);
	lua_pushinteger(L, status == 0 ? RETURNED : status == LUA_YIELD ? YIELDED : FAILED);
	lua_xmove(co, L, n);
	if (status > LUA_YIELD) plua_error_strip_place(L);
	return n + 1;
}

void plua_coroutine_open(lua_State *L) {
	lua_createtable(L, 0, 1);
	lua_pushcfunction(L, step);
	lua_setfield(L, -2, "step");
}
