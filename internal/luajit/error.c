#include "error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* This file does not allocate from the VM, since it also reports that memory is exhausted. */

static const char *limit_message(int kind) {
	switch (kind) {
	case PLUA_EVENT_TIME: return "time limit for one event exceeded";
	case PLUA_BATCH_TIME: return "time limit for the batch exceeded";
	case PLUA_MEMORY: return "memory limit exceeded";
	case PLUA_OUTPUT: return "output limit exceeded";
	}
	return "stopped";
}

static void set_message(plua_vm *vm, const char *text, size_t len) {
	plua_error *err = &vm->error;
	if (len > sizeof err->message) len = sizeof err->message;
	memcpy(err->message, text, len);
	err->message_len = (uint32_t)len;
}

/* line_in_message returns the line of a leading "email.lua:12: " if that names the file, else
 * -1. */
static int line_in_message(const plua_error *err, const char *file) {
	size_t n = strlen(file);
	if (err->message_len < n + 2 || memcmp(err->message, file, n) != 0 || err->message[n] != ':')
		return -1;
	char digits[12] = "";
	for (size_t i = 0; i < sizeof digits - 1 && n + 1 + i < err->message_len; i++)
		digits[i] = err->message[n + 1 + i];
	int line = atoi(digits);
	return line > 0 ? line : -1;
}

static void set_file(plua_vm *vm, const char *chunk) {
	int own = strcmp(chunk, vm->chunk) == 0;
	snprintf(vm->error.file, sizeof vm->error.file, "%s", own ? "" : chunk + 1);
}

/* take_place_in moves a leading "email.lua:12: " from the message to the error's place, if it
 * names the chunk. */
static int take_place_in(plua_vm *vm, const char *chunk) {
	plua_error *err = &vm->error;
	char text[sizeof err->message + 1];
	const char *name = chunk + 1; /* without the @ */
	size_t n = strlen(name);
	memcpy(text, err->message, err->message_len);
	text[err->message_len] = 0;
	if (strncmp(text, name, n) != 0 || text[n] != ':') return 0;
	char *end;
	unsigned long line = strtoul(text + n + 1, &end, 10);
	if (end == text + n + 1 || end[0] != ':' || end[1] != ' ') return 0;
	err->line = (uint32_t)line;
	set_file(vm, chunk);
	set_message(vm, end + 2, strlen(end + 2));
	return 1;
}

static void take_place(plua_vm *vm) {
	if (take_place_in(vm, vm->chunk)) return;
	for (const plua_file *file = vm->files; file; file = file->next)
		if (take_place_in(vm, file->chunk)) return;
}

static void set_error(plua_vm *vm, int kind, const char *message) {
	vm->error.kind = kind;
	vm->error.line = vm->error.traceback_len = 0;
	vm->error.file[0] = 0;
	set_message(vm, message, strlen(message));
}

/* add_line appends a line to the traceback if it fits. */
static void add_line(plua_error *err, const char *format, ...) {
	char line[256];
	va_list args;
	va_start(args, format);
	int n = vsnprintf(line, sizeof line, format, args);
	va_end(args);
	if (n < 0) return;
	if (n >= (int)sizeof line) n = sizeof line - 1;
	if (err->traceback_len + n > sizeof err->traceback) return;
	memcpy(err->traceback + err->traceback_len, line, n);
	err->traceback_len += n;
}

enum { /* number of frames shown for a deep stack */
	TOP = 12,
	BOTTOM = 10
};

/* stack_depth returns the number of frames, to within one, or 0 for a stack to be shown completely.
 * It uses bisection, since lua_getstack walks to the requested level. */
static int stack_depth(lua_State *L) {
	lua_Debug ar;
	int low = 0, high = 4 * (TOP + BOTTOM);
	if (!lua_getstack(L, high, &ar)) return 0;
	while (lua_getstack(L, high, &ar)) low = high, high *= 2;
	while (high - low > 1) {
		int mid = (low + high) / 2;
		if (lua_getstack(L, mid, &ar)) low = mid;
		else high = mid;
	}
	return high;
}

/* add_traceback adds the script's frames of one coroutine, without the engine's own. */
static void add_traceback(lua_State *L, plua_vm *vm, int *shown) {
	lua_Debug ar;
	int depth = stack_depth(L);
	for (int level = 0; lua_getstack(L, level, &ar); level++) {
		if (depth && level == TOP) {
			add_line(&vm->error, "  ...\n");
			level = depth - BOTTOM;
			continue;
		}
		lua_getinfo(L, "Sln", &ar);
		if (*ar.source != '@') continue;
		/* A failed coroutine does not know the line of its last function. */
		if (ar.currentline < 0) ar.currentline = line_in_message(&vm->error, ar.short_src);
		if (!vm->error.line) {
			vm->error.line = ar.currentline;
			set_file(vm, ar.source);
		}
		if ((*shown)++ > 40) return;
		if (ar.name)
			add_line(&vm->error, "  %s:%d: in %s\n", ar.short_src, ar.currentline, ar.name);
		else if (strcmp(ar.what, "main") == 0)
			add_line(&vm->error, "  %s:%d: in main chunk\n", ar.short_src, ar.currentline);
		else
			add_line(&vm->error, "  %s:%d: in function at line %d\n", ar.short_src, ar.currentline,
			    ar.linedefined);
	}
}

