-- The node database for Lua; see docs/reference/nodedb-lua.md.
return (require "nodedb.face"(require "nodedb.core", "nodedb.node"))
