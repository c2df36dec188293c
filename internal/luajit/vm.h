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

/* Why a call failed. From PG_EVENT_TIME on it is a limit: nothing in Lua can
 * catch it, and the VM is broken and must be closed. */
enum pg_error_kind {
	PG_WAITING = -1, /* no error: the script waits for a Go function; pg_vm_resume continues it */
	PG_OK,
	PG_SYNTAX,
	PG_ERROR,
	PG_STACK, /* stack overflow */
	PG_EVENT_TIME,
	PG_BATCH_TIME,
	PG_MEMORY,
	PG_OUTPUT,
};

/* The last error. Owned by the VM, valid until its next error. */
typedef struct pg_error {
	uint32_t kind;
	uint32_t line; /* in the script; 0 when unknown */
	uint32_t message_len, traceback_len;
	char file[LUA_IDSIZE]; /* the required file that line is in; "" for the script's own text */
	char message[1024];
	char traceback[8192];
} pg_error;

/* The value of pg_run.event outside of events: only the batch's limits hold. */
#define PG_NO_EVENT UINT32_MAX

/* The state of a run. Go stores PG_STARTING before it checks whether the watchdog
 * sleeps; pg_vm_begin, pg_vm_continue, pg_vm_pause and pg_vm_end store the rest. */
enum pg_running { PG_IDLE, PG_STARTING, PG_RUNNING };

/* What a running VM shares with the watchdog, which reads it from its own thread.
 * The driver loop in Lua writes `event`, through FFI, and nothing else. */
typedef struct pg_run {
	volatile uint32_t event;   /* index of the event that runs */
	volatile uint32_t stop;    /* enum pg_error_kind; 0 while the run may continue; loops in C check it */
	volatile uint32_t running; /* enum pg_running */
	volatile uint32_t number;  /* counts runs */
	volatile uint32_t stop_event; /* the event that an event limit applies to */
	clockid_t clock;              /* CPU time of the thread that runs */
} pg_run;

/* A coroutine that is being resumed. The frames form a list, innermost first. */
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
	char lock, armed;   /* of the hook */
	int over_limit;     /* the heap, garbage included, has outgrown the limit */
	uint32_t broken;    /* the limit that ended this VM, or 0 */
	lua_State *L;
	lua_State *co;      /* the coroutine that pg_vm_resume resumes */
	size_t used, limit; /* bytes held; bytes that may be live */
	pg_frame *frames;   /* coroutines being resumed */
	int depth;          /* nested C functions that call back into Lua */
	char *stack;        /* C stack address of the outermost call */
	/* References into Lua's registry. */
	int globals;        /* the script's globals, to be filled before pg_vm_load */
	int env;            /* the script's environment */
	int seal;           /* the function that forbids new globals */
	int handler;        /* the message handler */
	int call_global;    /* the function that calls a global function */
	int main_threads;   /* the set of coroutines that the host runs scripts in */
	int thread;         /* the main thread in use */
	int new_thread;     /* the function that makes one */
	int slot;           /* holds one value, so that passing it needs no allocation */
	struct pg_strbuf {
		char *data;
		size_t len, cap;
	} strbuf; /* see strbuf.h */
	struct pg_log {
		char *data;
		size_t len, cap;
		int truncated;
	} log;
	struct pg_engine *engine; /* that documents and batches run in, or NULL */
	/* describe replaces an error object on top of the stack by a text, if it can. */
	void (*describe)(lua_State *L);
	/* recharge counts again what C code holds for the VM, when garbage was collected; or NULL. */
	void (*recharge)(struct pg_vm *vm);
	pg_slab slab;
	pg_file *files;
	char chunk[LUA_IDSIZE]; /* chunk name of the script, "@email.lua" */
	pg_error error;
} pg_vm;

/* pg_vm_open runs the text of sandbox.lua in a new VM. It returns NULL when the
 * limit leaves no room for an empty VM. */
pg_vm *pg_vm_open(size_t memory_limit, int jit, const char *sandbox, size_t len);
void pg_vm_close(pg_vm *vm);

static inline pg_vm *pg_vm_of(lua_State *L) {
	void *vm;
	lua_getallocf(L, &vm);
	return vm;
}

/* pg_vm_run_trusted runs Lua of our own, with every library and the real globals,
 * and leaves nresults on the stack when it returns PG_OK. */
int pg_vm_run_trusted(pg_vm *vm, const char *name, const char *text, size_t len, int nargs, int nresults);

