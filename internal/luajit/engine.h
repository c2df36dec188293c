// An engine: a VM whose scripts read and write JSON documents, and the run of a batch
// through a script's main.
//
// A container is a userdata that represents an object or an array of a document: of the event,
// while main runs, or of a document that json.decode returned. To a script it looks like a table.
// Compiled scripts get a proxy instead, see proxy.c.
//
// The files call each other only downwards, in this order:
//
//	engine    open, load and close
//	caller    calls of single functions
//	ffi       the functions that engine.lua calls through FFI
//	batch     runs the events of a batch
//	results   handles the results of main
//	metamethods, json, gocall, route, extension
//	          operations of scripts on documents, Go functions, sinks and extensions
//	values    values that cross between Lua and Go
//	encode    Lua values as JSON
//	output    the rows and failed events of a run
//	container, bignum, proxy, tailcall, and the files below vm.h

#ifndef PERIGEE_ENGINE_H
#define PERIGEE_ENGINE_H

#include "../document/document.h"
#include "error.h"
#include "extension/extension.h"
#include "pattern_cache.h"
#include "vm.h"

enum {
	PLUA_ENCODE_DEPTH = DOC_MAX_DEPTH
};
enum {
	PLUA_PROXY_NODES = 64 // nodes of the event that can have a proxy
};

// Metatables are compared by address, and a registry reference keeps them alive.
typedef struct plua_metatable {
	const void *address;
	int ref;
} plua_metatable;

typedef struct plua_container {
	doc *d;
	uint32_t node;
	double generation; // of its event; 0 for documents of json.decode, which do not expire
} plua_container;

// The events of a run, and its progress.
typedef struct plua_batch {
	const char *data;
	const uint32_t *ends;
	uint32_t count;
	uint32_t at; // the first event that has not run
	uint32_t dropped;
	int output_full; // event `at` exceeded the output limit
	int collected;   // garbage was collected to make space for event `at`
	int kind;        // why the run ended or waits, as plua_batch_run returns it
	int rows_only;   // all events ran, and the run's only results are unrouted rows
} plua_batch;

// A failed event. Its texts follow one another in plua_output.texts.
typedef struct plua_dead_event {
	uint32_t event;
	uint32_t parse_error; // doc_error if the event is not a valid document, else 0
	uint32_t kind;        // enum plua_error_kind
	uint32_t offset, line;
	uint32_t text, message_len, traceback_len, file_len;
} plua_dead_event;

// A routed row: it goes only to these sinks, a bit set.
typedef struct plua_route {
	uint32_t row;
	uint64_t sinks;
} plua_route;

// The result of a run.
typedef struct plua_output {
	size_t limit;                      // limit on the bytes that a batch returns
	doc_buf docs;                      // the rows' documents, back to back
	uint32_t *ends, *from, count, cap; // by row: the end of its document, and its event
	plua_route *routes;                // of the routed rows, in order
	uint32_t route_count, route_cap;
	uint64_t route; // of the row being added; 0: not routed
	plua_dead_event *dead;
	uint32_t dead_count, dead_cap;
	doc_buf texts;
	struct extractor **extractors; // by sink; NULL: it reads no columns. Owned by the caller
	uint32_t extractor_count;
	int columns_only;    // the only sink reads columns, not documents, and gets all rows
	size_t column_bytes; // size of rows without a document
	int extract_failed;  // memory ran out before all rows had columns
} plua_output;

// A Go function call that is the last act of a script's call, see tailcall.c.
enum { // the use of its results
	PLUA_TAIL_DROPPED = 1,
	PLUA_TAIL_RETURNED
};
typedef struct plua_tail_call {
	int results;             // 0: the script's call does not end with one
	void *proto;             // the caller's prototype, and
	const void *next;        //   its next instruction; NULL: unknown
	uint32_t line, function; // the line of the call, and the first line of the caller,
	const char *file;        //   in this required file; NULL: in the script's own text
} plua_tail_call;

// Calls of Go functions.
typedef struct plua_gocall {
	char *names;        // of the functions, one per line
	int tail_calls;     // script calls may end with a Go function
	int clock;          // the functions of the module time are Go's
	int direct;         // functions that do not wait are called without a yield,
	void *owner;        //   through this Go value, which Go has pinned
	uint32_t function;  // the function to call; 0 reads a file
	doc_buf request;    // its encoded arguments, and
	size_t values;      //   their number
	const char *answer; // its encoded result; see plua_engine_resume
	size_t answer_len;
	plua_tail_call tail;
	doc_buf measurements; // from the module stats, each preceded by its length
	uint32_t measurements_lost;
} plua_gocall;

// Registry references to tables by node and to the function that makes a metatable; see proxy.c.
typedef struct plua_proxies {
	int tables, generations, metatables, make_metatable;
	plua_container live[PLUA_PROXY_NODES]; // the containers of proxies
	plua_container expired;                // the container of all proxies of earlier events
} plua_proxies;

// One step of the path to the value being encoded.
typedef struct plua_path_step {
	const void *table; // to detect cycles
	const char *key;
	size_t key_len;
	uint32_t index;
} plua_path_step;

