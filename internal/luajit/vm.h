/* A Lua VM that runs untrusted code: its life cycle, its sandbox and its limits. */
#ifndef PERIGEE_VM_H
#define PERIGEE_VM_H

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "slab.h"

/* Why a call failed. From PLUA_EVENT_TIME on it is a limit: Lua code cannot catch it, and the VM is
 * broken and must be closed. */
enum plua_error_kind {
	/* no error: the script waits for a Go function; plua_vm_resume continues it */
	PLUA_WAITING = -1,
	PLUA_OK,
	PLUA_SYNTAX,
	PLUA_ERROR,
	PLUA_STACK, /* stack overflow */
	PLUA_EVENT_TIME,
	PLUA_BATCH_TIME,
	PLUA_MEMORY,
	PLUA_OUTPUT,
};

/* The last error. Owned by the VM, valid until its next error. */
typedef struct plua_error {
	uint32_t kind;
	uint32_t line; /* in the script; 0 when unknown */
	uint32_t message_len, traceback_len;
	char file[LUA_IDSIZE]; /* the required file that line is in; "" for the script's own text */
	char message[1024];
	char traceback[8192];
} plua_error;

/* The value of plua_run.event outside of events, where only the batch's limits apply. */
#define PLUA_NO_EVENT UINT32_MAX

/* The state of a run. Go stores PLUA_STARTING before it checks whether the watchdog
 * sleeps; plua_vm_begin, plua_vm_continue, plua_vm_pause and plua_vm_end store the others. */
enum plua_running {
	PLUA_IDLE,
	PLUA_STARTING,
	PLUA_RUNNING
};

/* The state that a running VM shares with the watchdog's thread. The driver loop in Lua writes only
 * `event`, through FFI. */
typedef struct plua_run {
	volatile uint32_t event; /* index of the current event */
	/* enum plua_error_kind; 0: the run may continue; loops in C check it */
	volatile uint32_t stop;
	volatile uint32_t running;    /* enum plua_running */
	volatile uint32_t number;     /* counts runs */
	volatile uint32_t stop_event; /* the event that an event limit applies to */
	clockid_t clock;              /* CPU time of the thread that runs */
} plua_run;

/* A coroutine being resumed. The frames form a list, innermost first. */
typedef struct plua_frame {
	lua_State *L;
	struct plua_frame *outer;
} plua_frame;

/* A line of a text: how often it ran, and for how long if the VM measures that. */
typedef struct plua_line {
	uint64_t runs, ns;
} plua_line;

/* The lines of a text, by number; line 0 is unused. */
typedef struct plua_lines {
	plua_line *all;
	uint32_t count;
} plua_lines;

enum {
	PLUA_COVERS = 1,
	PLUA_TIMES = 2
};

/* A file that the script required. */
typedef struct plua_file {
	struct plua_file *next;
	plua_lines lines;
	char chunk[LUA_IDSIZE];
} plua_file;

typedef struct plua_vm {
	plua_run run;
	char lock, armed; /* of the hook */
	int over_limit;   /* the heap, including garbage, exceeds the limit */
	uint32_t broken;  /* the limit that broke this VM, or 0 */
	lua_State *L;
	lua_State *co;      /* the coroutine that plua_vm_resume resumes */
	size_t used, limit; /* bytes held; limit on live bytes */
	plua_frame *frames; /* coroutines being resumed */
	int depth;          /* nested C functions that call back into Lua */
	char *stack;        /* C stack address of the outermost call */
	/* References into Lua's registry. */
	int globals;      /* the script's globals; fill them before plua_vm_load */
	int env;          /* the script's environment */
	int seal;         /* the function that forbids new globals */
	int handler;      /* the message handler */
	int call_global;  /* the function that calls a global function */
	int main_threads; /* the set of coroutines in which the host runs scripts */
	int thread;       /* the main thread in use */
	int new_thread;   /* the function that creates one */
	int slot;         /* holds one value, which thus needs no allocation to pass */
	struct plua_strbuf {
		char *data;
		size_t len, cap;
	} strbuf; /* see strbuf.h */
	struct plua_log {
		char *data;
		size_t len, cap;
		int truncated;
	} log;
	struct plua_engine *engine; /* for documents and batches, or NULL */
	/* describe replaces an error object on top of the stack with a text, if it can. */
	void (*describe)(lua_State *L);
	/* recharge counts memory held by C code for the VM again, after a collection; or NULL. */
	void (*recharge)(struct plua_vm *vm);
	plua_slab slab;
	int covers;       /* PLUA_COVERS or PLUA_TIMES if lines are recorded, see plua_vm_cover */
	plua_lines lines; /* of the script's own text */
	struct plua_timing {
		plua_lines *of; /* text of the line that runs, or NULL */
		uint32_t line;
		uint64_t since; /* nanoseconds of the clock */
	} timing;
	plua_file *files;
	char chunk[LUA_IDSIZE]; /* chunk name of the script, "@email.lua" */
	plua_error error;
} plua_vm;

/* plua_vm_open runs the text of sandbox.lua in a new VM. It returns NULL if the limit is too low
 * even for an empty VM. */
plua_vm *plua_vm_open(size_t memory_limit, int jit, const char *sandbox, size_t len);
void plua_vm_close(plua_vm *vm);

