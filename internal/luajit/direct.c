// Functions of Go that do not wait, called from C: cheaper than a yield, and their
// time is the script's. A function that waited here would hold a thread.

#include "frontend.h"

// perigee_direct is in direct.go. It returns whether there is an answer.
extern int perigee_direct(void *engine);

void direct_answer(front *f, const char *data, size_t len) {
	f->request.len = 0;
	int fault = f->api->buf_add(&f->request, data, len);
	f->answer = fault ? NULL : f->request.data;
	f->answer_len = fault ? 0 : len;
}

// result() returns what the function has returned, or raises its error.
static int result(lua_State *L) {
	front *f = front_of(L);
	PG_CHECK(L, f->vm);
	return f->answer ? call_answer(L) : 0;
}

static int direct(lua_State *L) {
	front *f = front_of(L);
	f->request.len = 0;
	if (lua_gettop(L) > 0) call_values(L);
	f->function = (uint32_t)lua_tointeger(L, lua_upvalueindex(1));
	if (last_of_call(L, f, 0)) return 0;
	return perigee_direct(f->engine) || f->vm->run.stop ? result(L) : 0;
}

// direct_new(number) makes what calls a function.
static int direct_new(lua_State *L) {
	lua_settop(L, 1);
	lua_pushcclosure(L, direct, 1);
	return 1;
}

// direct_open adds what frontend.lua needs to the table on the stack.
void direct_open(lua_State *L) {
	lua_pushcfunction(L, direct_new);
	lua_setfield(L, -2, "direct");
}
