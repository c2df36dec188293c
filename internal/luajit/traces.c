#include "traces.h"

#include <lj_bc.h>

/* script_position() returns the file and line of the innermost running script, or nothing.
 * LuaJIT calls traces.lua in a separate coroutine, which cannot see the other stacks. */
static int script_position(lua_State *L) {
	lua_Debug ar;
	for (plua_frame *f = plua_vm_of(L)->frames; f; f = f->outer)
		for (int level = 0; level < 40 && lua_getstack(f->L, level, &ar); level++) {
			lua_getinfo(f->L, "Sl", &ar);
			if (*ar.source != '@' || ar.currentline <= 0) continue;
			lua_pushstring(L, ar.source + 1);
			lua_pushinteger(L, ar.currentline);
			return 2;
		}
	return 0;
}

int plua_traces_record(plua_vm *vm, const char *text, size_t len, int *recorder) {
	lua_rawgeti(vm->L, LUA_REGISTRYINDEX, vm->globals);
	lua_pushcfunction(vm->L, script_position);
	int kind = plua_vm_run_trusted(vm, "=traces", text, len, 2, 1);
	if (!kind) *recorder = luaL_ref(vm->L, LUA_REGISTRYINDEX);
	return kind;
}

int plua_traces_recorded(plua_vm *vm, int recorder) {
	lua_rawgeti(vm->L, LUA_REGISTRYINDEX, recorder);
	return plua_vm_call(vm, 0, 1);
}

static const char *const reasons[] = {
#define TREDEF(name, text) text,
#include <lj_traceerr.h>
};

const char *plua_traces_reason(unsigned number) {
	return number < sizeof reasons / sizeof *reasons ? reasons[number] : NULL;
}

static const char *const bytecodes[] = {
#define NAME(name, ma, mb, mc, mt) #name,
    BCDEF(NAME)
#undef NAME
};

const char *plua_traces_bytecode_name(unsigned number) {
	return number < sizeof bytecodes / sizeof *bytecodes ? bytecodes[number] : NULL;
}
