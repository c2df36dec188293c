// Tables that stand for the event and what is nested in it, for code that is
// compiled. They are empty and fresh for each event; their metamethods, in
// frontend.lua, come here through FFI: what that calls may not touch Lua.
//
// made[node] is the table of a node, and born[node] the life of the event that it
// was made for; made[0] is the event's own. Its metatable is metas[node], which holds the node at NODE, and at
// OWNER what no script has.

#include "frontend.h"

enum { NODE = 1, OWNER = 2 };

static int is_array(const front *f, uint32_t node) { return f->event->nodes[node].kind == DOC_ARRAY; }

static int element(front *f, uint32_t node, double i) {
	return is_array(f, node) ? f->api->at(f->event, node, i) : DOC_MISSING;
}

static uint32_t length(front *f, uint32_t node) {
	return is_array(f, node) ? f->api->length(f->event, node) : 0;
}

// calls is declared once more in frontend.lua.
typedef struct calls {
	int (*next)(front *);
	int (*sent)(front *);
	void (*dropped)(front *);
	int (*read)(doc *, uint32_t, const char *, size_t);
	int (*element)(front *, uint32_t, double);
	uint32_t (*length)(front *, uint32_t);
	int (*removed)(doc *, uint32_t, const char *, size_t);
	int (*set_number)(doc *, uint32_t, const char *, size_t, double);
	int (*set_string)(doc *, uint32_t, const char *, size_t, const char *, size_t);
	int (*set_literal)(doc *, uint32_t, const char *, size_t, int);
	int (*sent_string)(front *, const char *, size_t);
	int (*sent_number)(front *, double);
	int (*find)(quick *, const char *, size_t, const char *, size_t, double);
} calls;

static void push_at(lua_State *L, int table, uint32_t node) {
	lua_rawgeti(L, LUA_REGISTRYINDEX, table);
	lua_rawgeti(L, -1, (int)node);
	lua_remove(L, -2);
}

// push_current pushes the table of a node, and tells whether it is of the event
// that runs.
static int push_current(lua_State *L, front *f, uint32_t node) {
	push_at(L, f->born, node);
	int current = node == 0 || lua_tonumber(L, -1) == f->life;
	lua_pop(L, 1);
	push_at(L, f->made, node);
	return current;
}

part *proxy_part(lua_State *L, front *f, int index) {
	lua_rawgeti(L, -1, OWNER);
	lua_rawgeti(L, -2, NODE);
	int ours = lua_touserdata(L, -2) == f;
	uint32_t node = (uint32_t)lua_tointeger(L, -1);
	lua_pop(L, 2);
	if (!ours) return NULL;
	int current = push_current(L, f, node) && lua_topointer(L, -1) == lua_topointer(L, index);
	lua_pop(L, 1);
	if (!current) return &f->past;
	f->near[node] = (part){f->event, node, f->life};
	return &f->near[node];
}

int proxy_is(const front *f, const part *p) { return p >= f->near && p < f->near + NEAR; }

// keep puts the value on top of the stack into a table.
static void keep(lua_State *L, int table, uint32_t node) {
	lua_rawgeti(L, LUA_REGISTRYINDEX, table);
	lua_insert(L, -2);
	lua_rawseti(L, -2, (int)node);
	lua_pop(L, 1);
}

static void push_meta(lua_State *L, front *f, uint32_t node) {
	push_at(L, f->metas, node);
	if (!lua_isnil(L, -1)) return;
	lua_pop(L, 1);
	lua_rawgeti(L, LUA_REGISTRYINDEX, f->meta_of);
	lua_pushinteger(L, (int)node);
	lua_call(L, 1, 1);
}

void proxy_push(lua_State *L, front *f, uint32_t node) {
	if (push_current(L, f, node)) return;
	lua_pop(L, 1);
	lua_newtable(L);
	push_meta(L, f, node);
	lua_setmetatable(L, -2);
	lua_pushvalue(L, -1);
	keep(L, f->made, node);
	lua_pushnumber(L, f->life);
	keep(L, f->born, node);
}

// by_node sets a field of the table on top of the stack to a table by node, and
// returns a reference to that.
static int by_node(lua_State *L, const char *name) {
	lua_createtable(L, NEAR, 0);
	lua_pushvalue(L, -1);
	lua_setfield(L, -3, name);
	return luaL_ref(L, LUA_REGISTRYINDEX);
}

static void address(lua_State *L, const char *name, void *p) {
	lua_pushlightuserdata(L, p);
	lua_setfield(L, -2, name);
}

// adopt(function) names the one that makes metatables.
static int adopt(lua_State *L) {
	lua_settop(L, 1);
	front_of(L)->meta_of = luaL_ref(L, LUA_REGISTRYINDEX);
	return 0;
}

// proxy_open pushes what frontend.lua needs for the compiled front end.
void proxy_open(lua_State *L, front *f) {
	static const calls functions = {
		front_next, front_sent, front_dropped, NULL, element, length, NULL, NULL, NULL, NULL,
		front_sent_string, front_sent_number, quick_find};
	lua_newtable(L);
	calls *c = lua_newuserdata(L, sizeof *c); // kept by frontend.lua
	*c = functions;
	c->read = f->api->read;
	c->removed = f->api->remove;
	c->set_number = f->api->set_number;
	c->set_string = f->api->set_string;
	c->set_literal = f->api->set_literal;
	lua_setfield(L, -2, "calls");
	address(L, "front", f);
	address(L, "event", f->event);
	address(L, "life", &f->life);
	address(L, "quick", f->quick);
	lua_pushcfunction(L, adopt);
	lua_setfield(L, -2, "adopt");
	f->made = by_node(L, "made");
	f->born = by_node(L, "born");
	f->metas = by_node(L, "metas");
}
