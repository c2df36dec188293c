// Calls of single functions of a script. One VM can have many calls in progress: a call
// that waits for a Go function keeps its coroutine while others run.

#ifndef PERIGEE_CALLER_H
#define PERIGEE_CALLER_H

#include "engine.h"

typedef struct plua_caller {
	plua_engine *engine;
	int64_t limit;       // nanoseconds that a call may run
	lua_State **threads; // coroutines by number, NULL when the number is free
	int *refs;           // references to them
	uint32_t *idle;      // numbers of coroutines that run no call
	uint32_t count, cap, idle_count, waiting;
	int *functions; // references to functions of the script by number; 0: not bound
	uint32_t functions_count;

	// The last crossing: how it ended, the coroutine of the call if that waits, and how long that
	// call has run.
	int kind;
	uint32_t thread;
	int64_t spent;
} plua_caller;

// How a crossing ends, besides enum plua_error_kind. PLUA_UNBOUND: the function has no number
// in this VM. PLUA_TAIL_CALL: the call has ended with a Go function, whose
// arguments are in gocall.request; see gocall.tail.
enum {
	PLUA_UNBOUND = -2,
	PLUA_TAIL_CALL = -3
};

plua_caller *plua_caller_open(plua_engine *e, int64_t limit);
void plua_caller_close(plua_caller *c); // after plua_vm_close

// plua_caller_bind gives a global function a number. It returns 0 if the script has no
// function of that name.
int plua_caller_bind(plua_caller *c, uint32_t number, const char *name);

// plua_caller_start calls a function with encoded values. event is a number that no other
// call in progress has. The encoded results are in gocall.request afterwards, as the request of a
// call that waits is.
int plua_caller_start(
    plua_caller *c, uint32_t function, uint32_t event, const char *args, size_t len);

// plua_caller_resume continues a call that has run for `spent`. precise measures with
// a slower clock.
int plua_caller_resume(plua_caller *c, uint32_t thread, uint32_t event, int64_t spent, int precise,
    const char *answer, size_t len);

// plua_caller_drop abandons a call that waits.
void plua_caller_drop(plua_caller *c, uint32_t thread);

#endif
