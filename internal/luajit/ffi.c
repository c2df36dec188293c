// The functions and types that engine.lua uses through FFI. The functions must not call Lua.

#include "engine.h"

static int element(plua_engine *e, uint32_t node, double i) {
	return e->event->nodes[node].kind == DOC_ARRAY ? e->api->at(e->event, node, i) : DOC_MISSING;
}

static uint32_t length(plua_engine *e, uint32_t node) {
	return e->event->nodes[node].kind == DOC_ARRAY ? e->api->length(e->event, node) : 0;
}

// The list of the functions: X(result, name, parameters, function). The table in C and its FFI
// declaration are both made from it.
#define FUNCTIONS(X, e) \
	X(int, next_event, (plua_engine *), plua_batch_next) \
	X(int, add_event, (plua_engine *), plua_output_event) \
	X(int, add_string, (plua_engine *, const char *, size_t), plua_output_string) \
	X(int, add_number, (plua_engine *, double), plua_output_number) \
	X(void, drop, (plua_engine *), plua_output_drop) \
	X(int, read, (doc *, uint32_t, const char *, size_t), e->api->read) \
	X(int, element, (plua_engine *, uint32_t, double), element) \
	X(uint32_t, length, (plua_engine *, uint32_t), length) \
	X(int, remove, (doc *, uint32_t, const char *, size_t), e->api->remove) \
	X(int, set_number, (doc *, uint32_t, const char *, size_t, double), e->api->set_number) \
	X(int, set_string, (doc *, uint32_t, const char *, size_t, const char *, size_t), \
	    e->api->set_string) \
	X(int, set_literal, (doc *, uint32_t, const char *, size_t, int), e->api->set_literal) \
	X(int, find, (plua_pattern_cache *, const char *, size_t, const char *, size_t, double), \
	    plua_pattern_cache_find)

#define MEMBER(result, name, parameters, function) result(*name) parameters;
#define ASSIGN(result, name, parameters, function) .name = function,
#define TEXT(...) TEXT_(__VA_ARGS__)
#define TEXT_(...) #__VA_ARGS__

typedef struct functions {
	FUNCTIONS(MEMBER, )
} functions;

// doc_found is the part of a doc in which doc_read and similar functions store their results.
static const char declarations[] =
    "typedef struct plua_engine plua_engine; typedef struct doc doc; typedef struct plua_pattern_cache plua_pattern_cache;"
    "struct doc_found {" TEXT(DOC_FOUND_MEMBERS) "};" TEXT(
        PLUA_FOUND_TYPES) "struct plua_functions {" TEXT(FUNCTIONS(MEMBER, )) "};";

static void set_address(lua_State *L, const char *name, void *p) {
	lua_pushlightuserdata(L, p);
	lua_setfield(L, -2, name);
}

void plua_ffi_open(lua_State *L, plua_engine *e) {
	lua_newtable(L);
	functions *f = lua_newuserdata(L, sizeof *f); // engine.lua keeps it alive
	*f = (functions){FUNCTIONS(ASSIGN, e)};
	lua_setfield(L, -2, "functions");
	lua_pushlstring(L, declarations, sizeof declarations - 1);
	lua_setfield(L, -2, "declarations");
	set_address(L, "engine", e);
	set_address(L, "document", e->event);
	set_address(L, "generation", &e->generation);
	set_address(L, "patterns", e->patterns);
	lua_pushinteger(L, PLUA_PROXY_NODES);
	lua_setfield(L, -2, "nodes");
	plua_proxy_open(L, e);
}