typedef struct plua_encoder {
	doc_buf buffer; // for encodings outside of the output
	doc_buf keys;   // of the objects being encoded
	plua_path_step path[PLUA_ENCODE_DEPTH];
	uint32_t depth; // of path
	uint32_t level; // tables and documents around the value being encoded; at least depth
	int arrays;     // reference to a weak set: tables marked by json.array
} plua_encoder;

// References to the drivers from engine.lua: for one event, and for a batch.
typedef struct plua_drivers {
	int batch, one;
} plua_drivers;

typedef struct plua_engine {
	const doc_api *api;
	plua_vm *vm;
	doc *event;
	// counts events, exact up to 2^53; a double, since FFI boxes 64-bit integers
	double generation;
	int compiled;   // scripts run compiled, and use proxies
	int node_table; // reference: the event's node table, see container.c
	plua_metatable container, bignum, routed;
	plua_pattern_cache *patterns; // NULL if scripts are not compiled
	char *main;                   // name of the function to run
	char *sinks;                  // names of the sinks, one per line
	int value;                    // main returns values, not events
	int loading;                  // the script is loading, not running events
	plua_drivers drive;           // of the run
	plua_drivers main_drive, timer_drive;
	double time;  // that scripts see, in seconds; 0: the system's
	double retry; // not 0: timers run although the state does not have them
	plua_batch batch;
	plua_output out;
	plua_gocall gocall;
	plua_encoder encoder;
	plua_proxies proxies;
	plua_extension *extension; // NULL: none
	int unfinished;            // the extension has to finish the event
} plua_engine;

typedef struct plua_engine_setup {
	size_t memory, output; // limits
	int compiled;
	int value;
	int direct;
	int clock; // the functions of the module time are Go's
	int timer; // the script must define a function timer
	const char *main, *functions, *sinks;
	int64_t event_ms;          // the time limit of an event
	plua_extension *extension; // NULL: none,
	int extension_collect;     //   whether to collect garbage before every call of its functions,
	const char *extension_modules; //   the names of its modules, one per line,
	const char *extension_source;  //   and the Lua source of a function that creates them
	size_t extension_source_len;
} plua_engine_setup;

static inline plua_engine *plua_engine_of(lua_State *L) { return plua_vm_of(L)->engine; }

// engine.c

// plua_engine_open adds documents and modules to a fresh VM; call plua_engine_load next. text is
// engine.lua. It returns NULL if memory is exhausted.
plua_engine *plua_engine_open(
    plua_vm *vm, const doc_api *api, const plua_engine_setup *setup, const char *text, size_t len);
void plua_engine_close(plua_engine *e); // after plua_vm_close

// plua_engine_load compiles and runs the text of the script, and looks up its main function.
int plua_engine_load(plua_engine *e, const char *name, const char *text, size_t len);

// plua_engine_resume continues a run or load that returned PLUA_WAITING. The answer is E and an
// error message, or V and encoded values.
int plua_engine_resume(plua_engine *e, const char *answer, size_t len);

// batch.c

// plua_batch_run runs the events from `first` on, until all have run or a limit stops the run. Then
// it runs the extractors over the rows, unless a row is routed.
int plua_batch_run(
    plua_engine *e, const char *data, const uint32_t *ends, uint32_t count, uint32_t first);
int plua_batch_continue(plua_engine *e, int kind); // after a resumption that returned kind
// plua_batch_next advances to the next event that is a valid document. It does not use Lua.
enum { // for values above READY, call next_unusual
	PLUA_NEXT_NONE,
	PLUA_NEXT_READY,
	PLUA_NEXT_LARGE,
	PLUA_NEXT_FULL
};
int plua_batch_next(plua_engine *e);
void plua_batch_open(lua_State *L); // adds functions to the table on the stack

// results.c
void plua_results_open(lua_State *L); // pushes a table of functions

// output.c. These functions do not use Lua.
int plua_output_need(plua_engine *e);  // makes space for one more row; 0 if memory is exhausted
void plua_output_add(plua_engine *e);  // adds a row for the document at the end of e->out.docs
int plua_output_route(plua_engine *e); // records e->out.route for the last row
// Each adds a row and advances to the next event. On failure it does nothing and returns 0: the
// caller then uses the slower path through Lua, which raises the error, if any.
int plua_output_event(plua_engine *e);
int plua_output_string(plua_engine *e, const char *s, size_t n);
int plua_output_number(plua_engine *e, double x);
void plua_output_drop(plua_engine *e);
void plua_output_fail_parse(plua_engine *e, int error);
void plua_output_fail_script(plua_engine *e); // with e->vm->error
void plua_output_discard(plua_engine *e);     // removes the rows of the failed event
void plua_output_begin(plua_engine *e);
int plua_output_extract(plua_engine *e); // fills the columns of the remaining rows

// metamethods.c
void plua_metamethods_open(lua_State *L, plua_engine *e); // pushes a table of functions

