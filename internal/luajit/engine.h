// An engine: a VM whose scripts read and write JSON documents, and the run of a batch
// through a script's main.
//
// A container is a userdata that stands for an object or an array of a document: of the
// event, while main runs, or of a document that json.decode returned. A script takes it
// for a table. Compiled scripts get a proxy instead, see proxy.c.
//
// The files call each other only downwards, in this order:
//
//	engine    opens, loads and closes
//	caller    calls single functions of a script
//	ffi       the functions that engine.lua calls through FFI
//	batch     runs the events of a batch
//	results   takes what main returned
//	metamethods, json, gocall, route, nodes
//	          what scripts do with documents, Go functions and sinks
//	values    values that cross between Lua and Go
//	encode    Lua values as JSON
//	output    the rows and failed events of a run
//	container, bignum, proxy, tailcall, and the files below vm.h

#ifndef PERIGEE_ENGINE_H
#define PERIGEE_ENGINE_H

#include "../document/document.h"
#include "error.h"
#include "nodes.h"
#include "pattern_cache.h"
#include "vm.h"

enum { PG_ENCODE_DEPTH = DOC_MAX_DEPTH };
enum { PG_PROXY_NODES = 64 }; // nodes of the event that can have a proxy

// Metatables are recognized by their address, and kept by a reference.
typedef struct pg_metatable {
	const void *address;
	int ref;
} pg_metatable;

typedef struct pg_container {
	doc *d;
	uint32_t node;
	double generation; // of the event that it belongs to; 0 for json.decode's, which do not expire
} pg_container;

// The events of a run, and how far it has come.
typedef struct pg_batch {
	const char *data;
	const uint32_t *ends;
	uint32_t count;
	uint32_t at;     // the first event that has not run
	uint32_t dropped;
	int output_full; // event `at` exceeded the output limit
	int collected;   // garbage was collected to make room for event `at`
	int kind;        // why the run ended or waits, as pg_batch_run returns it
	int rows_only;   // all events ran; the run has rows, and no other result
} pg_batch;

// A failed event. The texts follow each other in pg_output.texts.
typedef struct pg_dead_event {
	uint32_t event;
	uint32_t parse_error; // doc_error when the event is no document, else 0
	uint32_t kind;        // enum pg_error_kind
	uint32_t offset, line;
	uint32_t text, message_len, traceback_len, file_len;
} pg_dead_event;

// The sinks, as a set of bits, that a row goes to and no others.
typedef struct pg_route {
	uint32_t row;
	uint64_t sinks;
} pg_route;

// The result of a run.
typedef struct pg_output {
	size_t limit; // bytes that a batch may yield
	doc_buf docs; // the rows' documents, back to back
	uint32_t *ends, *from, count, cap; // by row: the end of its document, and its event
	pg_route *routes; // of routed rows, in order
	uint32_t route_count, route_cap;
	uint64_t route;   // of the row that is being added; 0: the script named no sinks
	pg_dead_event *dead;
	uint32_t dead_count, dead_cap;
	doc_buf texts;
	struct extractor **extractors; // by sink, NULL where it wants no columns; the caller owns them
	uint32_t extractor_count;
	int columns_only;    // the only sink reads columns, not documents, and gets all rows
	size_t column_bytes; // of rows without a document
	int extract_failed;  // memory was exhausted before the columns had all rows
} pg_output;

// The call of a Go function that is the last act of a call, see tailcall.c.
enum { PG_TAIL_DROPPED = 1, PG_TAIL_RETURNED }; // what happens to its results
typedef struct pg_tail_call {
	int results;             // 0: the call does not end with one
	void *proto;             // the caller's prototype,
	const void *next;        //   and its next instruction; NULL when the place is unknown
	uint32_t line, function; // the line of the call, and the first line of the caller,
	const char *file;        //   in a file that the script required; NULL: in its own text
} pg_tail_call;

// Calls of Go functions.
typedef struct pg_gocall {
	char *names;       // of the functions, one per line
	int tail_calls;    // calls may end with one
	int direct;        // functions that do not wait are called without a yield,
	void *owner;       //   with this Go value, which Go has pinned
	uint32_t function; // the one that the script calls; 0 reads a file
	doc_buf request;   // its arguments, encoded,
	size_t values;     //   and how many values there are in them
	const char *answer; // what it returned; see pg_engine_resume
	size_t answer_len;
	pg_tail_call tail;
	doc_buf measurements; // of the module stats, each after its length
	uint32_t measurements_lost;
} pg_gocall;

