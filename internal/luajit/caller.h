// Calls of single functions of a script. Many calls can be in progress in one VM: a call that waits
// for a Go function keeps its coroutine while others run.

#ifndef PERIGEE_CALLER_H
#define PERIGEE_CALLER_H

#include "engine.h"

typedef struct plua_caller {
	plua_engine *engine;
	int64_t limit;       // nanoseconds that a call may run
	lua_State **threads; // coroutines by number; NULL: the number is free
	int *refs;           // registry references to them
	uint32_t *idle;      // numbers of coroutines without a call
	uint32_t count, cap, idle_count, waiting;
	int *functions; // registry references to the script's functions by number; 0: not bound
	uint32_t functions_count;

	// Result of the last crossing: its kind, and, if its call waits, the call's coroutine and run
	// time so far.
	int kind;
	uint32_t thread;
	int64_t spent;
} plua_caller;

// Results of a crossing besides enum plua_error_kind. PLUA_UNBOUND: no function is bound to the
// number in this VM. PLUA_TAIL_CALL: the call has ended, and its last act is to call a Go function
// with the arguments in gocall.request; see gocall.tail.
enum {
	PLUA_UNBOUND = -2,
	PLUA_TAIL_CALL = -3
};

plua_caller *plua_caller_open(plua_engine *e, int64_t limit);
void plua_caller_close(plua_caller *c); // after plua_vm_close

// plua_caller_bind binds a global function to a number. It returns 0 if the script has no
// function with that name.
int plua_caller_bind(plua_caller *c, uint32_t number, const char *name);

// plua_caller_start calls a function with encoded values. event is a number that no other call in
// progress has. Afterwards gocall.request contains the encoded results, or the request of a call
// that waits.
int plua_caller_start(
    plua_caller *c, uint32_t function, uint32_t event, const char *args, size_t len);

// plua_caller_resume continues a call that has run for `spent` nanoseconds. precise measures its
// time with a slower clock.
int plua_caller_resume(plua_caller *c, uint32_t thread, uint32_t event, int64_t spent, int precise,
    const char *answer, size_t len);

// plua_caller_drop abandons a waiting call.
void plua_caller_drop(plua_caller *c, uint32_t thread);

#endif
