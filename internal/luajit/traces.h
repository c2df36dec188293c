/* What the compiler made of the code of a VM. */
#ifndef PERIGEE_TRACES_H
#define PERIGEE_TRACES_H

#include "vm.h"

/* pg_traces_listen runs the text of traces.lua, which listens from then on, and
 * leaves a reference to what pg_traces_heard wants in *listener. */
int pg_traces_listen(pg_vm *vm, const char *text, size_t len, int *listener);

/* pg_traces_heard pushes the text of what was heard. */
int pg_traces_heard(pg_vm *vm, int listener);

/* The reason why a trace was given up, as LuaJIT words it, with a %s or %d for what
 * it is about; and the name of a bytecode. NULL when there is none of that number. */
const char *pg_traces_reason(unsigned number);
const char *pg_traces_bytecode(unsigned number);

#endif
