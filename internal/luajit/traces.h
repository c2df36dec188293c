/* Records the events of LuaJIT's compiler in a VM. */
#ifndef PERIGEE_TRACES_H
#define PERIGEE_TRACES_H

#include "vm.h"

/* plua_traces_record runs the text of traces.lua, which starts the recording, and stores in
 * *recorder a reference to its function for plua_traces_recorded. */
int plua_traces_record(plua_vm *vm, const char *text, size_t len, int *recorder);

/* plua_traces_recorded pushes the recorded events, as text. */
int plua_traces_recorded(plua_vm *vm, int recorder);

/* plua_traces_reason returns LuaJIT's reason for aborting a trace, with %s or %d for the
 * subject; plua_traces_bytecode_name returns the name of a bytecode. Both return NULL for an
 * unknown number. */
const char *plua_traces_reason(unsigned number);
const char *plua_traces_bytecode_name(unsigned number);

#endif
