// A part's environment is its family, which all parts of one document share:
// family[node] is the part of a node, so that it is one object each time it is
// read; family[-n] is the n-th table of the script's own that was put in.

#include <math.h>
#include <string.h>

#include "frontend.h"

part *part_at(lua_State *L, front *f, int index) {
	if (!lua_getmetatable(L, index)) return NULL;
	part *p = NULL;
	if (lua_topointer(L, -1) == f->part_meta) p = lua_touserdata(L, index);
	else if (f->compiled) p = proxy_part(L, f, index);
	lua_pop(L, 1);
	return p;
}

void part_family(lua_State *L, front *f, const part *p, int index) {
	if (proxy_is(f, p)) lua_rawgeti(L, LUA_REGISTRYINDEX, f->family);
	else lua_getfenv(L, index);
}

static part *alive(lua_State *L, front *f, part *p) {
	if (p == &f->past || (p->life && p->life != f->life))
		front_raise(L, "an event was used after its call of main has ended; keep its values instead");
	return p;
}

part *part_check(lua_State *L, front *f, int index) {
	part *p = part_at(L, f, index);
	if (!p) luaL_argerror(L, index, "document expected");
	return alive(L, f, p);
}

// self is part_check for a metamethod, which a script cannot call on anything else.
static part *self(lua_State *L, front *f) {
	part *p = lua_touserdata(L, 1);
	return alive(L, f, p ? p : part_at(L, f, 1));
}

void part_push(lua_State *L, front *f, doc *d, uint32_t node, uint32_t life, int family) {
	if (f->compiled && node < NEAR && d == f->event && life == f->life) {
		proxy_push(L, f, node);
		return;
	}
	lua_rawgeti(L, family, (int)node);
	part *p = lua_touserdata(L, -1);
	if (p && p->life == life) return;
	lua_pop(L, 1);
	p = lua_newuserdata(L, sizeof *p);
	*p = (part){d, node, life};
	lua_rawgeti(L, LUA_REGISTRYINDEX, f->part_ref);
	lua_setmetatable(L, -2);
	lua_pushvalue(L, family);
	lua_setfenv(L, -2);
	lua_pushvalue(L, -1);
	lua_rawseti(L, family, (int)node);
}

// part_value pushes what doc_read and friends found.
void part_value(lua_State *L, front *f, doc *d, uint32_t life, int family, int kind) {
	switch (kind) {
	case DOC_FALSE: lua_pushboolean(L, 0); break;
	case DOC_TRUE: lua_pushboolean(L, 1); break;
	case DOC_NUMBER: lua_pushnumber(L, d->num); break;
	case DOC_STRING: lua_pushlstring(L, d->str, d->str_len); break;
	case DOC_OBJECT: case DOC_ARRAY: part_push(L, f, d, d->got, life, family); break;
	case DOC_BIG: big_push(L, f, d->str, d->str_len); break;
	case DOC_FOREIGN: lua_rawgeti(L, family, -(int)d->num); break;
	default: lua_pushnil(L);
	}
}

static int is_object(const part *p) { return p->d->nodes[p->node].kind == DOC_OBJECT; }

static int part_index(lua_State *L) {
	front *f = front_of(L);
	part *p = self(L, f);
	int kind = DOC_MISSING, type = lua_type(L, 2);
	if (is_object(p)) {
		size_t len;
		if (type != LUA_TSTRING) return 0;
		const char *key = lua_tolstring(L, 2, &len);
		kind = f->api->read(p->d, p->node, key, len);
	} else if (type == LUA_TNUMBER) {
		kind = f->api->at(p->d, p->node, lua_tonumber(L, 2));
	}
	if (kind >= DOC_OBJECT) part_family(L, f, p, 1);
	part_value(L, f, p->d, p->life, lua_gettop(L), kind);
	return 1;
}

int front_error(lua_State *L, int fault) {
	switch (fault) {
	case DOC_OK: return 0;
	case DOC_TOO_DEEP: return front_raise(L, "the document is nested deeper than %d", DOC_MAX_DEPTH);
	default: // the memory that a document may take
		pg_vm_stop(pg_vm_of(L), PG_MEMORY);
		return pg_vm_raise(L);
	}
}

