// The run of a batch: a loop in Lua without pcall, and one protected call around
// it. A failing event is noted, and the loop resumed at the next.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../document/extract.h"
#include "frontend.h"

static const char *event_text(const front *f, uint32_t i, size_t *len) {
	uint32_t from = i ? f->ends[i - 1] : 0;
	*len = f->ends[i] - from;
	return f->data + from;
}

static int out_need(front *f) {
	if (f->out_count < f->out_cap) return 1;
	uint32_t cap = f->out_cap ? f->out_cap * 2 : 1024;
	uint32_t *ends = realloc(f->out_ends, cap * sizeof *ends);
	if (ends) f->out_ends = ends;
	uint32_t *from = realloc(f->out_from, cap * sizeof *from);
	if (from) f->out_from = from;
	if (!ends || !from) return 0;
	f->out_cap = cap;
	return 1;
}

static void out_add(front *f) {
	f->out_ends[f->out_count] = (uint32_t)f->out.len;
	f->out_from[f->out_count++] = f->run.at;
}

// out_end notes that one more document of the current event stands in f->out.
static void out_end(lua_State *L, front *f) {
	if (!out_need(f)) front_error(L, DOC_NO_MEMORY);
	out_add(f);
	if (f->route) front_error(L, route_add(f));
}

static front_dead *dead_add(front *f) {
	if (f->dead_count == f->dead_cap) {
		uint32_t cap = f->dead_cap ? f->dead_cap * 2 : 64;
		front_dead *dead = realloc(f->dead, cap * sizeof *dead);
		if (!dead) return NULL;
		f->dead = dead;
		f->dead_cap = cap;
	}
	front_dead *d = &f->dead[f->dead_count++];
	*d = (front_dead){.event = f->run.at, .text = (uint32_t)f->texts.len};
	return d;
}

static void dead_parse(front *f, int fault) {
	front_dead *d = dead_add(f);
	if (!d) return;
	d->fault = (uint32_t)fault;
	d->offset = f->event->offset;
}

static void dead_script(front *f) {
	const pg_fault *why = &f->vm->fault;
	front_dead *d = dead_add(f);
	if (!d) return;
	d->kind = why->kind;
	d->line = why->line;
	if (f->api->buf_add(&f->texts, why->message, why->message_len)) return;
	d->message_len = why->message_len;
	if (f->api->buf_add(&f->texts, why->traceback, why->traceback_len)) return;
	d->traceback_len = why->traceback_len;
	uint32_t n = (uint32_t)strlen(why->file);
	if (f->api->buf_add(&f->texts, why->file, n)) return;
	d->file_len = n;
}

static void life_next(front *f) {
	if (++f->life == 0) f->life = 1;
}

enum { FAMILY_MAX = 1 << 12 }; // nodes whose parts are kept from event to event

// front_next goes on to the next event that is a document.
int front_next(front *f) {
	life_next(f);
	for (; f->run.at < f->count; f->run.at++) {
		size_t len;
		const char *text = event_text(f, f->run.at, &len);
		f->vm->run.event = f->run.at;
		int fault = f->api->index(f->event, text, len, f->data + f->ends[f->count - 1]);
		if (fault == DOC_OK) {
			f->out.max = f->out.len + f->output;
			return f->event->count < FAMILY_MAX ? 1 : 2;
		}
		dead_parse(f, fault);
	}
	return 0;
}

// fresh() forgets the parts of events before.
static int fresh(lua_State *L) {
	lua_newtable(L);
	lua_rawseti(L, LUA_REGISTRYINDEX, front_of(L)->family);
	return 0;
}

// step() pushes the next event as a userdata, or nothing at the end.
static int step(lua_State *L) {
	front *f = front_of(L);
	int next = front_next(f);
	if (next == 0) return 0;
	if (next == 2) fresh(L);
	lua_settop(L, 0);
	lua_rawgeti(L, LUA_REGISTRYINDEX, f->family);
	part_push(L, f, f->event, 0, f->life, 1);
	return 1;
}

static void emit(lua_State *L, front *f, int index) {
	front_start(f);
	front_encode(L, f, index, &f->out);
	out_end(L, f);
}

static const char wants[] = "an event, a table, a list of them, or nil";

static int is_plain_list(lua_State *L, front *f, int index) {
	uint32_t len;
	int shape = front_shape(L, f, index, &len);
	return shape == SHAPE_LIST || (shape == SHAPE_EMPTY && front_is_marked(L, f, index));
}

static const char *kind_name(lua_State *L, front *f, int index) {
	size_t len;
	part *p = part_at(L, f, index);
	if (p) return p->d->nodes[p->node].kind == DOC_ARRAY ? "array" : NULL;
	if (big_text(L, f, index, &len)) return "number";
	if (front_is_null(L, index)) return "null";
	if (lua_type(L, index) != LUA_TTABLE) return luaL_typename(L, index);
	return is_plain_list(L, f, index) ? "array" : NULL;
}

static int send_routed(lua_State *L, front *f, int index);

