// The run of a batch: a loop in Lua without pcall, inside one protected call. When an event fails,
// the loop starts again at the next event.

#include <stdlib.h>

#include "engine.h"

enum {
	NODES_KEPT = 1 << 12 // the node table of a larger event is not reused
};

static const char *event_text(const plua_batch *b, size_t *len) {
	uint32_t from = b->at ? b->ends[b->at - 1] : 0;
	*len = b->ends[b->at] - from;
	return b->data + from;
}

int plua_batch_next(plua_engine *e) {
	plua_batch *b = &e->batch;
	e->generation++;
	if (e->unfinished) plua_extension_finish(e, 1);
	for (; b->at < b->count; b->at++) {
		size_t len;
		const char *text = event_text(b, &len);
		e->vm->run.event = b->at;
		int error = e->api->index(e->event, text, len, b->data + b->ends[b->count - 1]);
		if (error == DOC_OK) {
			e->out.docs.max = e->out.docs.len + e->out.limit;
			return e->event->count < NODES_KEPT ? PLUA_NEXT_READY : PLUA_NEXT_LARGE;
		}
		if (error == DOC_NO_MEMORY && !b->collected) return PLUA_NEXT_FULL;
		b->collected = 0;
		plua_output_fail_parse(e, error);
	}
	return PLUA_NEXT_NONE;
}

// finish_next handles the result `next` of plua_batch_next, and returns its final result: it
// collects garbage if an event does not fit otherwise, and replaces the node table for a large
// event.
static int finish_next(lua_State *L, plua_engine *e, int next) {
	while (next == PLUA_NEXT_FULL) {
		lua_gc(L, LUA_GCCOLLECT, 0);
		lua_gc(L, LUA_GCCOLLECT, 0); // frees what the first collection finalized
		e->batch.collected = 1;
		next = plua_batch_next(e);
		e->batch.collected = 0;
	}
	if (next != PLUA_NEXT_LARGE) return next;
	lua_newtable(L);
	lua_rawseti(L, LUA_REGISTRYINDEX, e->node_table);
	return next;
}

// next_unusual(next) is finish_next for engine.lua. It returns whether there is an event.
static int next_unusual(lua_State *L) {
	lua_pushboolean(
	    L, finish_next(L, plua_engine_of(L), (int)lua_tointeger(L, 1)) != PLUA_NEXT_NONE);
	return 1;
}

// next_event() returns the next event as a userdata, or nothing at the end.
static int next_event(lua_State *L) {
	plua_engine *e = plua_engine_of(L);
	if (finish_next(L, e, plua_batch_next(e)) == PLUA_NEXT_NONE) return 0;
	lua_settop(L, 0);
	lua_rawgeti(L, LUA_REGISTRYINDEX, e->node_table);
	plua_container_push(L, e, e->event, 0, e->generation, 1);
	return 1;
}

void plua_batch_open(lua_State *L) {
	static const luaL_Reg functions[] = {
	    {"next_event", next_event}, {"next_unusual", next_unusual}, {NULL, NULL}};
	luaL_register(L, NULL, functions);
}

// begin_one advances to the only event before it enters Lua: the driver for one event runs
// interpreted until its first loop, and FFI is slow there.
static int begin_one(plua_engine *e) {
	int next = e->compiled ? plua_batch_next(e) : PLUA_NEXT_READY;
	if (next <= PLUA_NEXT_READY) return PLUA_OK;
	lua_pushcfunction(e->vm->L, next_unusual);
	lua_pushinteger(e->vm->L, next);
	return plua_vm_call(e->vm, 1, 0);
}

// drive runs the Lua driver on the remaining events.
static int drive(plua_engine *e) {
	plua_batch *b = &e->batch;
	int driver = e->drive.batch;
	if (b->at == b->count) return PLUA_OK;
	if (b->count - b->at == 1) {
		int kind = begin_one(e);
		if (kind || b->at == b->count) return kind;
		driver = e->drive.one;
	}
	int kind = plua_vm_need_thread(e->vm);
	if (kind) return kind;
	lua_rawgeti(e->vm->co, LUA_REGISTRYINDEX, driver);
	return plua_vm_resume(e->vm, 0);
}

// finish_failed ends the event after a drive that failed. It returns whether the event had already
// returned its results, so that a limit stopped the run between two events.
static int finish_failed(plua_engine *e) {
	int done = e->batch.at > e->vm->run.event;
	if (e->unfinished) plua_extension_finish(e, done);
	return done;
}

// drive_rest continues after a drive that returned kind. It returns the limit that ended the run,
// PLUA_WAITING or PLUA_OK.
static int drive_rest(plua_engine *e, int kind) {
	for (;;) {
		if (kind == PLUA_OK || kind == PLUA_WAITING) return kind;
		plua_output_discard(e);
		if (finish_failed(e) && kind >= PLUA_EVENT_TIME) return kind;
		if (kind == PLUA_BATCH_TIME) return kind;
		if (e->batch.output_full) return PLUA_OUTPUT;
		plua_output_fail_script(e);
		e->batch.at++;
		if (e->vm->broken || kind >= PLUA_EVENT_TIME) return kind;
		if (e->batch.at == e->batch.count) return PLUA_OK;
		kind = drive(e);
	}
}

enum {
	BUFFER_KEPT = 1 << 20 // a larger buffer is freed after the run
};

static void trim_buffer(doc_buf *b) {
	if (b->cap <= BUFFER_KEPT) return;
	free(b->data);
	b->data = NULL;
	b->len = b->cap = 0;
}

// give_back frees the memory of an unusually large event.
static void give_back(plua_engine *e) {
	e->api->trim(e->event);
	trim_buffer(&e->encoder.buffer);
	trim_buffer(&e->encoder.keys);
	trim_buffer(&e->gocall.request);
}

// has_effects reports whether the script has logged or measured.
static int has_effects(const plua_engine *e) {
	return e->vm->log.len || e->vm->log.truncated || e->gocall.measurements.len ||
	       e->gocall.measurements_lost;
}

// end ends a run and returns the limit that ended it, or PLUA_OK.
static int end(plua_engine *e, int kind) {
	plua_output *out = &e->out;
	plua_vm_end(e->vm);
	e->generation++;
	if (e->unfinished) plua_extension_finish(e, 1);
	if (e->extension) plua_extension_idle(e);
	give_back(e);
	if (!out->columns_only && (kind || out->route_count)) return kind; // no sink gets all rows
	int error = plua_output_extract(e);
	if (!kind) kind = error;
	e->batch.rows_only = !kind && !out->dead_count && !out->route_count && !has_effects(e);
	return kind;
}

int plua_batch_continue(plua_engine *e, int kind) {
	kind = drive_rest(e, kind);
	e->batch.rows_only = 0;
	if (kind == PLUA_WAITING) plua_vm_pause(e->vm);
	else kind = end(e, kind);
	return e->batch.kind = kind;
}

int plua_batch_run(
    plua_engine *e, const char *data, const uint32_t *ends, uint32_t count, uint32_t first) {
	// one store per member: a processor stalls on a struct that is built in parts and then copied
	plua_batch *b = &e->batch;
	b->data = data;
	b->ends = ends;
	b->count = count;
	b->at = first;
	b->dropped = 0;
	b->output_full = 0;
	plua_output_begin(e);
	plua_vm_begin(e->vm);
	e->vm->run.event = first;
	return plua_batch_continue(e, drive(e));
}
