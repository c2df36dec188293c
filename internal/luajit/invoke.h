// Calls of single functions of a script. Many of them can be under way in one VM:
// one that waits for a function of Go sits in its coroutine while others run.

#ifndef PERIGEE_INVOKE_H
#define PERIGEE_INVOKE_H

#include "frontend.h"

typedef struct calls {
	front *f;
	int64_t limit;       // nanoseconds that a call may run
	lua_State **threads; // coroutines, by number
	int *refs;           // and their references
	uint32_t *idle;      // numbers of those that can be used again
	uint32_t count, cap, idle_count, waiting;
	int *functions;      // references to functions of the script, by number; 0: not looked up
	uint32_t functions_count;

	// Of the crossing that ended: how, the coroutine of the call that waits, and how long
	// that call has run.
	int kind;
	uint32_t thread;
	int64_t spent;
} calls;

// PG_UNBOUND: the function has no number in this VM yet. PG_LAST: the call is done but
// for the function of Go that f->request is for; f->last tells more.
enum { PG_UNBOUND = -2, PG_LAST = -3 };

calls *calls_open(front *f, int64_t limit);
void calls_close(calls *c); // after pg_vm_close

// calls_bind gives the global function a number. It returns 0 when there is none of
// that name.
int calls_bind(calls *c, uint32_t number, const char *name);

// calls_start calls a function with encoded values. event tells this call from
// others. The results stand in f->request then, as the request of a call that
// waits does.
int calls_start(calls *c, uint32_t function, uint32_t event, const char *args, size_t len);

// calls_resume goes on with a call that had run for `spent`. precise reads a dearer
// clock.
int calls_resume(calls *c, uint32_t thread, uint32_t event, int64_t spent, int precise, const char *answer, size_t len);

// calls_drop gives up a call that waits.
void calls_drop(calls *c, uint32_t thread);

#endif
