/* Records what LuaJIT's compiler does with the code of a VM. */
#ifndef PERIGEE_TRACES_H
#define PERIGEE_TRACES_H

#include "vm.h"

/* pg_traces_record runs the text of traces.lua, which records from then on, and
 * stores a reference to its function for pg_traces_recorded in *recorder. */
int pg_traces_record(pg_vm *vm, const char *text, size_t len, int *recorder);

/* pg_traces_recorded pushes what was recorded, as text. */
int pg_traces_recorded(pg_vm *vm, int recorder);

/* pg_traces_reason returns why LuaJIT aborted a trace, in its own words, with %s or %d
 * for the subject, and pg_traces_bytecode_name the name of a bytecode; NULL for an unknown number. */
const char *pg_traces_reason(unsigned number);
const char *pg_traces_bytecode_name(unsigned number);

#endif
