#include "fault.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Nothing here allocates from the VM: it also reports that there is no memory. */

static const char *limit_message(int kind) {
	switch (kind) {
	case PG_EVENT_TIME: return "time limit for one event exceeded";
	case PG_BATCH_TIME: return "time limit for the batch exceeded";
	case PG_MEMORY: return "memory limit exceeded";
	case PG_OUTPUT: return "output limit exceeded";
	}
	return "stopped";
}

static void set_message(pg_vm *vm, const char *text, size_t len) {
	pg_fault *f = &vm->fault;
	if (len > sizeof f->message) len = sizeof f->message;
	memcpy(f->message, text, len);
	f->message_len = (uint32_t)len;
}

/* said returns the line that a leading "email.lua:12: " names, if it is the file's. */
static int said(const pg_fault *f, const char *file) {
	size_t n = strlen(file);
	if (f->message_len < n + 2 || memcmp(f->message, file, n) != 0 || f->message[n] != ':') return -1;
	char digits[12] = "";
	for (size_t i = 0; i < sizeof digits - 1 && n + 1 + i < f->message_len; i++) digits[i] = f->message[n + 1 + i];
	int line = atoi(digits);
	return line > 0 ? line : -1;
}

static void set_file(pg_vm *vm, const char *chunk) {
	int own = strcmp(chunk, vm->chunk) == 0;
	snprintf(vm->fault.file, sizeof vm->fault.file, "%s", own ? "" : chunk + 1);
}

/* take_from moves a leading "email.lua:12: " from the message into the fault, when
 * that is the chunk's name. */
static int take_from(pg_vm *vm, const char *chunk) {
	pg_fault *f = &vm->fault;
	char text[sizeof f->message + 1];
	const char *name = chunk + 1; /* without the @ */
	size_t n = strlen(name);
	memcpy(text, f->message, f->message_len);
	text[f->message_len] = 0;
	if (strncmp(text, name, n) != 0 || text[n] != ':') return 0;
	char *end;
	unsigned long line = strtoul(text + n + 1, &end, 10);
	if (end == text + n + 1 || end[0] != ':' || end[1] != ' ') return 0;
	f->line = (uint32_t)line;
	set_file(vm, chunk);
	set_message(vm, end + 2, strlen(end + 2));
	return 1;
}

static void take_place(pg_vm *vm) {
	if (take_from(vm, vm->chunk)) return;
	for (const pg_file *file = vm->files; file; file = file->next)
		if (take_from(vm, file->chunk)) return;
}

static void fail(pg_vm *vm, int kind, const char *message) {
	vm->fault.kind = kind;
	vm->fault.line = vm->fault.traceback_len = 0;
	vm->fault.file[0] = 0;
	set_message(vm, message, strlen(message));
}

/* note appends a line to the traceback; what does not fit is left out. */
static void note(pg_fault *f, const char *format, ...) {
	char line[256];
	va_list args;
	va_start(args, format);
	int n = vsnprintf(line, sizeof line, format, args);
	va_end(args);
	if (n < 0) return;
	if (n >= (int)sizeof line) n = sizeof line - 1;
	if (f->traceback_len + n > sizeof f->traceback) return;
	memcpy(f->traceback + f->traceback_len, line, n);
	f->traceback_len += n;
}

enum { TOP = 12, BOTTOM = 10 }; /* frames of a deep stack that are shown */

/* deep returns the number of frames, to within one, or 0 when there are few. Each
 * look at a level walks there, so the levels are halved. */
static int deep(lua_State *L) {
	lua_Debug ar;
	int there = 0, gone = 4 * (TOP + BOTTOM);
	if (!lua_getstack(L, gone, &ar)) return 0;
	while (lua_getstack(L, gone, &ar)) there = gone, gone *= 2;
	while (gone - there > 1) {
		int mid = (there + gone) / 2;
		if (lua_getstack(L, mid, &ar)) there = mid;
		else gone = mid;
	}
	return gone;
}

/* trace notes the script's own frames in one coroutine; ours are of no use to a reader. */
static void trace(lua_State *L, pg_vm *vm, int *shown) {
	lua_Debug ar;
	int depth = deep(L);
	for (int level = 0; lua_getstack(L, level, &ar); level++) {
		if (depth && level == TOP) {
			note(&vm->fault, "  ...\n");
			level = depth - BOTTOM;
			continue;
		}
		lua_getinfo(L, "Sln", &ar);
		if (*ar.source != '@') continue;
		/* A coroutine that failed has forgotten where its last function was. */
		if (ar.currentline < 0) ar.currentline = said(&vm->fault, ar.short_src);
		if (!vm->fault.line) {
			vm->fault.line = ar.currentline;
			set_file(vm, ar.source);
		}
		if ((*shown)++ > 40) return;
		if (ar.name)
			note(&vm->fault, "  %s:%d: in %s\n", ar.short_src, ar.currentline, ar.name);
		else if (strcmp(ar.what, "main") == 0)
			note(&vm->fault, "  %s:%d: in main chunk\n", ar.short_src, ar.currentline);
		else
			note(&vm->fault, "  %s:%d: in function at line %d\n", ar.short_src, ar.currentline, ar.linedefined);
	}
}

