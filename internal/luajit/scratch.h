/* A buffer for C functions that build a string for Lua. Functions that call back
 * into Lua may nest: each works above what lies there already, and an error
 * takes back what its frames had built. */
#ifndef PERIGEE_SCRATCH_H
#define PERIGEE_SCRATCH_H

#include <string.h>

#include "vm.h"

/* pg_scratch_grow and _need make room for n more bytes, or raise. */
void pg_scratch_grow(lua_State *L, pg_vm *vm, size_t n);

static inline void pg_scratch_need(lua_State *L, pg_vm *vm, size_t n) {
	if (vm->scratch.cap - vm->scratch.len < n) pg_scratch_grow(L, vm, n);
}

static inline void pg_scratch_add(lua_State *L, pg_vm *vm, const char *text, size_t n) {
	pg_scratch_need(L, vm, n);
	memcpy(vm->scratch.data + vm->scratch.len, text, n);
	vm->scratch.len += n;
}

/* pg_scratch_push pushes what was added since start, as a string. */
void pg_scratch_push(lua_State *L, pg_vm *vm, size_t start);

#endif
