/* The environment that a script sees. */
#ifndef PERIGEE_SANDBOX_H
#define PERIGEE_SANDBOX_H

#include "vm.h"

/* plua_sandbox_open runs sandbox.lua, the function on top of the stack, and stores its results in
 * vm. */
void plua_sandbox_open(lua_State *L, plua_vm *vm);

/* The C functions that sandbox.lua uses; each pushes one table. */
void plua_string_open(lua_State *L);
void plua_coroutine_open(lua_State *L);

#endif
