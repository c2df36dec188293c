/* Records what LuaJIT's compiler does with the code of a VM. */
#ifndef PERIGEE_TRACES_H
#define PERIGEE_TRACES_H

#include "vm.h"

/* plua_traces_record runs the text of traces.lua, which records from then on, and
 * stores a reference to its function for plua_traces_recorded in *recorder. */
int plua_traces_record(plua_vm *vm, const char *text, size_t len, int *recorder);

/* plua_traces_recorded pushes what was recorded, as text. */
int plua_traces_recorded(plua_vm *vm, int recorder);

/* plua_traces_reason returns why LuaJIT aborted a trace, in its own words, with %s or %d
 * for the subject, and plua_traces_bytecode_name the name of a bytecode; NULL for an unknown number. */
const char *plua_traces_reason(unsigned number);
const char *plua_traces_bytecode_name(unsigned number);

#endif
