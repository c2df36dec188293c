// The node database as an extension of the engine's LuaJIT.

#ifndef NODEDB_LUA_EXTENSION_H
#define NODEDB_LUA_EXTENSION_H

#include "../../internal/luajit/extension/extension.h"
#include "../functions.h"

// ndb_extension_new returns an extension for one engine, or NULL if memory is exhausted. The store
// must stay open until the engine has closed the extension. Without a store, sessions are attached.
plua_extension *ndb_extension_new(const ndb_functions *functions, ndb_store *store);

#endif
