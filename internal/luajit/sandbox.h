/* What a script can see. */
#ifndef PERIGEE_SANDBOX_H
#define PERIGEE_SANDBOX_H

#include "vm.h"

/* pg_sandbox_open runs the prelude, the function on top of the stack, and keeps
 * what it returns. */
void pg_sandbox_open(lua_State *L, pg_vm *vm);

/* Functions that the prelude builds on; each pushes one table. */
void pg_string_functions(lua_State *L);
void pg_coroutine_functions(lua_State *L);

#endif
