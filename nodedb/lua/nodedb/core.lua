-- Chooses the backend of a plain Lua: the FFI on LuaJIT, otherwise the C API.
local native = require "nodedb.native"

-- In Lua 5.4 ipairs accepts any value and ignores __ipairs. It would ask a node for its subscripts
-- 1, 2, 3 without end.
if pcall(ipairs, io.stdout) and ipairs(setmetatable({}, {__ipairs = function() return true end})) ~= true then
  local plain_ipairs, getmetatable = ipairs, getmetatable
  function _G.ipairs(t, ...) -- luacheck: ignore 122
    local kind = type(t) == "userdata" and getmetatable(t)
    if kind == "nodedb.node" or kind == "yottadb.node" then
      error("nodedb: NDB_E_ARGUMENT: ipairs(" .. tostring(t) ..
        "): a node has endless subscripts; write: for subscript, value in node:values()", 2)
    end
    return plain_ipairs(t, ...)
  end
end

local has_ffi, ffi = pcall(require, "ffi")
if not (rawget(_G, "jit") and has_ffi) then return native end

local core = require "nodedb.ffi"(ffi, {
  addresses = native.addresses,
  session = native.session,
  proxy = native.proxy,
  codes = native.codes,
  collect = os.getenv "NODEDB_TEST_COLLECT" == "1" and collectgarbage or nil,
  functions = {open = native.open, sync = native.sync, wait = native.wait, stat = native.stat,
    backup = native.backup, check = native.check, compact = native.compact, now = native.now},
})

function core.close()
  core.detach()
  native.close()
end
return core