// json.c
void plua_json_open(lua_State *L, plua_engine *e); // pushes the module
void plua_json_describe(lua_State *L);             // plua_vm.describe

// gocall.c
void plua_gocall_open(lua_State *L, plua_engine *e); // pushes a table of functions
int plua_gocall_results(lua_State *L); // returns the values of the answer, or raises its error
void plua_gocall_answer(plua_engine *e, const char *data, size_t len); // stores an answer; for Go

// route.c
void plua_route_open(lua_State *L, plua_engine *e);
// plua_route_push pushes the value that to() has routed and returns its sinks. For any other value
// it pushes nothing and returns 0.
uint64_t plua_route_push(lua_State *L, plua_engine *e, int index);

// extension.c
void plua_extension_join(plua_engine *e, const plua_engine_setup *setup); // call it first
// pushes a table, or nil
void plua_extension_open(lua_State *L, plua_engine *e, const plua_engine_setup *setup);
// plua_extension_finish is called after an event that set e->unfinished. keep is 0 if the event
// failed or will run again.
void plua_extension_finish(plua_engine *e, int keep);
int plua_extension_attaches(const plua_engine *e); // its sessions are the caller's
// plua_extension_attach makes the next run work on a session, and read others, at a fixed time; time
// 0: that of the clock. With timers, the run's events are due timers, on which the script's function
// timer runs.
void plua_extension_attach(plua_engine *e, void *session, void *const *others, size_t count,
    double time, int timers, int retry);
void plua_extension_idle(plua_engine *e); // at the end of a run: detaches the session

// values.c
void plua_values_begin(plua_engine *e); // empties e->gocall.request
// appends a value to e->gocall.request
void plua_values_encode(lua_State *L, plua_engine *e, int index);
// ends the run if Go's copy of the values would exceed the memory limit
void plua_values_reserve(lua_State *L, plua_engine *e);
int plua_values_keep(lua_State *L); // encodes its arguments to e->gocall.request
// plua_values_decode pushes values and returns their number.
int plua_values_decode(lua_State *L, plua_engine *e, const char *data, const char *end);

// encode.c
void plua_encode(lua_State *L, plua_engine *e, int index, doc_buf *out);
void plua_encode_container(lua_State *L, plua_engine *e, int index, doc_buf *out);
void plua_encode_begin(plua_engine *e);      // before an encoding begins
doc_buf *plua_encode_buffer(plua_engine *e); // plua_encode_begin, and an empty buffer
void plua_encode_enter(lua_State *L, plua_engine *e, int index, const char *verb); // enters a table
void plua_encode_leave(plua_engine *e);
// raises an error that starts with the current path
void plua_encode_raise(lua_State *L, plua_engine *e, const char *format, ...);
enum {
	PLUA_TABLE_EMPTY,
	PLUA_TABLE_LIST,
	PLUA_TABLE_OBJECT
};
int plua_table_shape(lua_State *L, plua_engine *e, int index, uint32_t *len);
int plua_is_null(lua_State *L, int index);
int plua_is_array(lua_State *L, plua_engine *e, int index); // marked by json.array
void plua_mark_array(lua_State *L, plua_engine *e, int index);

// container.c
void plua_container_push(
    lua_State *L, plua_engine *e, doc *d, uint32_t node, double generation, int node_table);
void plua_container_push_value(
    lua_State *L, plua_engine *e, doc *d, double generation, int node_table, int kind);
// NULL for other values
plua_container *plua_container_at(lua_State *L, plua_engine *e, int index);
// raises an error if its event has ended
plua_container *plua_container_check(lua_State *L, plua_engine *e, int index);
plua_container *plua_container_self(lua_State *L, plua_engine *e); // of a metamethod
// its node table
void plua_container_push_nodes(lua_State *L, plua_engine *e, const plua_container *c, int index);
int plua_check_doc(
    lua_State *L, int error); // raises the error for a doc_error; returns 0 for DOC_OK

// bignum.c
void plua_bignum_open(lua_State *L, plua_engine *e); // pushes a function
void plua_bignum_push(lua_State *L, plua_engine *e, const char *text, size_t len);
// NULL for other values
const char *plua_bignum_text(lua_State *L, plua_engine *e, int index, size_t *len);

// proxy.c
void plua_proxy_open(lua_State *L, plua_engine *e); // adds tables to the one on the stack
void plua_proxy_push(lua_State *L, plua_engine *e, uint32_t node);
// expects its metatable on top of the stack; NULL for other values
plua_container *plua_proxy_container(lua_State *L, plua_engine *e, int index);
int plua_proxy_is(const plua_engine *e, const plua_container *c);

// tailcall.c plua_tail_call_detect reports whether the script's call ends as soon as the running C
// function, and the `below` C functions of ours that called it, have returned nothing. Then the Go
// function can be called after the Lua call has ended.
int plua_tail_call_detect(lua_State *L, plua_engine *e, int below);
void plua_tail_call_locate(plua_engine *e); // finds the line; call it before the VM runs again

// ffi.c
void plua_ffi_open(lua_State *L, plua_engine *e); // pushes a table, see engine.lua

#endif
