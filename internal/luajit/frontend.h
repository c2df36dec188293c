// Documents as a script sees them, and the run of a batch.
//
// A part is a userdata that stands for an object or array of a document: of the
// event, while main runs, or of what json.decode returned. A script takes it
// for a table.

#ifndef PERIGEE_FRONTEND_H
#define PERIGEE_FRONTEND_H

#include "../document/document.h"
#include "quick.h"
#include "vm.h"

enum { FRONT_DEPTH = DOC_MAX_DEPTH };
enum { NEAR = 64 }; // nodes of the event that a table can stand for, see proxy.c

typedef struct part {
	doc *d;
	uint32_t node;
	uint32_t life; // of the event it belongs to; 0: as long as it is held
} part;

// One dead event. The texts are at `text` in front.texts, one after the other.
typedef struct front_dead {
	uint32_t event;
	uint32_t fault;   // doc_fault when it is no document, else 0
	uint32_t kind;    // enum pg_fault_kind
	uint32_t offset, line;
	uint32_t text, message_len, traceback_len, file_len;
} front_dead;

typedef struct front_run { // how a run ended
	uint32_t at;       // the first event that did not run
	uint32_t full;     // that event passed the output limit
	uint32_t dropped;
} front_run;

// A row of the output that is for the sinks whose bits are set, and no others.
typedef struct front_route {
	uint32_t row;
	uint64_t sinks;
} front_route;

// A table that is being encoded, for cycles and for error messages.
typedef struct front_step {
	const void *table;
	const char *key;
	size_t key_len;
	uint32_t index;
} front_step;

// The function of Go that a call ends with, see last.c.
enum { LAST_DROPPED = 1, LAST_RETURNED }; // what becomes of its results
typedef struct front_last {
	int results;             // 0: the call does not end with one
	void *proto;             // where it was called:
	const void *next;        // NULL: nobody knows any more
	uint32_t line, function; // the line, and that where the function of Lua begins,
	const char *file;        // in a file that the script required; NULL: its own text
} front_last;

typedef struct front {
	const doc_api *api;
	pg_vm *vm;
	doc *event;
	uint32_t life;    // of the event that runs
	int family;       // references: the event's family, see part.c
	const void *part_meta, *big_meta; // their metatables, and references to them
	int made, born, metas; // references: tables by node, see proxy.c,
	int meta_of;           //   and the function that makes one of metas
	int compiled;     // tables stand for the event and its parts
	quick *quick;     // NULL where nothing is compiled
	part near[NEAR], past; // what those tables are, and one whose event has ended
	int part_ref, big_ref, arrays, driver, single;

	const char *data; // the batch
	const uint32_t *ends;
	uint32_t count;
	front_run run;
	int kind;         // of what ended it, as front_ended returns it
	int plain;        // all events ran, and nothing but rows came of them

	size_t output;    // the limit for what comes of a batch
	doc_buf out;      // documents, back to back
	uint32_t *out_ends, *out_from, out_count, out_cap;
	front_route *routes; // by row
	uint32_t route_count, route_cap;
	int bare;         // nobody reads what is in out but the one extractor, which gets all rows
	size_t bared;     // bytes of rows that have no document
	int unextracted;  // there was no memory for the columns
	uint64_t route;   // of what is being sent; 0: the script did not say
	const void *mark_meta; // the metatable of what to() returns, and a reference to it
	int mark_ref;
	front_dead *dead;
	uint32_t dead_count, dead_cap;
	doc_buf texts;
	doc_buf scratch;  // for json.encode
	doc_buf keys;     // of tables that are being encoded

	front_step path[FRONT_DEPTH];
	uint32_t depth;

	char *functions;  // names of the functions of Go, a line each
	char *main;       // name of the function to run
	char *sinks;      // their names, a line each
	int value;        // it returns values, not events
	int loading;      // the script's text runs, not its events
	struct extractor **extract; // the caller's
	uint32_t extract_count;
	int calls_directly;
	void *engine;      // pinned by Go, for those calls
	uint32_t function; // that the script waits for: 0 reads a file
	int asked;         // it does wait
	front_last last;
	doc_buf request;   // the arguments
	const char *answer;
	size_t answer_len;
	doc_buf measured;  // by the module stats, each after its length
	uint32_t unmeasured; // measurements that found no room
	size_t decoded;   // bytes of documents from json.decode, and when to collect them
	size_t decoded_max;
} front;