// copy_part makes a value of the part on top of the stack.
static uint32_t copy_part(lua_State *L, front *f, doc *d, int index) {
	doc_buf *b = front_scratch(f);
	int fault = DOC_OK;
	part_encode(L, f, index, b);
	uint32_t value = f->api->adopt(d, b->data, b->len, &fault);
	front_error(L, fault);
	return value;
}

// foreign_value keeps the script's own table until the document is written.
static uint32_t foreign_value(lua_State *L, front *f, doc *d, int index) {
	uint32_t value = f->api->foreign(d);
	if (!value) return 0;
	part_family(L, f, part_at(L, f, 1), 1);
	lua_pushvalue(L, index);
	lua_rawseti(L, -2, -(int)d->foreigns);
	lua_pop(L, 1);
	return value;
}

static void refuse(lua_State *L, int key, const char *what) {
	if (lua_type(L, key) == LUA_TSTRING) front_raise(L, "%s: %s", lua_tostring(L, key), what);
	front_raise(L, "element %d: %s", (int)lua_tonumber(L, key), what);
}

// make turns the Lua value at index into a value of d, for the document at 1.
static uint32_t make(lua_State *L, front *f, doc *d, int key, int index) {
	size_t len;
	const char *s;
	switch (lua_type(L, index)) {
	case LUA_TBOOLEAN: return f->api->literal(d, lua_toboolean(L, index) ? DOC_TRUE : DOC_FALSE);
	case LUA_TNUMBER: {
		double x = lua_tonumber(L, index);
		if (!isfinite(x)) refuse(L, key, isnan(x) ? "nan is no JSON number" : "inf is no JSON number");
		return f->api->number(d, x);
	}
	case LUA_TSTRING:
		s = lua_tolstring(L, index, &len);
		if (!f->api->utf8(s, len)) refuse(L, key, "the text is not valid UTF-8");
		return f->api->string(d, s, len);
	case LUA_TTABLE: return part_at(L, f, index) ? copy_part(L, f, d, index) : foreign_value(L, f, d, index);
	case LUA_TLIGHTUSERDATA:
		if (front_is_null(L, index)) return f->api->literal(d, DOC_NULL);
		break;
	case LUA_TUSERDATA:
		if ((s = big_text(L, f, index, &len))) return f->api->spelled(d, s, len);
		if (part_at(L, f, index)) return copy_part(L, f, d, index);
	}
	lua_pushfstring(L, "a %s cannot be written as JSON", luaL_typename(L, index));
	refuse(L, key, lua_tostring(L, -1));
	return 0;
}

static void bad_index(lua_State *L, int key, uint32_t len) {
	lua_pushvalue(L, key);
	const char *k = lua_tostring(L, -1);
	front_raise(L, "attempt to write element %s of an array of %d; an array can be written from 1 to %d",
		k ? k : luaL_typename(L, key), (int)len, (int)len + 1);
}

static int write_object(lua_State *L, front *f, part *p) {
	size_t len;
	if (lua_type(L, 2) != LUA_TSTRING) {
		lua_pushvalue(L, 2);
		const char *k = lua_tostring(L, -1);
		return front_raise(L, "the key of an object must be a string, not the %s %s", luaL_typename(L, 2), k ? k : "");
	}
	const char *key = lua_tolstring(L, 2, &len);
	if (lua_isnil(L, 3)) return front_error(L, f->api->remove(p->d, p->node, key, len));
	if (!f->api->utf8(key, len)) return front_raise(L, "the key is not valid UTF-8");
	uint32_t value = make(L, f, p->d, 2, 3);
	return front_error(L, f->api->put(p->d, p->node, key, len, value));
}

