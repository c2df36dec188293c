/* asan.c: a LuaJIT that runs a script, with the module nodedb.native linked in. AddressSanitizer
 * must be part of the program, not only of a shared object that it loads. */
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <stdio.h>

int luaopen_nodedb_native(lua_State *L);

int main(int argc, char **argv) {
	lua_State *L = luaL_newstate();
	if (argc < 2 || !L) {
		fprintf(stderr, "usage: %s SCRIPT [ARGUMENT...]\n", argv[0]);
		return 2;
	}
	luaL_openlibs(L);
	lua_getglobal(L, "package");
	lua_getfield(L, -1, "preload");
	lua_pushcfunction(L, luaopen_nodedb_native);
	lua_setfield(L, -2, "nodedb.native");
	lua_settop(L, 0);
	lua_newtable(L); /* arg, as in the standard interpreter */
	for (int i = 0; i < argc; i++) {
		lua_pushstring(L, argv[i]);
		lua_rawseti(L, -2, i - 1);
	}
	lua_setglobal(L, "arg");
	int failed = luaL_loadfile(L, argv[1]);
	for (int i = 2; !failed && i < argc; i++) lua_pushstring(L, argv[i]);
	if (failed || lua_pcall(L, argc - 2, 0, 0)) {
		fprintf(stderr, "%s: %s\n", argv[0], lua_tostring(L, -1));
		failed = 1;
	}
	lua_close(L);
	return failed;
}
