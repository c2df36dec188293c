#include "traces.h"

#include <lj_bc.h>

int pg_traces_record(pg_vm *vm, const char *text, size_t len, int *recorder) {
	lua_rawgeti(vm->L, LUA_REGISTRYINDEX, vm->globals);
	int kind = pg_vm_run_trusted(vm, "=traces", text, len, 1, 1);
	if (!kind) *recorder = luaL_ref(vm->L, LUA_REGISTRYINDEX);
	return kind;
}

int pg_traces_recorded(pg_vm *vm, int recorder) {
	lua_rawgeti(vm->L, LUA_REGISTRYINDEX, recorder);
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

const char *pg_traces_bytecode_name(unsigned number) {
	return number < sizeof bytecodes / sizeof *bytecodes ? bytecodes[number] : NULL;
}