// References to tables by node, see proxy.c, and to the function that makes a metatable.
typedef struct pg_proxies {
	int tables, generations, metatables, make_metatable;
	pg_container live[PG_PROXY_NODES]; // the containers of proxies
	pg_container expired;              // the container of any proxy of an earlier event
} pg_proxies;

// A step of the path to the value that is being encoded.
typedef struct pg_path_step {
	const void *table; // for cycles
	const char *key;
	size_t key_len;
	uint32_t index;
} pg_path_step;

typedef struct pg_encoder {
	doc_buf buffer; // for encodings that do not go to the output
	doc_buf keys;   // of the objects that are being encoded
	pg_path_step path[PG_ENCODE_DEPTH];
	uint32_t depth; // of path
	uint32_t level; // tables and documents around the value that is being encoded; at least depth
	int arrays;     // reference to the weak set of tables that json.array marked
} pg_encoder;

typedef struct pg_engine {
	const doc_api *api;
	pg_vm *vm;
	doc *event;
	double generation; // counts events, exactly up to 2^53; a double, since FFI boxes 64-bit integers
	int compiled;        // scripts run compiled, and get proxies
	int node_table;      // reference: the event's node table, see container.c
	pg_metatable container, bignum, routed;
	pg_pattern_cache *patterns; // NULL where nothing is compiled
	char *main;          // name of the function to run
	char *sinks;         // names of the sinks, one per line
	int value;           // main returns values, not events
	int loading;         // the script's text runs, not its events
	int drive_batch, drive_one; // references to the drivers that engine.lua makes
	pg_batch batch;
	pg_output out;
	pg_gocall gocall;
	pg_encoder encoder;
	pg_proxies proxies;
	pg_nodes nodes;
} pg_engine;

typedef struct pg_engine_setup {
	size_t memory, output; // limits
	int compiled;
	int value;
	int direct;
	const char *main, *functions, *sinks;
	const void *node_functions; // an ndb_functions, NULL without a store,
	void *node_store;           //   an ndb_store,
	int64_t node_event_ms;      //   the time limit of an event,
	int node_collect;           //   whether to collect before every call of its core,
	const char *node_face, *node_backend, *node_strings; // and the Lua sources of its modules
	size_t node_face_len, node_backend_len, node_strings_len;
} pg_engine_setup;

static inline pg_engine *pg_engine_of(lua_State *L) { return pg_vm_of(L)->engine; }

// engine.c

// pg_engine_open gives a fresh VM its documents and modules; call pg_engine_load next.
// text is engine.lua. It returns NULL when memory is exhausted.
pg_engine *pg_engine_open(pg_vm *vm, const doc_api *api, const pg_engine_setup *setup, const char *text, size_t len);
void pg_engine_close(pg_engine *e); // after pg_vm_close

// pg_engine_load compiles and runs the text of the script, and looks up its main.
int pg_engine_load(pg_engine *e, const char *name, const char *text, size_t len);

// pg_engine_resume continues what returned PG_WAITING. The answer begins with E and is
// an error message, or with V and holds encoded values.
int pg_engine_resume(pg_engine *e, const char *answer, size_t len);

// batch.c

// pg_batch_run runs the events from `first` on, until all have run or a limit ends the
// run. Then it runs the extractors over the rows, unless a row is routed.
int pg_batch_run(pg_engine *e, const char *data, const uint32_t *ends, uint32_t count, uint32_t first);
int pg_batch_continue(pg_engine *e, int kind); // after a resumption that ended with kind
// pg_batch_next goes to the next event that is a document. It is called without Lua.
enum { PG_NEXT_NONE, PG_NEXT_READY, PG_NEXT_LARGE, PG_NEXT_FULL }; // beyond READY, call next_unusual
int pg_batch_next(pg_engine *e);
void pg_batch_open(lua_State *L); // adds functions to the table on the stack

// results.c
void pg_results_open(lua_State *L); // pushes a table of functions

// output.c. These are called without Lua.
int pg_output_need(pg_engine *e); // room for one more row; 0 when memory is exhausted
void pg_output_add(pg_engine *e); // the row whose document ends e->out.docs
int pg_output_route(pg_engine *e); // records e->out.route for the last row
// Each adds a row and goes to the next event. It returns 0, or does nothing: then the
// caller takes the way through Lua, which raises an error if there is one.
int pg_output_event(pg_engine *e);
int pg_output_string(pg_engine *e, const char *s, size_t n);
int pg_output_number(pg_engine *e, double x);
void pg_output_drop(pg_engine *e);
void pg_output_fail_parse(pg_engine *e, int error);
void pg_output_fail_script(pg_engine *e); // with e->vm->error
void pg_output_discard(pg_engine *e); // removes the rows of the event that failed
void pg_output_begin(pg_engine *e);
int pg_output_extract(pg_engine *e); // the columns of the remaining rows