static inline plua_vm *plua_vm_of(lua_State *L) {
	void *vm;
	lua_getallocf(L, &vm);
	return vm;
}

/* plua_vm_run_trusted runs trusted Lua code, with all libraries and the real globals. If it returns
 * PLUA_OK, nresults values are on the stack. */
int plua_vm_run_trusted(
    plua_vm *vm, const char *name, const char *text, size_t len, int nargs, int nresults);

/* plua_vm_load compiles and runs the script's text (no bytecode) in its
 * environment, then forbids new globals. Call it inside a run. */
int plua_vm_load(plua_vm *vm, const char *name, const char *text, size_t len);

/* plua_vm_compile compiles the script's text and pushes the function to vm->co;
 * plua_vm_seal forbids new globals. A script that may wait while it loads uses these
 * two, with plua_vm_resume between them, instead of plua_vm_load. */
int plua_vm_compile(plua_vm *vm, const char *name, const char *text, size_t len);
int plua_vm_seal(plua_vm *vm);

/* plua_vm_add_file returns the chunk name of a file that the script requires. It lives as long
 * as the VM. NULL if memory is exhausted. */
const char *plua_vm_add_file(plua_vm *vm, const char *name);

/* plua_vm_need_thread makes sure that vm->co can run a function. Push the function there, then
 * call plua_vm_resume. That works as plua_vm_call, but returns PLUA_WAITING if the script
 * yields; the next plua_vm_resume continues the script. */
int plua_vm_need_thread(plua_vm *vm);
int plua_vm_resume(plua_vm *vm, int nargs);

/* plua_vm_resume_keeping is plua_vm_resume, but leaves the function's results in vm->co. */
int plua_vm_resume_keeping(plua_vm *vm, int nargs);

/* plua_vm_call calls the function below its nargs arguments, as lua_pcall does. On an
 * error it leaves nothing on the stack, sets vm->error and returns its kind. */
int plua_vm_call(plua_vm *vm, int nargs, int nresults);

/* plua_vm_call_global is plua_vm_call for a global function of the script, without arguments. */
int plua_vm_call_global(plua_vm *vm, const char *name);

/* plua_vm_fail completes vm->error after a Lua call returned status, and returns its kind. */
int plua_vm_fail(plua_vm *vm, int status);

/* plua_vm_stop ends the run with a limit: compiled code and the interpreter raise the error at
 * their next safe point. It may be called from FFI, from the allocator and from another thread.
 * plua_vm_raise raises the error at once, from a C function; it does not return. */
void plua_vm_stop(plua_vm *vm, int kind);
int plua_vm_raise(lua_State *L);

/* C functions that loop over a script's data must call PLUA_CHECK regularly. C functions that call
 * back into Lua must enclose the call in plua_vm_enter_c and plua_vm_leave_c. */
#define PLUA_CHECK(L, vm) ((vm)->run.stop ? (void)plua_vm_raise(L) : (void)0)
void plua_vm_enter_c(lua_State *L, plua_vm *vm);
void plua_vm_leave_c(plua_vm *vm);

/* plua_vm_reserve ends the run with PLUA_MEMORY if n more bytes do not fit. C functions call it
 * before they build a large object. */
void plua_vm_reserve(lua_State *L, plua_vm *vm, size_t n);

/* plua_vm_charge counts n bytes allocated (or, if negative, freed) by C code towards the VM's
 * memory. If the limit is exceeded, the run ends at its next safe point. It may be called from
 * FFI. */
void plua_vm_charge(plua_vm *vm, int64_t n);

/* plua_vm_alloc is the VM's allocator, a lua_Alloc. */
void *plua_vm_alloc(void *vm, void *ptr, size_t osize, size_t nsize);

/* plua_vm_stop_run is plua_vm_stop for the watchdog. It stops the run only if that is still run
 * `number`, and for PLUA_EVENT_TIME only if the run is still at `event`. If the run is already
 * being stopped, it arms the hook again; kind may be PLUA_OK. */
void plua_vm_stop_run(plua_vm *vm, uint32_t number, uint32_t event, int kind);

/* plua_vm_cpu_time returns the CPU time, in nanoseconds, of the thread of the current run, or -1 if
 * unknown. For the watchdog. */
int64_t plua_vm_cpu_time(const plua_vm *vm);

/* plua_vm_begin begins a run. plua_vm_end ends it, and sets `broken` if a limit stopped it. */
void plua_vm_begin(plua_vm *vm);
void plua_vm_end(plua_vm *vm);

/* Between plua_vm_pause and plua_vm_continue a run waits, and no limits apply. */
void plua_vm_pause(plua_vm *vm);
void plua_vm_continue(plua_vm *vm);

/* plua_vm_clear_stop lets waiting calls of a broken VM continue and end. */
void plua_vm_clear_stop(plua_vm *vm);

/* plua_vm_cover records which lines of the script and of its files run: how often and, with
 * PLUA_TIMES, for how long. A line's time is the CPU time until the next line runs, with the C functions
 * that it calls. Nothing may be running, and the VM must not compile: compiled code calls no
 * hooks. */
void plua_vm_cover(plua_vm *vm, int covers);

/* plua_vm_collect frees all garbage. Nothing may be running. */
void plua_vm_collect(plua_vm *vm);

#endif
