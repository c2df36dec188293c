// Connects an extension to the engine: the functions with which engine.lua creates its modules.

#include <string.h>
#include <time.h>

#include "engine.h"

static void stop_event(plua_vm *vm) {
	vm->run.stop_event = vm->run.event;
	plua_vm_stop(vm, PLUA_EVENT_TIME);
}

void plua_extension_join(plua_engine *e, const plua_engine_setup *setup) {
	plua_extension *x = e->extension = setup->extension;
	if (!x) return;
	x->host = (plua_extension_host){.vm = e->vm,
	    .memory = e->vm->limit,
	    .event_ms = setup->event_ms,
	    .stop = &e->vm->run.stop,
	    .unfinished = &e->unfinished,
	    .charge = plua_vm_charge,
	    .stop_event = stop_event};
}

int plua_extension_attaches(const plua_engine *e) { return e->extension && e->extension->attach; }

void plua_extension_attach(plua_engine *e, void *session, void *const *others, size_t count,
    double time, int timers, int retry) {
	e->extension->attach(e->extension, session, others, count);
	e->time = time;
	e->retry = retry;
	e->drive = timers ? e->timer_drive : e->main_drive;
}

void plua_extension_finish(plua_engine *e, int keep) {
	e->unfinished = 0;
	e->extension->finish(e->extension, keep);
}

void plua_extension_idle(plua_engine *e) {
	e->extension->idle(e->extension);
	e->time = 0;
	e->drive = e->main_drive;
}

// session() opens the session. It returns the pointer that the functions take in its place.
static int session(lua_State *L) {
	plua_extension *x = plua_engine_of(L)->extension;
	const char *error = x->open(x);
	if (error) return plua_raise(L, "%s", error);
	lua_pushlightuserdata(L, x);
	return 1;
}

// proxy(metatable) returns an empty userdata.
static int proxy(lua_State *L) {
	lua_settop(L, 1);
	lua_newuserdata(L, 0);
	lua_insert(L, 1);
	lua_setmetatable(L, 1);
	return 1;
}

// digits(v) returns the text of a number that a double cannot hold, nil for anything else.
static int digits(lua_State *L) {
	size_t len;
	const char *text = plua_bignum_text(L, plua_engine_of(L), 1, &len);
	if (text) lua_pushlstring(L, text, len);
	else lua_pushnil(L);
	return 1;
}

// now() returns the milliseconds of a monotonic clock.
static int now(lua_State *L) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	lua_pushnumber(L, (double)t.tv_sec * 1e3 + (double)(t.tv_nsec / 1000000));
	return 1;
}

// is_text(v) returns whether a string is valid UTF-8.
static int is_text(lua_State *L) {
	size_t len;
	const char *text = luaL_checklstring(L, 1, &len);
	lua_pushboolean(L, plua_engine_of(L)->api->utf8(text, len));
	return 1;
}

static void push_addresses(lua_State *L, const plua_extension *x) {
	lua_newtable(L);
	for (const plua_extension_function *f = x->functions; f->name; f++) {
		lua_pushlightuserdata(L, f->address);
		lua_setfield(L, -2, f->name);
	}
}

static void push_codes(lua_State *L, const plua_extension *x) {
	lua_newtable(L);
	for (int i = 0; x->codes[i]; i++) {
		lua_pushinteger(L, -1 - i);
		lua_setfield(L, -2, x->codes[i]);
	}
}

void plua_extension_open(lua_State *L, plua_engine *e, const plua_engine_setup *setup) {
	static const luaL_Reg functions[] = {{"session", session}, {"proxy", proxy}, {"digits", digits},
	    {"now", now}, {"is_text", is_text}, {NULL, NULL}};
	const plua_extension *x = e->extension;
	if (!x) {
		lua_pushnil(L);
		return;
	}
	lua_newtable(L);
	luaL_register(L, NULL, functions);
	push_addresses(L, x);
	lua_setfield(L, -2, "addresses");
	push_codes(L, x);
	lua_setfield(L, -2, "codes");
	lua_pushstring(L, x->marker);
	lua_setfield(L, -2, "marker");
	lua_pushstring(L, setup->extension_modules);
	lua_setfield(L, -2, "modules");
	lua_pushlstring(L, setup->extension_source, setup->extension_source_len);
	lua_setfield(L, -2, "source");
	lua_pushboolean(L, setup->extension_collect);
	lua_setfield(L, -2, "collect");
	if (!x->attach) return;
	lua_pushlightuserdata(L, &e->generation);
	lua_setfield(L, -2, "generation");
	lua_pushlightuserdata(L, &e->time);
	lua_setfield(L, -2, "clock");
	lua_pushlightuserdata(L, &e->retry);
	lua_setfield(L, -2, "retry");
	lua_pushboolean(L, setup->timer);
	lua_setfield(L, -2, "timer");
}
