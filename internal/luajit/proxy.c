// What the compiled front end calls through FFI: nothing here may touch Lua.

#include "frontend.h"

static int put(front *f, const char *key, size_t len, uint32_t value) {
	return value ? f->api->put(f->event, 0, key, len, value) : DOC_NO_MEMORY;
}

static int put_number(front *f, const char *key, size_t len, double x) {
	if (x - x != 0 || !f->api->utf8(key, len)) return 1;
	return put(f, key, len, f->api->number(f->event, x));
}

static int put_string(front *f, const char *key, size_t len, const char *s, size_t n) {
	if (!f->api->utf8(key, len) || !f->api->utf8(s, n)) return 1;
	return put(f, key, len, f->api->string(f->event, s, n));
}

static int put_boolean(front *f, const char *key, size_t len, int yes) {
	if (!f->api->utf8(key, len)) return 1;
	return put(f, key, len, f->api->literal(f->event, yes ? DOC_TRUE : DOC_FALSE));
}

// calls is declared once more in frontend.lua.
typedef struct calls {
	int (*next)(front *);
	int (*sent)(front *);
	void (*dropped)(front *);
	int (*read)(doc *, uint32_t, const char *, size_t);
	int (*removed)(doc *, uint32_t, const char *, size_t);
	int (*put_number)(front *, const char *, size_t, double);
	int (*put_string)(front *, const char *, size_t, const char *, size_t);
	int (*put_boolean)(front *, const char *, size_t, int);
	int (*sent_string)(front *, const char *, size_t);
	int (*sent_number)(front *, double);
} calls;

// adopt(meta, current) names the metatable of the event's table, and the function
// that has that table as its upvalue.
static int adopt(lua_State *L) {
	front *f = front_of(L);
	f->proxy_meta = lua_topointer(L, 1);
	lua_settop(L, 2);
	f->current = luaL_ref(L, LUA_REGISTRYINDEX);
	return 0;
}

// proxy_open pushes what frontend.lua needs for the compiled front end.
void proxy_open(lua_State *L, front *f) {
	static const calls functions = {
		front_next, front_sent, front_dropped, NULL, NULL, put_number, put_string, put_boolean,
		front_sent_string, front_sent_number};
	calls *c = lua_newuserdata(L, sizeof *c); // kept by frontend.lua
	*c = functions;
	c->read = f->api->read;
	c->removed = f->api->remove;
	lua_createtable(L, 0, 4);
	lua_insert(L, -2);
	lua_setfield(L, -2, "calls");
	lua_pushlightuserdata(L, f);
	lua_setfield(L, -2, "front");
	lua_pushlightuserdata(L, f->event);
	lua_setfield(L, -2, "event");
	lua_pushcfunction(L, adopt);
	lua_setfield(L, -2, "adopt");
}
