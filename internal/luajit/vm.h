/* A Lua VM that runs code from anyone: its life, its sandbox and its limits. */
#ifndef PERIGEE_VM_H
#define PERIGEE_VM_H

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "slab.h"

/* Why a call failed. From PG_EVENT_TIME on it is a limit: nothing in Lua can
 * catch it, and the VM is broken and must be closed. */
enum pg_fault_kind {
	PG_CALL = -1, /* no fault: the script waits for what pg_vm_resume will bring */
	PG_OK,
	PG_SYNTAX,
	PG_ERROR,
	PG_STACK, /* stack overflow */
	PG_EVENT_TIME,
	PG_BATCH_TIME,
	PG_MEMORY,
	PG_OUTPUT,
};

/* What went wrong last. Owned by the VM, valid until its next fault. */
typedef struct pg_fault {
	uint32_t kind;
	uint32_t line; /* in the script; 0 when not known */
	uint32_t message_len, traceback_len;
	char file[LUA_IDSIZE]; /* that the script required, with the line in it; "" for its own */
	char message[1024];
	char traceback[8192];
} pg_fault;

/* What `event` says outside of events: only the limit for the batch holds. */
#define PG_NO_EVENT UINT32_MAX

/* How far a run has come. Its owner says PG_ABOUT before it looks whether the
 * watchdog sleeps; the rest is said by pg_vm_begin, pg_vm_pause and pg_vm_end. */
enum pg_running { PG_RESTS, PG_ABOUT, PG_RUNS };

/* What a running VM and the watchdog say to each other. The driver stores the
 * index of the event it is at in `event`, nothing more; it may do so through
 * FFI. The watchdog reads it from its own thread. */
typedef struct pg_run {
	volatile uint32_t event;
	volatile uint32_t stop; /* enum pg_fault_kind, 0 while the run may go on; loops in C look at it */
	volatile uint32_t running; /* enum pg_running */
	volatile uint32_t number; /* counts runs */
	volatile uint32_t stop_event; /* the event that an event limit is meant for */
	clockid_t clock;              /* processor time of the thread that runs */
} pg_run;

/* One coroutine that is being resumed, innermost first. */
typedef struct pg_frame {
	lua_State *L;
	struct pg_frame *outer;
} pg_frame;

/* A file that the script required. */
typedef struct pg_file {
	struct pg_file *next;
	char chunk[LUA_IDSIZE];
} pg_file;

typedef struct pg_vm {
	pg_run run;
	char lock, armed; /* the hook's */
	int tripped;        /* the heap has outgrown the limit, garbage included */
	uint32_t broken;    /* the limit that ended this VM, or 0 */
	lua_State *L;
	lua_State *co;      /* the coroutine that pg_vm_resume resumes */
	size_t used, limit; /* bytes held; bytes that may be live */
	pg_frame *frames;   /* coroutines being resumed */
	int depth;          /* C functions that call back into Lua, nested */
	char *stack;        /* where the outermost call began on the C stack */
	int base;           /* registry references: the script's globals, to be filled before pg_vm_load, */
	int env;            /*   its environment, */
	int seal;           /*   what forbids new globals, */
	int handler;        /*   the message handler, */
	int caller;         /*   what calls a global function, */
	int mains;          /*   the coroutines that a script takes for no coroutine, */
	int thread;         /*   the one in use, and what makes one, */
	int threads;
	int slot;           /*   a place to hand over one value without allocating */
	struct pg_scratch { /* where C functions build strings, one after the other */
		char *data;
		size_t len, cap;
	} scratch;
	struct pg_log {
		char *data;
		size_t len, cap;
		int truncated;
	} log;
	void *user; /* the front end's own */
	/* describe replaces an error object on top of the stack by a text, if it can. */
	void (*describe)(lua_State *L);
	pg_slab slab;
	pg_file *files;
	char chunk[LUA_IDSIZE]; /* chunk name of the script, "@email.lua" */
	pg_fault fault;
} pg_vm;

/* Life. prelude is the text of prelude.lua. pg_vm_open returns NULL when the
 * limit leaves no room for an empty VM. */
