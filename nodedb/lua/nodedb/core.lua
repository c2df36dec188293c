-- Chooses the backend of a plain Lua: through the FFI on LuaJIT, else through the C API.
local native = require "nodedb.native"
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
