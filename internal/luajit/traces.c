#include "traces.h"

#include <lj_bc.h>

int pg_traces_listen(pg_vm *vm, const char *text, size_t len, int *listener) {
	lua_rawgeti(vm->L, LUA_REGISTRYINDEX, vm->base);
	int kind = pg_vm_host(vm, "=traces", text, len, 1, 1);
	if (!kind) *listener = luaL_ref(vm->L, LUA_REGISTRYINDEX);
	return kind;
}

int pg_traces_heard(pg_vm *vm, int listener) {
	lua_rawgeti(vm->L, LUA_REGISTRYINDEX, listener);
	return pg_vm_call(vm, 0, 1);
}

static const char *const reasons[] = {
#define TREDEF(name, text) text,
#include <lj_traceerr.h>
};

const char *pg_traces_reason(unsigned number) {
	return number < sizeof reasons / sizeof *reasons ? reasons[number] : NULL;
}

static const char *const bytecodes[] = {
#define NAME(name, ma, mb, mc, mt) #name,
	BCDEF(NAME)
#undef NAME
};

const char *pg_traces_bytecode(unsigned number) {
	return number < sizeof bytecodes / sizeof *bytecodes ? bytecodes[number] : NULL;
}
