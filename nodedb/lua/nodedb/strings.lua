-- The module yottadb, with the names and codes of lua-yottadb: the functions of face.lua over a
-- backend that returns all values and subscripts as strings, with numbers spelled as M spells them.
local error, pairs, select, setmetatable, tonumber, type = error, pairs, select, setmetatable, tonumber, type
local concat, format, match, unpack = table.concat, string.format, string.match, table.unpack or unpack

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
    if type(value) == "boolean" then return strings.set(key, value) end -- raises an error
    return core.set_child(key, subscript, value)
  end

  -- Values are equal if their texts are: a script has read a number as text.
  function strings.compare_and_set(key, expected, value)
    if type(value) == "boolean" then return strings.set(key, value) end
    if expected == nil then return core.compare_and_set(key, nil, value) end
    local before
    while true do
      local now = core.get(key)
      if now == nil or now == before or text(now) ~= text(expected) then return false end
      if core.compare_and_set(key, now, value) then return true end -- otherwise it was changed since
      before = now
    end
  end

  function strings.set_new(key, value)
    if type(value) == "boolean" then return strings.set(key, value) end
    return core.set_new(key, value)
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

  -- outcome interprets the result of a transaction's function: nothing or YDB_OK commit, two codes
  -- restart or roll back, other codes of the API are errors. The caller gets any other result.
  local function outcome(result)
    if type(result) ~= "number" or result == CODES.YDB_OK then return nil end
    if result == CODES.YDB_TP_RESTART then return "restart" end
    if result == CODES.YDB_TP_ROLLBACK then return "rollback" end
    return format("YDB Error: %s: the function of a transaction returned this code; its changes were rolled back",
      result)
  end

  -- The old objects of key(): they have fields in place of methods, and iterate over siblings where
  -- nodes iterate over subscripts.
  local function add_keys(new, ydb)
    local moved = setmetatable({}, {__mode = "k"}) -- the current sibling of subscript_next and subscript_previous

    -- sibling_of returns the sibling of a node with a given subscript or name.
    local function sibling_of(node, name)
      local path = node:__subsarray()
      if #path == 0 then return ydb.node(name) end
      path[#path] = name
      return ydb.node(node:__varname(), path)
    end

    local function move(step, key, reset)
      local from = not reset and moved[key] or ydb.node(key)
      local name = step(from)
      if name ~= nil then moved[key] = sibling_of(from, name) end
      return name
    end

    local function method(name) return function(key) return ydb.node(key)["__" .. name](ydb.node(key)) end end

    ydb.key = new({
      delete_node = function(key) return ydb.delete_node(key) end,
      subscript_next = function(key, reset) return move(ydb.subscript_next, key, reset) end,
      subscript_previous = function(key, reset) return move(ydb.subscript_previous, key, reset) end,
      subscripts = function(key, reverse) return ydb.subscripts(key, reverse or false) end,
    }, {
      value = method "get", name = method "name", data = method "data", has_value = method "has_value",
      has_tree = method "has_tree", __varname = method "varname", __subsarray = method "subsarray",
    }, {
      value = function(key, value) key.__ = value end,
    }, function(key) moved[key] = nil end)
  end

  local ydb = new_face(strings, "yottadb.node", {
    outcome = outcome,
    delete = core.kill_value,
    filters_root = true,
    family = add_keys,
    methods = function(methods, KEY)
      methods.delete_tree = methods.kill
      function methods.delete_node(self) return core.kill_value(self[KEY]) end
      for _, name in pairs {"lock", "lock_incr", "lock_decr", "grab", "release"} do
        local method = methods[name]
        methods[name] = function(...)
          method(...)
          return 0
        end
      end
      -- Metamethods need two more underscores: node:____tostring().
      function methods.__tostring(self) return core.zwrite_key(self[KEY]) end
      function methods.__repr(self)
        local path = {core.decode(self[KEY])}
        for i = 1, #path do path[i] = format("%q", text(path[i])) end
        return "yottadb.node(" .. concat(path, ", ") .. ")"
      end
      function methods.__add(self, by) return self + by end
      function methods.__sub(self, by) return self - by end
      methods.__pairs = methods.pairs
    end,
  })
  ydb._VERSION = "3.0" -- the version of lua-yottadb whose interface this is
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
  function ydb.delete_node(...) ydb.node(...).__ = nil end

  -- These functions return a value in lua-yottadb.
  local set = ydb.set
  function ydb.set(...)
    set(...)
    return (select(-1, ...))
  end
  for _, name in pairs {"lock", "lock_incr", "lock_decr", "grab", "release"} do
    local f = ydb[name]
    ydb[name] = function(...)
      f(...)
      return 0
    end
  end

  -- dump(node, {subscripts} [, lines]), or dump(node, subscripts...)
  function ydb.dump(first, second, ...)
    if second == nil then return ydb.node(first):__dump(...) end
    if type(second) == "table" then return ydb.node(first, second):__dump(...) end
    return ydb.node(first, second, ...):__dump()
  end

  -- nodes(name [, subscripts] [, reverse]): the paths of the nodes that follow, as tables.
  function ydb.nodes(first, ...)
    local path, count, reverse = {}, select("#", ...), false
    if count > 0 and type((select(count, ...))) ~= "table" then
      reverse = select(count, ...)
      count = count - 1
    end
    if count > 0 then
      path = ydb.node(first, unpack({...}, 1, count)):__subsarray()
    end
    local step, whole = reverse and ydb.node_previous or ydb.node_next, count == 0
    return function()
      if not whole then
        path = path and step(first, path)
        return path
      end
      whole, path = false, nil -- the first of all nodes
      for node in ydb.node(first):__walk {reverse = reverse, limit = 1} do path = node:__subsarray() end
      return path
    end
  end

  -- There is no M engine to initialize.
  function ydb.init() end
  function ydb.block_M_signals() end
  function ydb.ydb_eintr_handler() return 0 end

  function ydb.require()
    error("nodedb: NDB_E_ARGUMENT: require: M routines cannot be called; write the routine in Lua", 0)
  end

  return setmetatable(ydb, {
    __index = function(_, name)
      if type(name) == "string" and name:sub(1, 8) == "YDB_ERR_" then
        error("nodedb: NDB_E_ARGUMENT: error codes of M are not supported; compare get_error_code with " ..
          "a code NDB_E_… instead of " .. name, 2)
      end
    end,
  })
end
