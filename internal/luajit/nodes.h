// The node database in a script: one session per engine, whose memory counts as the VM's.

#ifndef PERIGEE_NODES_H
#define PERIGEE_NODES_H

#include "../../nodedb/functions.h"
#include "vm.h"

typedef struct plua_nodes {
	const ndb_functions *functions; // NULL: the script has no store
	ndb_store *store;
	ndb_session *session; // NULL until the script uses it
	plua_vm *vm;
	uint64_t charged;     // bytes of the session that count as memory of the VM
	int unfinished;       // the script may have left a transaction or locks
	int collect;          // for tests: collect all garbage before every call of the core
	int64_t event_ms, waited_ms; // the time limit of an event, and what this one has waited for locks
} plua_nodes;

// plua_nodes_open pushes a table for nodes.lua, nil if the script has no store.
void plua_nodes_open(lua_State *L, plua_nodes *n);

// plua_nodes_charge counts what the session holds as memory of the VM.
void plua_nodes_charge(plua_nodes *n);

// plua_nodes_finish ends what an event has left: it rolls transactions back and releases locks.
void plua_nodes_finish(plua_nodes *n);

// plua_nodes_idle lets go of the state of the store that was read last, which would keep its
// pages from being used again. Call it when a run has ended.
void plua_nodes_idle(plua_nodes *n);

// plua_nodes_close closes the session. Call it after plua_vm_close: finalizers close iterators.
void plua_nodes_close(plua_nodes *n);

#endif
