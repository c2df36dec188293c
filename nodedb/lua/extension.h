// The node database as an extension of the engine's LuaJIT.

#ifndef NODEDB_LUA_EXTENSION_H
#define NODEDB_LUA_EXTENSION_H

#include "../../internal/luajit/extension/extension.h"
#include "../functions.h"

// ndb_extension_new returns an extension for one engine, or NULL if memory is exhausted. The store
// must stay open until the engine has closed the extension. Without a store, sessions are attached.
plua_extension *ndb_extension_new(const ndb_functions *functions, ndb_store *store);

// ndb_extension_read lets the scripts of an extension that attaches sessions read another state by
// its name. Sessions are attached in the order of the calls. A snapshot is renewed at the begin of an
// event once it is renew_ms old. It returns 0 if memory is exhausted. Call it before the engine has
// the extension.
int ndb_extension_read(plua_extension *x, const char *name, int64_t renew_ms);
void ndb_extension_free(plua_extension *x); // one that no engine has

#endif
