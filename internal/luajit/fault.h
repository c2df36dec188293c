/* How an error in a script becomes a message, a line and a traceback. */
#ifndef PERIGEE_FAULT_H
#define PERIGEE_FAULT_H

#include "vm.h"

/* The message handler of every protected call. */
int pg_fault_handler(lua_State *L);

/* pg_fault_settle decides what a failed call was, from its status and what the
 * handler noted. */
void pg_fault_settle(pg_vm *vm, int status);

/* pg_fault_syntax takes the compiler's message from the top of the stack. */
void pg_fault_syntax(lua_State *L, pg_vm *vm);

/* pg_fault_strip takes our own place off the message on top of the stack: an
 * error that strikes in the prelude is the script's. */
#define PG_PRELUDE "[perigee]"
void pg_fault_strip(lua_State *L);

#endif
