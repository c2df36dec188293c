#include "sandbox.h"

#include <stdlib.h>
#include <string.h>

enum { LOG_MAX = 1 << 20 };

/* keep_line keeps a line for Go, which takes all of them after the call. A record
 * is a level, as slog counts them, a length and the text. */
static void keep_line(pg_vm *vm, int level, const char *text, size_t len) {
	struct pg_log *log = &vm->log;
	int32_t head[2] = {level, (int32_t)len};
	if (len > LOG_MAX || log->len + sizeof head + len > LOG_MAX) {
		log->truncated = 1;
		return;
	}
	size_t need = log->len + sizeof head + len;
	if (need > log->cap) {
		size_t cap = need < 512 ? 1024 : need * 2;
		char *data = realloc(log->data, cap);
		if (!data) return;
		log->data = data, log->cap = cap;
	}
	memcpy(log->data + log->len, head, sizeof head);
	memcpy(log->data + log->len + sizeof head, text, len);
	log->len = need;
}

/* log(level, text) */
static int log_line(lua_State *L) {
	size_t len;
	int level = (int)luaL_checkinteger(L, 1);
	const char *text = luaL_checklstring(L, 2, &len);
	keep_line(pg_vm_of(L), level, text, len);
	return 0;
}

void pg_sandbox_open(lua_State *L, pg_vm *vm) {
	pg_string_functions(L);
	pg_coroutine_functions(L);
	lua_pushcfunction(L, log_line);
	lua_call(L, 3, 3);
	vm->seal = luaL_ref(L, LUA_REGISTRYINDEX);
	vm->env = luaL_ref(L, LUA_REGISTRYINDEX);
	vm->base = luaL_ref(L, LUA_REGISTRYINDEX);
}
