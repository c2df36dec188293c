// The rows and failed events of a run. This file does not use Lua.

#include <stdlib.h>
#include <string.h>

#include "../document/extract.h"
#include "engine.h"

int plua_output_need(plua_engine *e) {
	plua_output *out = &e->out;
	if (out->count < out->cap) return 1;
	uint32_t cap = out->cap ? out->cap * 2 : 1024;
	uint32_t *ends = realloc(out->ends, cap * sizeof *ends);
	if (ends) out->ends = ends;
	uint32_t *from = realloc(out->from, cap * sizeof *from);
	if (from) out->from = from;
	if (!ends || !from) return 0;
	out->cap = cap;
	return 1;
}

void plua_output_add(plua_engine *e) {
	e->out.ends[e->out.count] = (uint32_t)e->out.docs.len;
	e->out.from[e->out.count++] = e->batch.at;
}

int plua_output_route(plua_engine *e) {
	plua_output *out = &e->out;
	if (out->route_count == out->route_cap) {
		uint32_t cap = out->route_cap ? out->route_cap * 2 : 64;
		plua_route *routes = realloc(out->routes, cap * sizeof *routes);
		if (!routes) return DOC_NO_MEMORY;
		out->routes = routes;
		out->route_cap = cap;
	}
	out->routes[out->route_count++] = (plua_route){out->count - 1, out->route};
	return DOC_OK;
}

// Failed events

static plua_dead_event *add_dead(plua_engine *e) {
	plua_output *out = &e->out;
	if (out->dead_count == out->dead_cap) {
		uint32_t cap = out->dead_cap ? out->dead_cap * 2 : 64;
		plua_dead_event *dead = realloc(out->dead, cap * sizeof *dead);
		if (!dead) return NULL;
		out->dead = dead;
		out->dead_cap = cap;
	}
	plua_dead_event *d = &out->dead[out->dead_count++];
	*d = (plua_dead_event){.event = e->batch.at, .text = (uint32_t)out->texts.len};
	return d;
}

void plua_output_fail_parse(plua_engine *e, int error) {
	plua_dead_event *d = add_dead(e);
	if (!d) return;
	d->parse_error = (uint32_t)error;
	d->offset = e->event->offset;
}

void plua_output_fail_script(plua_engine *e) {
	const plua_error *error = &e->vm->error;
	plua_dead_event *d = add_dead(e);
	if (!d) return;
	d->kind = error->kind;
	d->line = error->line;
	if (e->api->buf_add(&e->out.texts, error->message, error->message_len)) return;
	d->message_len = error->message_len;
	if (e->api->buf_add(&e->out.texts, error->traceback, error->traceback_len)) return;
	d->traceback_len = error->traceback_len;
	uint32_t n = (uint32_t)strlen(error->file);
	if (e->api->buf_add(&e->out.texts, error->file, n)) return;
	d->file_len = n;
}

void plua_output_discard(plua_engine *e) {
	plua_output *out = &e->out;
	while (out->count && out->from[out->count - 1] == e->batch.at) out->count--;
	while (out->route_count && out->routes[out->route_count - 1].row >= out->count)
		out->route_count--;
	out->docs.len = out->count ? out->ends[out->count - 1] : 0;
}

// Rows added without Lua

// add_written adds a row for the bytes written since `before`. If it fails, it removes them and
// returns 0.
static int add_written(plua_engine *e, size_t before, int error) {
	if (error || e->out.docs.len + e->out.column_bytes > e->out.limit) {
		e->out.docs.len = before;
		return 1;
	}
	plua_output_add(e);
	e->batch.at++;
	return 0;
}

// add_columns adds the event as a row of columns, without a document. If it fails, it does nothing
// and returns 0.
static int add_columns(plua_engine *e) {
	struct extractor *x = e->out.extractors[0];
	size_t size = e->out.docs.len + e->out.column_bytes;
	e->out.ends[e->out.count] = (uint32_t)e->out.docs.len;
	if (size > e->out.limit || e->api->extract_columns_only(x, e->event, e->out.docs.data,
	                               e->out.ends, e->out.count + 1, e->out.limit - size))
		return 1;
	e->out.column_bytes += x->row_bytes;
	plua_output_add(e);
	e->batch.at++;
	return 0;
}

// extract_added fills the columns of the last row while its document is still indexed.
static void extract_added(plua_engine *e) {
	for (uint32_t i = 0; i < e->out.extractor_count; i++)
		if (e->out.extractors[i] && e->api->extract_event(e->out.extractors[i], e->event,
		                                e->out.docs.data, e->out.ends, e->out.count))
			e->out.extract_failed = 1;
}

int plua_output_event(plua_engine *e) {
	if (e->event->externals || !plua_output_need(e)) return 1;
	if (e->out.columns_only && add_columns(e) == 0) return 0;
	size_t before = e->out.docs.len;
	int failed = add_written(e, before, e->api->encode(e->event, 0, 0, &e->out.docs));
	if (!failed && (e->out.columns_only || !e->out.route_count)) extract_added(e);
	return failed;
}

int plua_output_string(plua_engine *e, const char *s, size_t n) {
	size_t before = e->out.docs.len;
	if (!e->api->utf8(s, n) || !plua_output_need(e)) return 1;
	return add_written(e, before, e->api->quote(&e->out.docs, s, n));
}

int plua_output_number(plua_engine *e, double x) {
	size_t before = e->out.docs.len;
	if (x - x != 0 || !plua_output_need(e)) return 1;
	return add_written(e, before, e->api->put_number(&e->out.docs, x));
}

void plua_output_drop(plua_engine *e) {
	e->batch.dropped++;
	e->batch.at++;
}

// The run as a whole

void plua_output_begin(plua_engine *e) {
	plua_output *out = &e->out;
	out->docs.len = out->texts.len = 0;
	out->count = out->dead_count = out->route_count = 0;
	out->extract_failed = 0;
	out->column_bytes = 0;
	for (uint32_t i = 0; i < out->extractor_count; i++)
		if (out->extractors[i] && e->api->extract_begin(out->extractors[i]))
			out->extract_failed = 1;
}

int plua_output_extract(plua_engine *e) {
	plua_output *out = &e->out;
	for (uint32_t i = 0; i < out->extractor_count && !out->extract_failed; i++)
		if (out->extractors[i] &&
		    e->api->extract_rows(out->extractors[i], out->docs.data, out->ends, out->count))
			out->extract_failed = 1;
	return out->extract_failed ? PLUA_MEMORY : PLUA_OK;
}