// item sends one item of a list that main returned.
static void item(lua_State *L, front *f, uint32_t i) {
	int index = lua_gettop(L);
	front_start(f);
	const char *kind = kind_name(L, f, index);
	if (kind && send_routed(L, f, index)) return;
	if (kind) front_raise(L, "main returned a list whose item %d is of type %s; want %s", (int)i, kind, "an event or a table");
	emit(L, f, index);
}

static void send_array(lua_State *L, front *f, int index, part *p) {
	uint32_t len = f->api->length(p->d, p->node);
	part_family(L, f, p, index);
	int family = lua_gettop(L);
	for (uint32_t i = 1; i <= len; i++) {
		PG_CHECK(L, f->vm);
		int kind = f->api->at(p->d, p->node, i);
		if (kind == DOC_NULL) continue;
		part_value(L, f, p->d, p->life, family, kind);
		item(L, f, i);
		lua_pop(L, 1);
	}
	lua_pop(L, 1);
}

static void send_list(lua_State *L, front *f, int index, uint32_t len) {
	for (uint32_t i = 1; i <= len; i++) {
		PG_CHECK(L, f->vm);
		lua_rawgeti(L, index, (int)i);
		if (!lua_isnil(L, -1)) item(L, f, i);
		lua_pop(L, 1);
	}
}

static void send_table(lua_State *L, front *f, int index) {
	uint32_t len;
	front_start(f);
	int shape = front_shape(L, f, index, &len);
	if (shape == SHAPE_OBJECT) emit(L, f, index);
	else send_list(L, f, index, len);
}

// send sends a value that main returned.
static void send(lua_State *L, front *f, int index) {
	part *p = part_at(L, f, index);
	size_t len;
	if (p) {
		part_check(L, f, index);
		if (p->d->nodes[p->node].kind == DOC_ARRAY) send_array(L, f, index, p);
		else emit(L, f, index);
	} else if (lua_type(L, index) == LUA_TTABLE) {
		send_table(L, f, index);
	} else if (!lua_isnil(L, index) && !send_routed(L, f, index)) {
		const char *kind = big_text(L, f, index, &len) ? "number" : front_is_null(L, index) ? "json.null" : luaL_typename(L, index);
		front_raise(L, "main returned a value of type %s; want %s", kind, wants);
	}
}

// send_routed sends the value of a mark. It returns 0 when there is none at index.
static int send_routed(lua_State *L, front *f, int index) {
	uint64_t sinks = route_of(L, f, index);
	if (!sinks) return 0;
	if (f->route) front_raise(L, "main returned to() inside of to(); give one to() all the names: to({\"a\", \"b\"}, event)");
	f->route = sinks;
	send(L, f, lua_gettop(L));
	f->route = 0;
	lua_pop(L, 1);
	return 1;
}

static void check_output(lua_State *L, front *f) {
	f->run.full = f->out.len + f->bared > f->output;
	if (f->run.full) front_raise(L, "output limit exceeded");
}

static int is_event(const front *f, const part *p) {
	return p && p->d == f->event && p->node == 0 && p->life == f->life;
}

// finish(…) takes what main returned.
static int finish(lua_State *L) {
	front *f = front_of(L);
	int n = lua_gettop(L);
	if (n == 0)
		return front_raise(L, "main returned nothing; end it with 'return event', or with 'return nil' to drop the event");
	if (n == 1 && is_event(f, part_at(L, f, 1)) && front_sent(f) == 0) return 0;
	uint32_t before = f->out_count;
	f->route = 0;
	for (int i = 1; i <= n; i++) send(L, f, i);
	check_output(L, f);
	if (f->out_count == before) f->run.dropped++;
	f->run.at++;
	return 0;
}

// value(…) takes what the function returned as the value for its event.
static int value(lua_State *L) {
	front *f = front_of(L);
	lua_settop(L, 1);
	emit(L, f, 1);
	check_output(L, f);
	f->run.at++;
	return 0;
}

// sent notes that what was written to f->out from `before` on came of the event. It
// returns 0 when that is so; else nothing was done.
static int sent(front *f, size_t before, int fault) {
	if (fault || f->out.len + f->bared > f->output) {
		f->out.len = before;
		return 1;
	}
	out_add(f);
	f->run.at++;
	return 0;
}

// sent_bare notes that the event came of itself as a row of columns, without a
// document. It returns 0 when that is so; else nothing was done.
static int sent_bare(front *f) {
	struct extractor *x = f->extract[0];
	size_t had = f->out.len + f->bared;
	f->out_ends[f->out_count] = (uint32_t)f->out.len;
	if (had > f->output || f->api->extract_bare(x, f->event, f->out.data, f->out_ends, f->out_count + 1, f->output - had)) return 1;
	f->bared += x->last;
	out_add(f);
	f->run.at++;
	return 0;
}

// extract_sent fills the row of the event that was sent, while it is indexed.
static void extract_sent(front *f) {
	for (uint32_t i = 0; i < f->extract_count; i++)
		if (f->extract[i] && f->api->extract_event(f->extract[i], f->event, f->out.data, f->out_ends, f->out_count)) f->unextracted = 1;
}

