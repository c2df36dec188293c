/* Turns an error in a script into a message, a line and a traceback. */
#ifndef PERIGEE_ERROR_H
#define PERIGEE_ERROR_H

#include "vm.h"

/* plua_error_handler is the message handler of every protected call. */
int plua_error_handler(lua_State *L);

/* plua_error_finish sets the kind of a failed call's error: the limit that stopped the run, or else
 * the kind that the handler recorded. */
void plua_error_finish(plua_vm *vm);

/* plua_error_syntax takes the compiler's message from the top of the stack. */
void plua_error_syntax(lua_State *L, plua_vm *vm);

/* plua_error_limit records the place at which a limit was exceeded, the first time. */
void plua_error_limit(lua_State *L, plua_vm *vm);

/* plua_error_strip_place removes a place in sandbox.lua from the message on top of the stack, since
 * the script caused an error raised there. */
#define PLUA_SANDBOX "[perigee]"
void plua_error_strip_place(lua_State *L);

/* plua_raise raises an error, prefixed with the script's line. It does not return. */
int plua_raise(lua_State *L, const char *format, ...);

#endif