/* pg_vm_load compiles and runs the script's text (no bytecode) in its
 * environment, then forbids new globals. Call it inside a run. */
int pg_vm_load(pg_vm *vm, const char *name, const char *text, size_t len);

/* pg_vm_compile compiles the script's text and pushes the function to vm->co;
 * pg_vm_seal forbids new globals. A script that may wait while it loads needs these
 * two, with pg_vm_resume between them, in place of pg_vm_load. */
int pg_vm_compile(pg_vm *vm, const char *name, const char *text, size_t len);
int pg_vm_seal(pg_vm *vm);

/* pg_vm_add_file returns the chunk name of a file that the script requires. It lives as
 * long as the VM; NULL when memory is exhausted. */
const char *pg_vm_add_file(pg_vm *vm, const char *name);

/* pg_vm_need_thread makes sure that vm->co can run a function. Push the function
 * there, then call pg_vm_resume. It works as pg_vm_call, except that it returns PG_WAITING
 * when the script yields; the next pg_vm_resume continues the script. */
int pg_vm_need_thread(pg_vm *vm);
int pg_vm_resume(pg_vm *vm, int nargs);

/* pg_vm_resume_keeping is pg_vm_resume, and leaves what the function returned in vm->co. */
int pg_vm_resume_keeping(pg_vm *vm, int nargs);

/* pg_vm_call calls the function below its nargs arguments, as lua_pcall does. On an
 * error it leaves nothing on the stack, sets vm->error and returns its kind. */
int pg_vm_call(pg_vm *vm, int nargs, int nresults);

/* pg_vm_call_global is pg_vm_call for a global function of the script, without arguments. */
int pg_vm_call_global(pg_vm *vm, const char *name);

/* pg_vm_fail completes vm->error after a call of Lua's ended with status, and returns its kind. */
int pg_vm_fail(pg_vm *vm, int status);

/* pg_vm_stop ends the run with a limit: compiled code and the interpreter raise
 * at their next safe point. It is safe to call from FFI, from the allocator and from
 * another thread. pg_vm_raise raises at once, from a C function; it does not return. */
void pg_vm_stop(pg_vm *vm, int kind);
int pg_vm_raise(lua_State *L);

/* A C function that loops over a script's data calls PG_CHECK regularly; one that
 * calls back into Lua brackets the call with pg_vm_enter_c and pg_vm_leave_c. */
#define PG_CHECK(L, vm) ((vm)->run.stop ? (void)pg_vm_raise(L) : (void)0)
void pg_vm_enter_c(lua_State *L, pg_vm *vm);
void pg_vm_leave_c(pg_vm *vm);

/* pg_vm_reserve ends the run with PG_MEMORY when n more bytes do not fit. A C function
 * calls it before it builds something large. */
void pg_vm_reserve(lua_State *L, pg_vm *vm, size_t n);

/* pg_vm_charge counts n bytes that C code has taken, or given back, as memory of the VM. More than
 * fit end the run at its next safe point. It is safe to call from FFI. */
void pg_vm_charge(pg_vm *vm, int64_t n);

/* pg_vm_alloc is the VM's allocator, a lua_Alloc. */
void *pg_vm_alloc(void *vm, void *ptr, size_t osize, size_t nsize);

/* pg_vm_stop_run is pg_vm_stop for the watchdog. It stops the run only while that still
 * is run `number`, and for PG_EVENT_TIME only while the run still is at `event`.
 * It arms the hook again for a run that is already being stopped; kind may be PG_OK. */
void pg_vm_stop_run(pg_vm *vm, uint32_t number, uint32_t event, int kind);

/* pg_vm_cpu_time returns the CPU time, in nanoseconds, of the thread that the current
 * run is on, or -1 when that is unknown. For the watchdog. */
int64_t pg_vm_cpu_time(const pg_vm *vm);

/* pg_vm_begin begins a run, pg_vm_end ends it and sets `broken` if a limit stopped it. */
void pg_vm_begin(pg_vm *vm);
void pg_vm_end(pg_vm *vm);

/* Between pg_vm_pause and pg_vm_continue a run waits, and no limit applies. */
void pg_vm_pause(pg_vm *vm);
void pg_vm_continue(pg_vm *vm);

/* pg_vm_clear_stop lets calls that wait in a broken VM continue and end. */
void pg_vm_clear_stop(pg_vm *vm);

/* pg_vm_collect frees all garbage, while nothing runs. */
void pg_vm_collect(pg_vm *vm);

#endif
