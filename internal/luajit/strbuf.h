/* A buffer for C functions that build a string for Lua. Functions that call back into Lua may nest:
 * each appends to the present contents, and after an error the buffer is cut back to its length
 * before the failed call. */
#ifndef PERIGEE_STRBUF_H
#define PERIGEE_STRBUF_H

#include <string.h>

#include "vm.h"

/* plua_strbuf_grow and plua_strbuf_need make space for n more bytes, or raise an error. */
void plua_strbuf_grow(lua_State *L, plua_vm *vm, size_t n);

static inline void plua_strbuf_need(lua_State *L, plua_vm *vm, size_t n) {
	if (vm->strbuf.cap - vm->strbuf.len < n) plua_strbuf_grow(L, vm, n);
}

static inline void plua_strbuf_add(lua_State *L, plua_vm *vm, const char *text, size_t n) {
	plua_strbuf_need(L, vm, n);
	memcpy(vm->strbuf.data + vm->strbuf.len, text, n);
	vm->strbuf.len += n;
}

/* plua_strbuf_push pushes the bytes appended since start, as a string. */
void plua_strbuf_push(lua_State *L, plua_vm *vm, size_t start);

#endif