/* add_place sets the line and the traceback, from L and the coroutines that resumed it. */
static void add_place(lua_State *L, plua_vm *vm) {
	int shown = 0;
	vm->error.line = vm->error.traceback_len = 0;
	vm->error.file[0] = 0;
	add_traceback(L, vm, &shown);
	for (plua_frame *f = vm->frames; f; f = f->outer)
		if (f->L != L) add_traceback(f->L, vm, &shown);
	if (L != vm->L) add_traceback(vm->L, vm, &shown);
	if (vm->error.traceback_len) vm->error.traceback_len--; /* the final newline */
}

void plua_error_limit(lua_State *L, plua_vm *vm) {
	uint32_t kind = vm->run.stop;
	if (vm->error.kind == kind) return;
	vm->error.kind = kind;
	add_place(L, vm);
	set_message(vm, limit_message(kind), strlen(limit_message(kind)));
}

/* Our patched LuaJIT calls this before it throws an error that no message handler sees, because
 * memory or stack is exhausted; the unwinding would lose the place. */
void luaJIT_unhandled(lua_State *L);
void luaJIT_unhandled(lua_State *L) {
	plua_vm *vm = plua_vm_of(L);
	if (!vm->L) return;
	if (vm->run.stop) {
		plua_error_limit(L, vm);
		return;
	}
	add_place(L, vm);
	vm->error.kind = PLUA_STACK;
	set_message(vm, "stack overflow", strlen("stack overflow"));
}

void plua_error_strip_place(lua_State *L) {
	static const char ours[] = PLUA_SANDBOX ":";
	if (lua_type(L, -1) != LUA_TSTRING) return;
	const char *text = lua_tostring(L, -1);
	if (strncmp(text, ours, sizeof ours - 1) != 0) return;
	const char *rest = strstr(text, ": ");
	if (!rest) return;
	lua_pushstring(L, rest + 2);
	lua_remove(L, -2);
}

int plua_error_handler(lua_State *L) {
	plua_vm *vm = plua_vm_of(L);
	if (vm->run.stop) {
		plua_error_limit(L, vm);
		return 1;
	}
	int type = lua_type(L, 1);
	lua_settop(L, 1);
	if (type == LUA_TSTRING) {
		size_t len;
		plua_error_strip_place(L);
		const char *text = lua_tolstring(L, -1, &len);
		set_message(vm, text, len);
	}
	add_place(L, vm);
	vm->error.kind = PLUA_ERROR;
	if (vm->describe && type != LUA_TSTRING && type != LUA_TNUMBER) {
		lua_settop(L, 1);
		vm->describe(L);
		type = lua_type(L, 1);
	}
	if (type == LUA_TSTRING) {
		size_t len;
		const char *text = lua_tolstring(L, 1, &len);
		set_message(vm, text, len);
		take_place(vm);
	} else if (type == LUA_TNUMBER) {
		char text[32];
		set_message(vm, text, snprintf(text, sizeof text, "%.14g", lua_tonumber(L, 1)));
	} else {
		char text[64];
		set_message(
		    vm, text, snprintf(text, sizeof text, "(error object is a %s)", lua_typename(L, type)));
	}
	return 1;
}

static int starts_with(const plua_error *err, const char *text) {
	return err->message_len >= strlen(text) && memcmp(err->message, text, strlen(text)) == 0;
}

void plua_error_finish(plua_vm *vm) {
	plua_error *err = &vm->error;
	uint32_t limit = vm->run.stop;
	if (limit) {
		if (err->kind != PLUA_OK)
			set_message(vm, limit_message(limit), strlen(limit_message(limit)));
		else set_error(vm, limit, limit_message(limit));
		err->kind = limit;
		vm->broken = limit;
	} else if (err->kind == PLUA_OK) {
		set_error(vm, PLUA_ERROR, "error in error handling");
	} else if (starts_with(err, "stack overflow") || starts_with(err, "C stack overflow")) {
		err->kind = PLUA_STACK;
	}
}

void plua_error_syntax(lua_State *L, plua_vm *vm) {
	size_t len;
	set_error(vm, PLUA_SYNTAX, "");
	const char *text = lua_tolstring(L, -1, &len);
	if (text) set_message(vm, text, len);
	take_place(vm);
}

int plua_raise(lua_State *L, const char *format, ...) {
	lua_Debug ar;
	va_list args;
	int level = 1, found = 0; /* skip the engine's own frames */
	while (!found && lua_getstack(L, level++, &ar))
		found = lua_getinfo(L, "S", &ar) && *ar.source == '@';
	if (found) luaL_where(L, level - 1);
	else lua_pushliteral(L, "");
	va_start(args, format);
	lua_pushvfstring(L, format, args);
	va_end(args);
	lua_concat(L, 2);
	return lua_error(L);
}