static int write_array(lua_State *L, front *f, part *p) {
	uint32_t len = f->api->length(p->d, p->node);
	double i = lua_type(L, 2) == LUA_TNUMBER ? lua_tonumber(L, 2) : 0;
	if (lua_isnil(L, 3) && i == len + 1.0) return 0;
	if (!(i >= 1 && i <= len + 1.0 && i == floor(i))) bad_index(L, 2, len);
	if (lua_isnil(L, 3)) {
		if (i == len) return front_error(L, f->api->remove_at(p->d, p->node, i));
		return front_error(L, f->api->put_at(p->d, p->node, i, f->api->literal(p->d, DOC_NULL)));
	}
	return front_error(L, f->api->put_at(p->d, p->node, i, make(L, f, p->d, 2, 3)));
}

static int part_newindex(lua_State *L) {
	front *f = front_of(L);
	part *p = self(L, f);
	return is_object(p) ? write_object(L, f, p) : write_array(L, f, p);
}

static int part_len(lua_State *L) {
	front *f = front_of(L);
	part *p = self(L, f);
	lua_pushinteger(L, is_object(p) ? 0 : f->api->length(p->d, p->node));
	return 1;
}

static int next_element(lua_State *L, front *f, part *p, double i) {
	uint32_t len = f->api->length(p->d, p->node);
	part_family(L, f, p, 1);
	int family = lua_gettop(L);
	for (i = i + 1; i <= len; i++) {
		int kind = f->api->at(p->d, p->node, i);
		if (kind <= DOC_NULL) continue;
		lua_pushnumber(L, i);
		part_value(L, f, p->d, p->life, family, kind);
		return 2;
	}
	lua_pushnil(L);
	return 1;
}

// next(document, key)
static int part_next(lua_State *L) {
	front *f = front_of(L);
	part *p = part_check(L, f, 1);
	lua_settop(L, 2);
	if (!is_object(p)) return next_element(L, f, p, lua_isnil(L, 2) ? 0 : luaL_checknumber(L, 2));
	uint32_t field = 0;
	if (!lua_isnil(L, 2)) {
		size_t len;
		const char *key = luaL_checklstring(L, 2, &len);
		field = f->api->find(p->d, p->node, key, len);
		if (!field) return front_raise(L, "invalid key to 'next'");
	}
	part_family(L, f, p, 1);
	while ((field = f->api->step(p->d, p->node, field))) {
		if (p->d->nodes[p->d->got].kind == DOC_NULL) continue;
		lua_pushlstring(L, p->d->str, p->d->str_len);
		part_value(L, f, p->d, p->life, 3, f->api->value(p->d, p->d->got));
		return 2;
	}
	lua_pushnil(L);
	return 1;
}

static int part_pairs(lua_State *L) {
	part_check(L, front_of(L), 1);
	lua_pushvalue(L, lua_upvalueindex(1));
	lua_pushvalue(L, 1);
	lua_pushnil(L);
	return 3;
}

// An array keeps its length, so ipairs does not end at a null.
static int inext(lua_State *L) {
	front *f = front_of(L);
	part *p = part_check(L, f, 1);
	double i = luaL_checknumber(L, 2) + 1;
	lua_settop(L, 2);
	if (is_object(p) || i > f->api->length(p->d, p->node)) return 0;
	lua_pushnumber(L, i);
	part_family(L, f, p, 1);
	part_value(L, f, p->d, p->life, 4, f->api->at(p->d, p->node, i));
	lua_remove(L, 4);
	return 2;
}

static int part_ipairs(lua_State *L) {
	part_check(L, front_of(L), 1);
	lua_pushvalue(L, lua_upvalueindex(1));
	lua_pushvalue(L, 1);
	lua_pushinteger(L, 0);
	return 3;
}

static int part_tostring(lua_State *L) {
	lua_pushfstring(L, "table: %p", lua_topointer(L, 1));
	return 1;
}

static int checked_array(lua_State *L, front *f, part **p) {
	*p = part_check(L, f, 1);
	if (is_object(*p)) front_raise(L, "an object of JSON is no list");
	return (int)f->api->length((*p)->d, (*p)->node);
}

