#include "frontend.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

front *front_of(lua_State *L) { return pg_vm_of(L)->user; }

int front_raise(lua_State *L, const char *format, ...) {
	lua_Debug ar;
	va_list args;
	int of_script = lua_getstack(L, 1, &ar) && lua_getinfo(L, "S", &ar) && strcmp(ar.source, pg_vm_of(L)->chunk) == 0;
	if (of_script) luaL_where(L, 1);
	else lua_pushliteral(L, "");
	va_start(args, format);
	lua_pushvfstring(L, format, args);
	va_end(args);
	lua_concat(L, 2);
	return lua_error(L);
}

typedef struct { front *f; const char *text; size_t len; int compiled; } opening;

// open_all runs frontend.lua with what it builds on, below one protected call.
static int open_all(lua_State *L) {
	opening *o = lua_touserdata(L, 1);
	front *f = o->f;
	if (luaL_loadbuffer(L, o->text, o->len, "=frontend")) return lua_error(L);
	lua_rawgeti(L, LUA_REGISTRYINDEX, f->vm->base);
	part_open(L, f);
	big_open(L, f);
	json_open(L, f);
	run_open(L);
	if (o->compiled) proxy_open(L, f);
	else lua_pushnil(L);
	lua_call(L, 6, 1);
	f->driver = luaL_ref(L, LUA_REGISTRYINDEX);
	return 0;
}

front *front_open(pg_vm *vm, const doc_api *api, size_t memory, size_t output, int compiled,
	const char *text, size_t len) {
	front *f = calloc(1, sizeof *f);
	if (!f) return NULL;
	*f = (front){.api = api, .vm = vm, .life = 1, .decoded_max = memory};
	f->output = output < INT32_MAX ? output : INT32_MAX;
	f->texts.max = f->scratch.max = f->keys.max = memory;
	f->event = api->new(memory);
	f->root = f->past = (part){.d = f->event};
	vm->describe = front_describe;
	vm->user = f;
	opening o = {f, text, len, compiled};
	if (f->event && lua_cpcall(vm->L, open_all, &o) == 0) return f;
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
	lua_getfield(L, -1, "main");
	lua_remove(L, -2);
	if (lua_isnil(L, -1))
		return front_raise(L, "there is no function main; define 'function main(event)' as a global, without 'local'");
	if (!lua_isfunction(L, -1))
		return front_raise(L, "main is a %s; define 'function main(event)'", luaL_typename(L, -1));
	lua_call(L, 1, 2);
	lua_rawseti(L, LUA_REGISTRYINDEX, f->driver);
	f->single = luaL_ref(L, LUA_REGISTRYINDEX);
	return 0;
}

int front_main(front *f) {
	lua_pushcfunction(f->vm->L, bind);
	return pg_vm_call(f->vm, 0, 0);
}