pg_vm *pg_vm_open(size_t memory_limit, int jit, const char *prelude, size_t len);
void pg_vm_close(pg_vm *vm);
pg_vm *pg_vm_of(lua_State *L);

/* Trusted Lua of our own, with every library and the real globals; leaves
 * nresults on the stack when it returns PG_OK. perigee_library(t) there makes the
 * read-only view of a table that a library goes into a script's globals as. */
int pg_vm_host(pg_vm *vm, const char *name, const char *text, size_t len, int nargs, int nresults);

/* pg_vm_load compiles and runs the script's text (no bytecode) in its
 * environment, then forbids new globals. Call it inside a run. */
int pg_vm_load(pg_vm *vm, const char *name, const char *text, size_t len);

/* pg_vm_text compiles the text of a script and leaves the function in pg_vm_thread's
 * coroutine; pg_vm_seal forbids new globals. Together they are pg_vm_load, for a
 * script that may wait while it loads. */
int pg_vm_text(pg_vm *vm, const char *name, const char *text, size_t len);
int pg_vm_seal(pg_vm *vm);

/* pg_vm_file returns the chunk name of a file that the script requires. It lives as
 * long as the VM; NULL when there is no memory. */
const char *pg_vm_file(pg_vm *vm, const char *name);

/* pg_vm_thread sees to it that vm->co can run a function: it is pushed there, and
 * pg_vm_resume runs it, as pg_vm_call does, but for PG_CALL: then the script has
 * yielded, and the next pg_vm_resume goes on. */
int pg_vm_thread(pg_vm *vm);
int pg_vm_resume(pg_vm *vm, int nargs);

/* pg_vm_step is pg_vm_resume, but what the function returned stays in vm->co. */
int pg_vm_step(pg_vm *vm, int nargs);

/* pg_vm_call calls the function below its nargs arguments, as lua_pcall does.
 * On a fault nothing is left on the stack, vm->fault says what went wrong and
 * its kind is returned. */
int pg_vm_call(pg_vm *vm, int nargs, int nresults);

/* pg_vm_call_global is pg_vm_call for a function of the script, without arguments. */
int pg_vm_call_global(pg_vm *vm, const char *name);

/* pg_vm_stop ends the run with a limit: compiled code and the interpreter raise
 * at their next safe point. Safe to call from FFI, from the allocator, and from
 * another thread. pg_vm_raise raises now, from a C function; it does not return. */
void pg_vm_stop(pg_vm *vm, int kind);
int pg_vm_raise(lua_State *L);

/* A C function that loops over what a script gave it calls PG_CHECK now and then;
 * one that calls back into Lua brackets that with pg_vm_enter and pg_vm_leave. */
#define PG_CHECK(L, vm) ((vm)->run.stop ? (void)pg_vm_raise(L) : (void)0)
void pg_vm_enter(lua_State *L, pg_vm *vm);
void pg_vm_leave(pg_vm *vm);

/* pg_vm_reserve ends the run with PG_MEMORY when n more bytes can't fit; a C
 * function asks before it builds something large. */
void pg_vm_reserve(lua_State *L, pg_vm *vm, size_t n);

/* pg_vm_watch is pg_vm_stop for the watchdog: it stops the run only while it is
 * still run `number`, and for PG_EVENT_TIME only while that is still at `event`.
 * Whatever the kind, also PG_OK, it arms anew a run that is being stopped. */
void pg_vm_watch(pg_vm *vm, uint32_t number, uint32_t event, int kind);

/* pg_vm_spent is the processor time, in nanoseconds, of the thread that the current
 * run is on, or -1 when it cannot be told. For the watchdog. */
int64_t pg_vm_spent(const pg_vm *vm);

/* A run, from Go or C. pg_vm_end disarms; the VM's `broken` says how it ended. */
void pg_vm_begin(pg_vm *vm);
void pg_vm_end(pg_vm *vm);

/* pg_vm_forgive lets calls that waited in a broken VM go on in it, and end. */
void pg_vm_forgive(pg_vm *vm);

/* Between pg_vm_pause and pg_vm_continue a run waits, and no limit is watched. */
void pg_vm_pause(pg_vm *vm);
void pg_vm_continue(pg_vm *vm);

#endif
