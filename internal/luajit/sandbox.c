#include "sandbox.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	LOG_MAX = 1 << 20 /* bytes */
};

/* add_record adds a line to the log, which Go reads after the call. A record is a level numbered
 * as in slog, two lengths, the place and the text. */
static void add_record(plua_vm *vm, int level, const char *place, const char *text, size_t len) {
	struct plua_log *log = &vm->log;
	size_t n = strlen(place);
	int32_t head[3] = {level, (int32_t)n, (int32_t)len};
	if (len > LOG_MAX || log->len + sizeof head + n + len > LOG_MAX) {
		log->truncated = 1;
		return;
	}
	size_t need = log->len + sizeof head + n + len;
	if (need > log->cap) {
		size_t cap = need < 512 ? 1024 : need * 2;
		char *data = realloc(log->data, cap);
		if (!data) return;
		log->data = data, log->cap = cap;
	}
	memcpy(log->data + log->len, head, sizeof head);
	memcpy(log->data + log->len + sizeof head, place, n);
	memcpy(log->data + log->len + sizeof head + n, text, len);
	log->len = need;
}

/* log(level, text) */
static int log_line(lua_State *L) {
	size_t len;
	int level = (int)luaL_checkinteger(L, 1);
	const char *text = luaL_checklstring(L, 2, &len);
	char place[LUA_IDSIZE + 16] = "";
	lua_Debug ar;
	for (int up = 1; !*place && lua_getstack(L, up, &ar); up++) {
		lua_getinfo(L, "Sl", &ar);
		if (*ar.source == '@') snprintf(place, sizeof place, "%s:%d", ar.short_src, ar.currentline);
	}
	add_record(plua_vm_of(L), level, place, text, len);
	return 0;
}

void plua_sandbox_open(lua_State *L, plua_vm *vm) {
	plua_string_open(L);
	plua_coroutine_open(L);
	lua_pushcfunction(L, log_line);
	lua_call(L, 3, 4);
	vm->main_threads = luaL_ref(L, LUA_REGISTRYINDEX);
	vm->seal = luaL_ref(L, LUA_REGISTRYINDEX);
	vm->env = luaL_ref(L, LUA_REGISTRYINDEX);
	vm->globals = luaL_ref(L, LUA_REGISTRYINDEX);
}
