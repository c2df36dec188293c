-- The module yottadb: the face over a backend that gives all values and subscripts as
-- strings, numbers as M spells them, with the names and codes that scripts for lua-yottadb
-- use.
local error, pairs, setmetatable, tonumber, type = error, pairs, setmetatable, tonumber, type
local format, match = string.format, string.match

-- Codes of YottaDB's C API.
local INT_MAX = 2147483647
local CODES = {
  YDB_TP_RESTART = INT_MAX - 1, YDB_TP_ROLLBACK = INT_MAX - 2, YDB_NODE_END = INT_MAX - 3,
  YDB_LOCK_TIMEOUT = INT_MAX - 4, YDB_NOTOK = INT_MAX - 5, YDB_OK = 0,
  YDB_DATA_UNDEF = 0, YDB_DATA_VALUE_NODESC = 1, YDB_DATA_NOVALUE_DESC = 10, YDB_DATA_VALUE_DESC = 11,
  YDB_MAX_SUBS = 31, YDB_MAX_IDENT = 31,
}

return function(new_face, core)
  local function text(v)
    local kind = type(v)
    if kind == "number" then
      if v % 1 == 0 and v > -1e15 and v < 1e15 then return format("%d", v) end
      return core.zwrite(v)
    end
    if kind == "boolean" then return v and "1" or "0" end
    return v
  end

  local function texts(first, ...)
    if first == nil then return end
    return text(first), texts(...)
  end

  local strings = {}
  for name, f in pairs(core) do strings[name] = f end

  function strings.get(key) return text(core.get(key)) end
  function strings.increment(key, by) return text(core.increment(key, by)) end
  function strings.decode(key) return texts(core.decode(key)) end
  function strings.zread(from) return text(core.zread(from)) end
  function strings.next_sibling(key, reverse) return text(core.next_sibling(key, reverse)) end

  function strings.set(key, value)
    if type(value) == "boolean" then
      error("nodedb: NDB_E_ARGUMENT: a value must be a string or a number, got a boolean", 0)
    end
    return core.set(key, value)
  end

  function strings.set_child(key, subscript, value)
    if type(value) == "boolean" then return strings.set(key, value) end -- which refuses it
    return core.set_child(key, subscript, value)
  end

  function strings.siblings(...)
    local following = core.siblings(...)
    return function()
      local subscript, value = following()
      return text(subscript), text(value)
    end
  end

  function strings.descendants(...)
    local following = core.descendants(...)
    return function()
      local key, value = following()
      return key, text(value)
    end
  end

  -- What the function of a transaction returns: nothing or YDB_OK to commit, one of two codes, or
  -- the code of an error. Other results are the caller's.
  local function outcome(result)
    if type(result) ~= "number" or result == CODES.YDB_OK then return nil end
    if result == CODES.YDB_TP_RESTART then return "restart" end
    if result == CODES.YDB_TP_ROLLBACK then return "rollback" end
    return format("YDB Error: %s: the function of a transaction returned this code; its changes were rolled back", result)
  end

  local ydb = new_face(strings, "yottadb.node", {
    outcome = outcome,
    methods = function(methods, KEY)
      methods.delete_tree = methods.kill
      function methods.delete_node(self) return core.kill_value(self[KEY]) end
    end,
  })
  for name, code in pairs(CODES) do ydb[name] = code end

  local ALIASES = {[ydb.NDB_TP_RESTART] = CODES.YDB_TP_RESTART, [ydb.NDB_TP_ROLLBACK] = CODES.YDB_TP_ROLLBACK,
    [core.codes.NDB_E_TIMEOUT] = CODES.YDB_LOCK_TIMEOUT}
  local get_error_code = ydb.get_error_code
  function ydb.get_error_code(message)
    local code = get_error_code(message)
    if code == nil and type(message) == "string" then return tonumber(match(message, "YDB Error: (-?%d+):")) end
    return ALIASES[code] or code
  end

  ydb.delete_tree = ydb.kill
  function ydb.delete_node(...)
    ydb.node(...).__ = nil
  end
  ydb.key = ydb.node

  -- There is no M to initialize, and it handles no signals.
  function ydb.init() end
  function ydb.block_M_signals() end
  function ydb.ydb_eintr_handler() return 0 end

  function ydb.require()
    error("nodedb: NDB_E_ARGUMENT: require: there is no M here to call into; write the routine in Lua", 0)
  end

  return setmetatable(ydb, {
    __index = function(_, name)
      if type(name) == "string" and name:sub(1, 8) == "YDB_ERR_" then
        error("nodedb: NDB_E_ARGUMENT: there are no codes of M's errors; compare get_error_code with " ..
          "the codes NDB_E_… instead of " .. name, 2)
      end
    end,
  })
end