// insert(array, [index,] value)
static int part_insert(lua_State *L) {
	front *f = front_of(L);
	part *p;
	int len = checked_array(L, f, &p);
	if (lua_gettop(L) == 2) {
		lua_pushinteger(L, len + 1);
		lua_insert(L, 2);
	}
	double i = luaL_checknumber(L, 2);
	if (!(i >= 1 && i <= len + 1 && i == floor(i))) bad_index(L, 2, (uint32_t)len);
	luaL_checkany(L, 3);
	uint32_t value = lua_isnil(L, 3) ? f->api->literal(p->d, DOC_NULL) : make(L, f, p->d, 2, 3);
	return front_error(L, f->api->insert(p->d, p->node, i, value));
}

// remove(array, [index])
static int part_remove(lua_State *L) {
	front *f = front_of(L);
	part *p;
	int len = checked_array(L, f, &p);
	double i = luaL_optnumber(L, 2, len);
	if (!(i >= 1 && i <= len && i == floor(i))) return 0;
	lua_settop(L, 1);
	part_family(L, f, p, 1);
	part_value(L, f, p->d, p->life, 2, f->api->at(p->d, p->node, i));
	front_error(L, f->api->remove_at(p->d, p->node, i));
	return 1;
}

typedef struct { lua_State *L; doc *d; } encoding;

// encode_foreign writes a table of the script's own. The family is on top of the
// stack, see part_encode.
static int encode_foreign(void *context, uint32_t number, doc_buf *out) {
	encoding *e = context;
	lua_State *L = e->L;
	front *f = front_of(L);
	const doc_node *field = &e->d->nodes[e->d->field];
	if (f->depth == FRONT_DEPTH) front_error(L, DOC_TOO_DEEP);
	f->path[f->depth++] = (front_step){.key = field->key, .key_len = field->key_len};
	luaL_checkstack(L, 8, "document too deep");
	lua_rawgeti(L, lua_gettop(L), -(int)number);
	front_encode(L, f, lua_gettop(L), out);
	lua_pop(L, 1);
	f->depth--;
	return DOC_OK;
}

void part_encode(lua_State *L, front *f, int index, doc_buf *out) {
	part *p = part_check(L, f, index);
	encoding e = {L, p->d};
	void *outer = p->d->context;
	p->d->encode_foreign = encode_foreign;
	p->d->context = &e;
	luaL_checkstack(L, 8, "document too deep");
	part_family(L, f, p, index);
	int fault = f->api->encode(p->d, p->node, out);
	lua_pop(L, 1);
	p->d->context = outer;
	front_check(L, f, out, fault);
}

static void iterator(lua_State *L, const char *name, lua_CFunction f, lua_CFunction step) {
	lua_pushcfunction(L, step);
	lua_pushcclosure(L, f, 1);
	lua_setfield(L, -2, name);
}

// is(value)
static int part_is(lua_State *L) {
	lua_pushboolean(L, part_at(L, front_of(L), 1) != NULL);
	return 1;
}

// part_open leaves a table of the functions that the prelude builds on.
void part_open(lua_State *L, front *f) {
	static const luaL_Reg meta[] = {
		{"__index", part_index}, {"__newindex", part_newindex}, {"__len", part_len},
		{"__tostring", part_tostring}, {NULL, NULL}};
	static const luaL_Reg functions[] = {
		{"is", part_is}, {"next", part_next}, {"read", part_index}, {"write", part_newindex},
		{"length", part_len}, {"insert", part_insert}, {"remove", part_remove}, {NULL, NULL}};
	lua_newtable(L);
	luaL_register(L, NULL, meta);
	iterator(L, "__pairs", part_pairs, part_next);
	iterator(L, "__ipairs", part_ipairs, inext);
	lua_pushboolean(L, 0);
	lua_setfield(L, -2, "__metatable");
	f->part_meta = lua_topointer(L, -1);
	f->part_ref = luaL_ref(L, LUA_REGISTRYINDEX);
	lua_newtable(L);
	f->family = luaL_ref(L, LUA_REGISTRYINDEX);
	lua_newtable(L);
	luaL_register(L, NULL, functions);
	iterator(L, "pairs", part_pairs, part_next);
	iterator(L, "ipairs", part_ipairs, inext);
}
