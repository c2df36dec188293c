rockspec_format = "3.0"
package = "nodedb"
version = "dev-1"
source = {
  url = "git+https://github.com/perigeedb/perigee.git",
}
description = {
  summary = "A hierarchical, transactional, embedded database for Lua",
  detailed = [[
    Nodes with subscripts, values and children, ordered as M orders them, on LMDB:
    transactions, exact increments, locks across processes, time to live. The module
    yottadb is for scripts that were written for lua-yottadb.

    Run "luarocks make" in this folder. It needs a C compiler, and LMDB as
    tools/lmdb/build.sh makes it: there, or in the folder that the environment variable
    LMDB_DIR names. Nothing is downloaded if that has run before.]],
  license = "Apache-2.0",
}
supported_platforms = { "linux" }
dependencies = { "lua >= 5.1, < 5.5" }
build = {
  type = "command",
  build_command = [[sh ./build.sh "$(LUA_INCDIR)" native.so]],
  install = {
    lua = {
      nodedb = "nodedb.lua",
      yottadb = "yottadb.lua",
      ["nodedb.core"] = "nodedb/core.lua",
      ["nodedb.face"] = "nodedb/face.lua",
      ["nodedb.ffi"] = "nodedb/ffi.lua",
      ["nodedb.strings"] = "nodedb/strings.lua",
    },
    lib = { ["nodedb.native"] = "native.so" },
  },
}