// metamethods.c
void pg_metamethods_open(lua_State *L, pg_engine *e); // pushes a table of functions

// json.c
void pg_json_open(lua_State *L, pg_engine *e); // pushes the module
void pg_json_describe(lua_State *L); // pg_vm.describe

// gocall.c
void pg_gocall_open(lua_State *L, pg_engine *e); // pushes a table of functions
int pg_gocall_results(lua_State *L); // returns the values of the answer, or raises its error
void pg_gocall_answer(pg_engine *e, const char *data, size_t len); // keeps an answer, for Go

// route.c
void pg_route_open(lua_State *L, pg_engine *e);
// pg_route_push pushes the value that to() has routed and returns its sinks. For anything
// else it pushes nothing and returns 0.
uint64_t pg_route_push(lua_State *L, pg_engine *e, int index);

// values.c
void pg_values_begin(pg_engine *e); // an empty e->gocall.request
void pg_values_encode(lua_State *L, pg_engine *e, int index); // appends a value to e->gocall.request
void pg_values_reserve(lua_State *L, pg_engine *e); // ends the run when Go's copy of the values exceeds the memory limit
int pg_values_keep(lua_State *L); // encodes its arguments to e->gocall.request
// pg_values_decode pushes values and returns how many there are.
int pg_values_decode(lua_State *L, pg_engine *e, const char *data, const char *end);

// encode.c
void pg_encode(lua_State *L, pg_engine *e, int index, doc_buf *out);
void pg_encode_container(lua_State *L, pg_engine *e, int index, doc_buf *out);
void pg_encode_begin(pg_engine *e); // before an encoding begins
doc_buf *pg_encode_buffer(pg_engine *e); // pg_encode_begin, and an empty buffer
void pg_encode_enter(lua_State *L, pg_engine *e, int index, const char *verb); // a table
void pg_encode_leave(pg_engine *e);
void pg_encode_raise(lua_State *L, pg_engine *e, const char *format, ...); // with the path before it
enum { PG_TABLE_EMPTY, PG_TABLE_LIST, PG_TABLE_OBJECT };
int pg_table_shape(lua_State *L, pg_engine *e, int index, uint32_t *len);
int pg_is_null(lua_State *L, int index);
int pg_is_array(lua_State *L, pg_engine *e, int index); // marked by json.array
void pg_mark_array(lua_State *L, pg_engine *e, int index);

// container.c
void pg_container_push(lua_State *L, pg_engine *e, doc *d, uint32_t node, double generation, int node_table);
void pg_container_push_value(lua_State *L, pg_engine *e, doc *d, double generation, int node_table, int kind);
pg_container *pg_container_at(lua_State *L, pg_engine *e, int index); // NULL for anything else
pg_container *pg_container_check(lua_State *L, pg_engine *e, int index); // raises when its event has ended
pg_container *pg_container_self(lua_State *L, pg_engine *e); // of a metamethod
void pg_container_push_nodes(lua_State *L, pg_engine *e, const pg_container *c, int index); // its node table
int pg_check_doc(lua_State *L, int error); // raises what a doc_error means, returns 0 for DOC_OK

// bignum.c
void pg_bignum_open(lua_State *L, pg_engine *e); // pushes a function
void pg_bignum_push(lua_State *L, pg_engine *e, const char *text, size_t len);
const char *pg_bignum_text(lua_State *L, pg_engine *e, int index, size_t *len); // NULL for anything else

// proxy.c
void pg_proxy_open(lua_State *L, pg_engine *e); // adds tables to the one on the stack
void pg_proxy_push(lua_State *L, pg_engine *e, uint32_t node);
pg_container *pg_proxy_container(lua_State *L, pg_engine *e, int index); // its metatable is on top; NULL for anything else
int pg_proxy_is(const pg_engine *e, const pg_container *c);

// tailcall.c
// pg_tail_call_detect tells whether the call is done as soon as the C function that runs, and
// the `below` functions of ours that called it, have returned nothing. Then the Go
// function that it is about to call can be called after the call of Lua.
int pg_tail_call_detect(lua_State *L, pg_engine *e, int below);
void pg_tail_call_locate(pg_engine *e); // finds the line, before the VM runs again

// ffi.c
void pg_ffi_open(lua_State *L, pg_engine *e); // pushes a table, see engine.lua

#endif