/* locate puts line and traceback of L and of those that resumed it into the fault. */
static void locate(lua_State *L, pg_vm *vm) {
	int shown = 0;
	vm->fault.line = vm->fault.traceback_len = 0;
	vm->fault.file[0] = 0;
	trace(L, vm, &shown);
	for (pg_frame *f = vm->frames; f; f = f->outer)
		if (f->L != L) trace(f->L, vm, &shown);
	if (L != vm->L) trace(vm->L, vm, &shown);
	if (vm->fault.traceback_len) vm->fault.traceback_len--; /* no newline at the end */
}

/* note_limit notes where the limit struck, the first time. */
static void note_limit(lua_State *L, pg_vm *vm) {
	uint32_t kind = vm->run.stop;
	if (vm->fault.kind == kind) return;
	vm->fault.kind = kind;
	locate(L, vm);
	set_message(vm, limit_message(kind), strlen(limit_message(kind)));
}

int pg_vm_raise(lua_State *L) {
	pg_vm *vm = pg_vm_of(L);
	note_limit(L, vm);
	lua_pushlightuserdata(L, vm);
	return lua_error(L);
}

/* LuaJIT, as we patch it, calls this before it throws an error that no message
 * handler sees, for want of memory or of stack: later the place is gone. */
void luaJIT_unhandled(lua_State *L);
void luaJIT_unhandled(lua_State *L) {
	pg_vm *vm = pg_vm_of(L);
	if (!vm->L) return;
	if (vm->run.stop) {
		note_limit(L, vm);
		return;
	}
	locate(L, vm);
	vm->fault.kind = PG_STACK;
	set_message(vm, "stack overflow", strlen("stack overflow"));
}

void pg_fault_strip(lua_State *L) {
	static const char ours[] = PG_PRELUDE ":";
	if (lua_type(L, -1) != LUA_TSTRING) return;
	const char *text = lua_tostring(L, -1);
	if (strncmp(text, ours, sizeof ours - 1) != 0) return;
	const char *rest = strstr(text, ": ");
	if (!rest) return;
	lua_pushstring(L, rest + 2);
	lua_remove(L, -2);
}

int pg_fault_handler(lua_State *L) {
	pg_vm *vm = pg_vm_of(L);
	if (vm->run.stop) {
		note_limit(L, vm);
		return 1;
	}
	int type = lua_type(L, 1);
	lua_settop(L, 1);
	if (type == LUA_TSTRING) {
		size_t len;
		pg_fault_strip(L);
		const char *text = lua_tolstring(L, -1, &len);
		set_message(vm, text, len);
	}
	locate(L, vm);
	vm->fault.kind = PG_ERROR;
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
		set_message(vm, text, snprintf(text, sizeof text, "(error object is a %s)", lua_typename(L, type)));
	}
	return 1;
}

static int says(const pg_fault *f, const char *text) {
	return f->message_len >= strlen(text) && memcmp(f->message, text, strlen(text)) == 0;
}

void pg_fault_settle(pg_vm *vm, int status) {
	pg_fault *f = &vm->fault;
	if (status == LUA_ERRMEM && !vm->run.stop) pg_vm_stop(vm, PG_MEMORY);
	if (vm->run.stop) {
		int placed = f->kind != PG_OK;
		if (placed) set_message(vm, limit_message(vm->run.stop), strlen(limit_message(vm->run.stop)));
		else fail(vm, vm->run.stop, limit_message(vm->run.stop));
		f->kind = vm->run.stop;
		vm->broken = vm->run.stop;
	} else if (f->kind == PG_OK) {
		fail(vm, PG_ERROR, "error in error handling");
	} else if (says(f, "stack overflow") || says(f, "C stack overflow")) {
		f->kind = PG_STACK;
	}
}

void pg_fault_syntax(lua_State *L, pg_vm *vm) {
	size_t len;
	fail(vm, PG_SYNTAX, "");
	const char *text = lua_tolstring(L, -1, &len);
	if (text) set_message(vm, text, len);
	take_place(vm);
}
