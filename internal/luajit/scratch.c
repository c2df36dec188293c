#include "scratch.h"

#include "limit.h"

enum { KEEP = 64 << 10 };

static void resize(lua_State *L, pg_vm *vm, size_t cap) {
	char *data = pg_alloc(vm, vm->scratch.data, vm->scratch.cap, cap);
	if (!data && cap) {
		pg_vm_stop(vm, PG_MEMORY);
		pg_vm_raise(L);
	}
	vm->scratch.data = data, vm->scratch.cap = cap;
}

void pg_scratch_grow(lua_State *L, pg_vm *vm, size_t n) {
	size_t cap = vm->scratch.cap * 2;
	if (cap < vm->scratch.len + n) cap = vm->scratch.len + n + 256;
	pg_vm_reserve(L, vm, cap - vm->scratch.cap);
	resize(L, vm, cap);
}

void pg_scratch_push(lua_State *L, pg_vm *vm, size_t start) {
	size_t n = vm->scratch.len - start;
	pg_vm_reserve(L, vm, n);
	lua_pushlstring(L, vm->scratch.data + start, n);
	vm->scratch.len = start;
	if (start == 0 && vm->scratch.cap > KEEP) resize(L, vm, 0);
}
