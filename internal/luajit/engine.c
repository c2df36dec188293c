#include "engine.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
	plua_engine *e;
	const plua_engine_setup *setup;
	const char *text;
	size_t len;
} opening;

static void recharge(plua_vm *vm) {
	plua_extension *x = vm->engine->extension;
	if (x) x->charge(x);
}

// open_all runs engine.lua with its arguments, in one protected call.
static int open_all(lua_State *L) {
	opening *o = lua_touserdata(L, 1);
	plua_engine *e = o->e;
	if (luaL_loadbuffer(L, o->text, o->len, "=engine")) return lua_error(L);
	lua_rawgeti(L, LUA_REGISTRYINDEX, e->vm->globals);
	plua_metamethods_open(L, e);
	plua_bignum_open(L, e);
	plua_json_open(L, e);
	plua_route_open(L, e);
	plua_results_open(L);
	plua_batch_open(L);
	plua_gocall_open(L, e);
	lua_pushboolean(L, e->value);
	if (e->compiled) plua_ffi_open(L, e);
	else lua_pushnil(L);
	plua_extension_open(L, e, o->setup);
	lua_call(L, 9, 1);
	// until the script is loaded: the function that makes the drivers
	e->drive.batch = luaL_ref(L, LUA_REGISTRYINDEX);
	return 0;
}

plua_engine *plua_engine_open(
    plua_vm *vm, const doc_api *api, const plua_engine_setup *setup, const char *text, size_t len) {
	plua_engine *e = calloc(1, sizeof *e);
	if (!e) {
		if (setup->extension) setup->extension->close(setup->extension);
		return NULL;
	}
	*e = (plua_engine){.api = api,
	    .vm = vm,
	    .generation = 1,
	    .value = setup->value,
	    .compiled = setup->compiled,
	    .gocall.clock = setup->clock,
	    .gocall.direct = setup->direct};
	e->out.limit = setup->output < INT32_MAX ? setup->output : INT32_MAX;
	e->out.texts.max = e->encoder.buffer.max = e->encoder.keys.max = setup->memory;
	e->gocall.request.max = e->gocall.measurements.max = setup->memory;
	e->gocall.names = strdup(setup->functions);
	e->main = strdup(setup->main);
	e->sinks = strdup(setup->sinks);
	e->event = api->new (setup->memory, &vm->used, vm->limit);
	e->patterns = setup->compiled ? calloc(1, sizeof *e->patterns) : NULL;
	e->proxies.expired = (plua_container){.d = e->event};
	plua_extension_join(e, setup);
	vm->describe = plua_json_describe;
	vm->recharge = recharge;
	vm->engine = e;
	opening o = {e, setup, text, len};
	if (e->gocall.names && e->main && e->sinks && e->event && (e->patterns || !e->compiled) &&
	    lua_cpcall(vm->L, open_all, &o) == 0)
		return e;
	vm->engine = NULL;
	plua_engine_close(e);
	return NULL;
}

void plua_engine_close(plua_engine *e) {
	if (!e) return;
	if (e->extension) e->extension->close(e->extension);
	if (e->event) e->event->used = NULL; // it pointed into the VM, which is closed
	e->api->free(e->event);
	free(e->out.docs.data);
	free(e->out.texts.data);
	free(e->out.ends);
	free(e->out.from);
	free(e->out.routes);
	free(e->out.dead);
	free(e->encoder.buffer.data);
	free(e->encoder.keys.data);
	free(e->gocall.names);
	free(e->gocall.request.data);
	free(e->gocall.measurements.data);
	free(e->main);
	free(e->sinks);
	free(e->patterns);
	free(e);
}

// make_drivers creates the drivers that run the script's main.
static int make_drivers(lua_State *L) {
	plua_engine *e = plua_engine_of(L);
	lua_rawgeti(L, LUA_REGISTRYINDEX, e->drive.batch);
	lua_rawgeti(L, LUA_REGISTRYINDEX, e->vm->globals);
	lua_getfield(L, -1, e->main);
	if (plua_extension_attaches(e)) lua_getfield(L, -2, "timer");
	else lua_pushnil(L);
	lua_remove(L, -3);
	lua_insert(L, -2); // below main
	if (lua_isnil(L, -1))
		return plua_raise(L,
		    "no function %s; define 'function %s(event)' as a global, without 'local'", e->main,
		    e->main);
	if (!lua_isfunction(L, -1))
		return plua_raise(
		    L, "%s is a %s; define 'function %s(event)'", e->main, luaL_typename(L, -1), e->main);
	lua_call(L, 2, 4);
	e->timer_drive.batch = luaL_ref(L, LUA_REGISTRYINDEX);
	e->timer_drive.one = luaL_ref(L, LUA_REGISTRYINDEX);
	lua_rawseti(L, LUA_REGISTRYINDEX, e->drive.batch);
	e->drive.one = luaL_ref(L, LUA_REGISTRYINDEX);
	e->main_drive = e->drive;
	return 0;
}

// continue_load ends the load, or pauses it if the script waits.
static int continue_load(plua_engine *e, int kind) {
	if (kind == PLUA_WAITING) {
		plua_vm_pause(e->vm);
		return kind;
	}
	if (!kind) kind = plua_vm_seal(e->vm);
	if (!kind && *e->main) {
		lua_pushcfunction(e->vm->L, make_drivers);
		kind = plua_vm_call(e->vm, 0, 0);
	}
	e->loading = 0;
	plua_vm_end(e->vm);
	return kind;
}

int plua_engine_load(plua_engine *e, const char *name, const char *text, size_t len) {
	e->loading = 1;
	plua_vm_begin(e->vm);
	int kind = plua_vm_compile(e->vm, name, text, len);
	return continue_load(e, kind ? kind : plua_vm_resume(e->vm, 0));
}

int plua_engine_resume(plua_engine *e, const char *answer, size_t len) {
	e->gocall.answer = answer;
	e->gocall.answer_len = len;
	plua_vm_continue(e->vm);
	int kind = plua_vm_resume(e->vm, 0);
	return e->loading ? continue_load(e, kind) : plua_batch_continue(e, kind);
}
