#include "frontend.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

front *front_of(lua_State *L) { return pg_vm_of(L)->user; }

int front_raise(lua_State *L, const char *format, ...) {
	lua_Debug ar;
	va_list args;
	int level = 1, found = 0; // what is in between is ours
	while (!found && lua_getstack(L, level++, &ar)) found = lua_getinfo(L, "S", &ar) && *ar.source == '@';
	if (found) luaL_where(L, level - 1);
	else lua_pushliteral(L, "");
	va_start(args, format);
	lua_pushvfstring(L, format, args);
	va_end(args);
	lua_concat(L, 2);
	return lua_error(L);
}

typedef struct { front *f; int compiled; const char *text; size_t len; } opening;

// open_all runs frontend.lua with what it builds on, below one protected call.
static int open_all(lua_State *L) {
	opening *o = lua_touserdata(L, 1);
	front *f = o->f;
	if (luaL_loadbuffer(L, o->text, o->len, "=frontend")) return lua_error(L);
	lua_rawgeti(L, LUA_REGISTRYINDEX, f->vm->base);
	part_open(L, f);
	big_open(L, f);
	json_open(L, f);
	route_open(L, f);
	run_open(L);
	call_open(L, f);
	lua_pushboolean(L, f->value);
	if (o->compiled) proxy_open(L, f);
	else lua_pushnil(L);
	lua_call(L, 8, 1);
	f->driver = luaL_ref(L, LUA_REGISTRYINDEX);
	return 0;
}

front *front_open(pg_vm *vm, const doc_api *api, const front_setup *setup, const char *text, size_t len) {
	front *f = calloc(1, sizeof *f);
	if (!f) return NULL;
	*f = (front){.api = api, .vm = vm, .life = 1, .decoded_max = setup->memory, .value = setup->value,
		.compiled = setup->compiled, .calls_directly = setup->direct};
	f->output = setup->output < INT32_MAX ? setup->output : INT32_MAX;
	f->texts.max = f->scratch.max = f->keys.max = f->request.max = f->measured.max = setup->memory;
	f->functions = strdup(setup->functions);
	f->main = strdup(setup->main);
	f->sinks = strdup(setup->sinks);
	f->event = api->new(setup->memory);
	f->quick = setup->compiled ? calloc(1, sizeof *f->quick) : NULL;
	f->past = (part){.d = f->event};
	vm->describe = front_describe;
	vm->user = f;
	opening o = {f, setup->compiled, text, len};
	if (f->functions && f->main && f->sinks && f->event && (f->quick || !f->compiled) &&
		lua_cpcall(vm->L, open_all, &o) == 0) return f;
	vm->user = NULL;
	front_close(f);
	return NULL;
}

void front_close(front *f) {
	if (!f) return;
	f->api->free(f->event);
	free(f->out.data);
	free(f->texts.data);
	free(f->scratch.data);
	free(f->keys.data);
	free(f->request.data);
	free(f->measured.data);
	free(f->functions);
	free(f->main);
	free(f->sinks);
	free(f->routes);
	free(f->quick);
	free(f->out_ends);
	free(f->out_from);
	free(f->dead);
	free(f);
}

// bind makes the driver run the script's main.
static int bind(lua_State *L) {
	front *f = front_of(L);
	lua_rawgeti(L, LUA_REGISTRYINDEX, f->driver);
	lua_rawgeti(L, LUA_REGISTRYINDEX, f->vm->base);
	lua_getfield(L, -1, f->main);
	lua_remove(L, -2);
	if (lua_isnil(L, -1))
		return front_raise(L, "no function %s; define 'function %s(event)' as a global, without 'local'", f->main, f->main);
	if (!lua_isfunction(L, -1))
		return front_raise(L, "%s is a %s; define 'function %s(event)'", f->main, luaL_typename(L, -1), f->main);
	lua_call(L, 1, 2);
	lua_rawseti(L, LUA_REGISTRYINDEX, f->driver);
	f->single = luaL_ref(L, LUA_REGISTRYINDEX);
	return 0;
}

// loaded ends or interrupts the load, of which kind says how far it came.
static int loaded(front *f, int kind) {
	if (kind == PG_CALL) {
		pg_vm_pause(f->vm);
		return kind;
	}
	if (!kind) kind = pg_vm_seal(f->vm);
	if (!kind && *f->main) {
		lua_pushcfunction(f->vm->L, bind);
		kind = pg_vm_call(f->vm, 0, 0);
	}
	f->loading = 0;
	pg_vm_end(f->vm);
	return kind;
}

int front_load(front *f, const char *name, const char *text, size_t len) {
	f->loading = 1;
	pg_vm_begin(f->vm);
	int kind = pg_vm_text(f->vm, name, text, len);
	return loaded(f, kind ? kind : pg_vm_resume(f->vm, 0));
}

int front_resume(front *f, const char *answer, size_t len) {
	f->answer = answer;
	f->answer_len = len;
	f->asked = 0;
	pg_vm_continue(f->vm);
	int kind = pg_vm_resume(f->vm, 0);
	return f->loading ? loaded(f, kind) : front_ended(f, kind);
}
