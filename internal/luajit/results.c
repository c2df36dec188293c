// The results of main, as rows of the output.

#include "engine.h"

// add_row adds the value at index as a row of the current event.
static void add_row(lua_State *L, plua_engine *e, int index) {
	plua_encode_begin(e);
	plua_encode(L, e, index, &e->out.docs);
	if (!plua_output_need(e)) plua_check_doc(L, DOC_NO_MEMORY);
	plua_output_add(e);
	if (e->out.route) plua_check_doc(L, plua_output_route(e));
}

// function returns the name of the running function for messages.
static const char *function(const plua_engine *e) {
	return e->drive.batch == e->main_drive.batch ? "main" : "timer";
}

static const char accepted[] = "an event, a table, a list of them, or nil";

static int is_list(lua_State *L, plua_engine *e, int index) {
	uint32_t len;
	int shape = plua_table_shape(L, e, index, &len);
	return shape == PLUA_TABLE_LIST || (shape == PLUA_TABLE_EMPTY && plua_is_array(L, e, index));
}

// kind_name returns the type name of a value that cannot be a row; NULL for one that can.
static const char *kind_name(lua_State *L, plua_engine *e, int index) {
	size_t len;
	plua_container *c = plua_container_at(L, e, index);
	if (c) return c->d->nodes[c->node].kind == DOC_ARRAY ? "array" : NULL;
	if (plua_bignum_text(L, e, index, &len)) return "number";
	if (plua_is_null(L, index)) return "null";
	if (lua_type(L, index) != LUA_TTABLE) return luaL_typename(L, index);
	return is_list(L, e, index) ? "array" : NULL;
}

static int add_routed(lua_State *L, plua_engine *e, int index);

// add_item adds item i of a list that main returned; the item is on top of the stack.
static void add_item(lua_State *L, plua_engine *e, uint32_t i) {
	int index = lua_gettop(L);
	plua_encode_begin(e);
	const char *kind = kind_name(L, e, index);
	if (kind && add_routed(L, e, index)) return;
	if (kind)
		plua_raise(L, "%s returned a list whose item %d is of type %s; want %s", function(e),
		    (int)i, kind, "an event or a table");
	add_row(L, e, index);
}

static void add_document_array(lua_State *L, plua_engine *e, int index, plua_container *c) {
	uint32_t len = e->api->length(c->d, c->node);
	plua_container_push_nodes(L, e, c, index);
	int node_table = lua_gettop(L);
	for (uint32_t i = 1; i <= len; i++) {
		PLUA_CHECK(L, e->vm);
		int kind = e->api->at(c->d, c->node, i);
		if (kind == DOC_NULL) continue;
		plua_container_push_value(L, e, c->d, c->generation, node_table, kind);
		add_item(L, e, i);
		lua_pop(L, 1);
	}
	lua_pop(L, 1);
}

static void add_list(lua_State *L, plua_engine *e, int index, uint32_t len) {
	for (uint32_t i = 1; i <= len; i++) {
		PLUA_CHECK(L, e->vm);
		lua_rawgeti(L, index, (int)i);
		if (!lua_isnil(L, -1)) add_item(L, e, i);
		lua_pop(L, 1);
	}
}

static void add_table(lua_State *L, plua_engine *e, int index) {
	uint32_t len;
	plua_encode_begin(e);
	int shape = plua_table_shape(L, e, index, &len);
	if (shape == PLUA_TABLE_OBJECT) add_row(L, e, index);
	else add_list(L, e, index, len);
}

// add_value adds the rows of a value that main returned.
static void add_value(lua_State *L, plua_engine *e, int index) {
	plua_container *c = plua_container_at(L, e, index);
	size_t len;
	if (c) {
		plua_container_check(L, e, index);
		if (c->d->nodes[c->node].kind == DOC_ARRAY) add_document_array(L, e, index, c);
		else add_row(L, e, index);
	} else if (lua_type(L, index) == LUA_TTABLE) {
		add_table(L, e, index);
	} else if (!lua_isnil(L, index) && !add_routed(L, e, index)) {
		const char *kind = plua_bignum_text(L, e, index, &len) ? "number"
		                   : plua_is_null(L, index)            ? "json.null"
		                                                       : luaL_typename(L, index);
		plua_raise(L, "%s returned a value of type %s; want %s", function(e), kind, accepted);
	}
}

// add_routed adds the rows of a value routed by to(). It returns 0 for any other value.
static int add_routed(lua_State *L, plua_engine *e, int index) {
	uint64_t sinks = plua_route_push(L, e, index);
	if (!sinks) return 0;
	if (e->out.route)
		plua_raise(L,
		    "%s returned to() inside of to(); give one to() all the names: to({\"a\", \"b\"}, event)",
		    function(e));
	e->out.route = sinks;
	add_value(L, e, lua_gettop(L));
	e->out.route = 0;
	lua_pop(L, 1);
	return 1;
}

static void check_limit(lua_State *L, plua_engine *e) {
	e->batch.output_full = e->out.docs.len + e->out.column_bytes > e->out.limit;
	if (e->batch.output_full) plua_raise(L, "output limit exceeded");
}

static int is_event(const plua_engine *e, const plua_container *c) {
	return c && c->d == e->event && c->node == 0 && c->generation == e->generation;
}

// add_results(…) adds the rows of main's results.
static int add_results(lua_State *L) {
	plua_engine *e = plua_engine_of(L);
	int n = lua_gettop(L);
	if (n == 0)
		return plua_raise(L,
		    "%s returned nothing; end it with 'return event', or with 'return nil' to drop the event",
		    function(e));
	if (n == 1 && is_event(e, plua_container_at(L, e, 1)) && plua_output_event(e) == 0) return 0;
	uint32_t before = e->out.count;
	e->out.route = 0;
	for (int i = 1; i <= n; i++) add_value(L, e, i);
	check_limit(L, e);
	if (e->out.count == before) e->batch.dropped++;
	e->batch.at++;
	return 0;
}

// add_column_value(value) adds the value of a computed column.
static int add_column_value(lua_State *L) {
	plua_engine *e = plua_engine_of(L);
	lua_settop(L, 1);
	add_row(L, e, 1);
	check_limit(L, e);
	e->batch.at++;
	return 0;
}

void plua_results_open(lua_State *L) {
	static const luaL_Reg functions[] = {
	    {"add_results", add_results}, {"add_column_value", add_column_value}, {NULL, NULL}};
	lua_newtable(L);
	luaL_register(L, NULL, functions);
}
