-- The node database with the interface of lua-yottadb, for scripts written for it; see
-- docs/howto/from-lua-yottadb-or-m.md.
return (require "nodedb.strings"(require "nodedb.face", require "nodedb.core"))