// extract_rest fills the rows of what else was sent.
static int extract_rest(front *f) {
	for (uint32_t i = 0; i < f->extract_count && !f->unextracted; i++)
		if (f->extract[i] && f->api->extract_rows(f->extract[i], f->out.data, f->out_ends, f->out_count)) f->unextracted = 1;
	return f->unextracted ? PG_MEMORY : PG_OK;
}

// front_sent sends the event itself, when nothing of it needs Lua. It returns 0
// when that is done.
int front_sent(front *f) {
	if (f->event->foreigns || !out_need(f)) return 1;
	if (f->bare && sent_bare(f) == 0) return 0;
	size_t before = f->out.len;
	int fault = sent(f, before, f->api->encode(f->event, 0, &f->out));
	if (!fault && (f->bare || !f->route_count)) extract_sent(f);
	return fault;
}

int front_sent_string(front *f, const char *s, size_t n) {
	size_t before = f->out.len;
	if (!f->api->utf8(s, n) || !out_need(f)) return 1;
	return sent(f, before, f->api->quote(&f->out, s, n));
}

int front_sent_number(front *f, double x) {
	size_t before = f->out.len;
	if (x - x != 0 || !out_need(f)) return 1;
	return sent(f, before, f->api->put_number(&f->out, x));
}

void front_dropped(front *f) {
	f->run.dropped++;
	f->run.at++;
}

void run_open(lua_State *L) {
	static const luaL_Reg functions[] = {{"step", step}, {"finish", finish}, {"value", value}, {"fresh", fresh}, {NULL, NULL}};
	lua_newtable(L);
	luaL_register(L, NULL, functions);
}

static void out_truncate(front *f, uint32_t count) {
	while (f->out_count > count && f->out_from[f->out_count - 1] == f->run.at) f->out_count--;
	while (f->route_count && f->routes[f->route_count - 1].row >= f->out_count) f->route_count--;
	f->out.len = f->out_count ? f->out_ends[f->out_count - 1] : 0;
}

// begin_single goes on to the only event, before Lua is entered: what stands
// before a loop of the script runs interpreted then, where FFI is slow.
static int begin_single(front *f) {
	if (!f->compiled || front_next(f) != 2) return PG_OK;
	lua_pushcfunction(f->vm->L, fresh);
	return pg_vm_call(f->vm, 0, 0);
}

static int drive(front *f) {
	int driver = f->driver;
	if (f->run.at == f->count) return PG_OK;
	if (f->count - f->run.at == 1) {
		int kind = begin_single(f);
		if (kind || f->run.at == f->count) return kind;
		driver = f->single;
	}
	int kind = pg_vm_thread(f->vm);
	if (kind) return kind;
	lua_rawgeti(f->vm->co, LUA_REGISTRYINDEX, driver);
	return pg_vm_resume(f->vm, 0);
}

// run_events goes on after a drive that ended with kind. It returns the kind of
// the limit that ended the run, PG_CALL, or PG_OK.
static int run_events(front *f, int kind) {
	for (;;) {
		if (kind == PG_OK || kind == PG_CALL) return kind;
		out_truncate(f, 0);
		if (kind == PG_BATCH_TIME) return kind;
		if (f->run.full) return PG_OUTPUT;
		dead_script(f);
		f->run.at++;
		if (f->vm->broken || kind >= PG_EVENT_TIME) return kind;
		if (f->run.at == f->count) return PG_OK;
		kind = drive(f);
	}
}

// told tells whether the script has logged or measured.
static int told(const front *f) {
	return f->vm->log.len || f->vm->log.truncated || f->measured.len || f->unmeasured;
}

// end ends a run, and returns what ended it.
static int end(front *f, int kind) {
	pg_vm_end(f->vm);
	life_next(f);
	if (!f->bare && (kind || f->route_count)) return kind; // no sink need have all rows
	int fault = extract_rest(f);
	if (!kind) kind = fault;
	f->plain = !kind && !f->dead_count && !f->route_count && !told(f);
	return kind;
}

int front_ended(front *f, int kind) {
	kind = run_events(f, kind);
	f->plain = 0;
	if (kind == PG_CALL) pg_vm_pause(f->vm);
	else kind = end(f, kind);
	return f->kind = kind;
}

int front_batch(front *f, const char *data, const uint32_t *ends, uint32_t count, uint32_t first) {
	f->data = data;
	f->ends = ends;
	f->count = count;
	f->run = (front_run){.at = first};
	f->out.len = f->texts.len = 0;
	f->out_count = f->dead_count = f->route_count = 0;
	f->unextracted = 0;
	f->bared = 0;
	for (uint32_t i = 0; i < f->extract_count; i++)
		if (f->extract[i] && f->api->extract_begin(f->extract[i])) f->unextracted = 1;
	pg_vm_begin(f->vm);
	return front_ended(f, drive(f));
}