typedef struct front_setup {
	size_t memory, output; // limits
	int compiled;          // picks the front end for the JIT
	int value;
	int direct;            // functions that do not wait are called without a yield
	const char *main, *functions, *sinks;
} front_setup;

// front_open gives a fresh VM its documents and the modules; front_load follows.
// text is frontend.lua. It returns NULL when memory ends.
front *front_open(pg_vm *vm, const doc_api *api, const front_setup *setup, const char *text, size_t len);
void front_close(front *f); // after pg_vm_close

// front_load compiles and runs the text of the script, and looks for its main.
int front_load(front *f, const char *name, const char *text, size_t len);

// front_batch runs the events from `first` on, until all have run or a limit
// ended it, and then the extractors over what came out, unless a row is routed.
int front_batch(front *f, const char *data, const uint32_t *ends, uint32_t count, uint32_t first);

// front_resume goes on with what returned PG_CALL. The answer begins with E and is
// an error, or else is followed by values.
int front_resume(front *f, const char *answer, size_t len);

// Below: between the files of the front end.

front *front_of(lua_State *L);
int front_raise(lua_State *L, const char *format, ...); // with the script's place before it
int front_error(lua_State *L, int fault); // raises what a doc_fault means
void front_check(lua_State *L, front *f, doc_buf *out, int fault); // the same, after writing to out

// part.c
void part_open(lua_State *L, front *f);
void part_push(lua_State *L, front *f, doc *d, uint32_t node, uint32_t life, int family);
part *part_at(lua_State *L, front *f, int index);   // NULL when it is none
part *part_check(lua_State *L, front *f, int index); // raises when its event has ended
void part_family(lua_State *L, front *f, const part *p, int index); // pushes it
void part_encode(lua_State *L, front *f, int index, doc_buf *out);
void part_value(lua_State *L, front *f, doc *d, uint32_t life, int family, int kind);

// encode.c
void front_encode(lua_State *L, front *f, int index, doc_buf *out);
doc_buf *front_scratch(front *f); // an empty buffer, for an encoding that begins
void front_start(front *f);       // before an encoding that begins
enum { SHAPE_EMPTY, SHAPE_LIST, SHAPE_OBJECT };
int front_shape(lua_State *L, front *f, int index, uint32_t *len); // of a table
int front_is_null(lua_State *L, int index);
int front_is_marked(lua_State *L, front *f, int index); // by json.array
void front_fail(lua_State *L, front *f, const char *format, ...); // raises, with the path before it

// json.c
void front_describe(lua_State *L);
void json_open(lua_State *L, front *f); // pushes the module

// call.c
void call_open(lua_State *L, front *f);
int call_answer(lua_State *L);
int call_values(lua_State *L);

// last.c. last_of_call tells whether nothing is left to do once the function of C that
// runs, and the `below` functions of ours that called it, have returned nothing. Then
// what it was to ask of Go can be asked after that. last_place finds out where.
int last_of_call(lua_State *L, front *f, int below);
void last_place(front *f); // while the VM does nothing else

// direct.c
void direct_open(lua_State *L);
void direct_answer(front *f, const char *data, size_t len); // for Go, while it is called

// big.c
void big_open(lua_State *L, front *f);
void big_push(lua_State *L, front *f, const char *text, size_t len);
const char *big_text(lua_State *L, front *f, int index, size_t *len); // NULL when it is none

// route.c
void route_open(lua_State *L, front *f);
uint64_t route_of(lua_State *L, front *f, int index); // pushes the value of a mark; 0: it is none
int route_add(front *f); // of the last row

// proxy.c
void proxy_open(lua_State *L, front *f);
part *proxy_part(lua_State *L, front *f, int index); // its metatable is on top; NULL when it is none of these
void proxy_push(lua_State *L, front *f, uint32_t node);
int proxy_is(const front *f, const part *p);

// run.c. Up to run_open they are called without Lua.
int front_next(front *f);  // 0: there is none; 2: the family is large and should go
int front_sent(front *f);  // 0: done; else nothing was done
int front_sent_string(front *f, const char *s, size_t n); // the same, for values
int front_sent_number(front *f, double x);
void front_dropped(front *f);
int front_ended(front *f, int kind); // goes on, or ends the run, after a resumption
void run_open(lua_State *L);

#endif
