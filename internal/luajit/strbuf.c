#include "strbuf.h"

enum {
	CAP_KEPT = 64 << 10 /* a larger buffer is freed once it is empty */
};

static void resize(lua_State *L, plua_vm *vm, size_t cap) {
	char *data = plua_vm_alloc(vm, vm->strbuf.data, vm->strbuf.cap, cap);
	if (!data && cap) {
		plua_vm_stop(vm, PLUA_MEMORY);
		plua_vm_raise(L);
	}
	vm->strbuf.data = data, vm->strbuf.cap = cap;
}

void plua_strbuf_grow(lua_State *L, plua_vm *vm, size_t n) {
	size_t cap = vm->strbuf.cap * 2;
	if (cap < vm->strbuf.len + n) cap = vm->strbuf.len + n + 256;
	plua_vm_reserve(L, vm, cap - vm->strbuf.cap);
	resize(L, vm, cap);
}

void plua_strbuf_push(lua_State *L, plua_vm *vm, size_t start) {
	size_t n = vm->strbuf.len - start;
	plua_vm_reserve(L, vm, n);
	lua_pushlstring(L, vm->strbuf.data + start, n);
	vm->strbuf.len = start;
	if (start == 0 && vm->strbuf.cap > CAP_KEPT) resize(L, vm, 0);
}
