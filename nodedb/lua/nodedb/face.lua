-- The nodes, functions and transactions that scripts use, over a backend.
--
-- A backend is a table of functions over encoded paths (keys, which are strings) and plain
-- Lua values: native.c for Lua 5.1 to 5.4, ffi.lua for LuaJIT. It raises errors of the form
-- "nodedb: CODE: text".
--
-- A node is an empty userdata with a metatable of its own, whose __index is the table of its
-- children. So a repeated path costs one table lookup and no call, and assignments of a script
-- cannot hide a child. The children are weak values; each keeps its parent alive, as a key of its
-- own table. So the collector frees unused nodes, and a path gives the same node again while a
-- script holds the node or one below it. Under keys that scripts cannot have, the table of children
-- also contains the key of the node (weak tables never drop strings) and the node itself.

local collectgarbage, error, getmetatable, next, pcall, rawget, select, setmetatable, tostring, type =
  collectgarbage, error, getmetatable, next, pcall, rawget, select, setmetatable, tostring, type
local running, status = coroutine.running, coroutine.status
local byte, concat, format, gmatch, match, strfind, strsub =
  string.byte, table.concat, string.format, string.gmatch, string.match, string.find, string.sub
local sort, unpack = table.sort, table.unpack or unpack

-- Flags of iterations, from nodedb.h.
local SELF_TOO, REVERSE, VALUES = 2, 4, 8

local function pack(...) return {n = select("#", ...), ...} end

local function fail(text, ...)
  error("nodedb: NDB_E_ARGUMENT: " .. format(text, ...), 0)
end

-- described formats an invalid argument for an error message.
local function described(v)
  local kind = type(v)
  if kind == "string" then return format("%q", #v > 40 and strsub(v, 1, 40) .. "…" or v) end
  if kind == "number" or kind == "boolean" then return tostring(v) end
  if v == nil then return "nil" end
  return "a " .. kind
end

local function is_reserved(name)
  return type(name) == "string" and byte(name, 1) == 95 and byte(name, 2) == 95
end

-- milliseconds converts an argument in seconds to whole milliseconds; nil to without.
local function milliseconds(what, seconds, without)
  if seconds == nil then return without end
  if type(seconds) ~= "number" or not (seconds >= 0) then
    fail("%s must be a number of seconds, 0 or more, got %s", what, described(seconds))
  end
  if seconds > 1e12 then return without end
  local ms = seconds * 1000
  return ms - ms % 1
end

-- Codes of errors that transactions raise; the core does not know them.
local TRANSACTION_CODES = {NDB_TP_RESTART = -101, NDB_TP_ROLLBACK = -102, NDB_TP_LIMIT = -103}

local RESTARTED = "nodedb: NDB_TP_RESTART: the transaction is run again"
local ROLLED_BACK = "nodedb: NDB_TP_ROLLBACK: the transaction was rolled back"

-- new_transactions returns the functions that begin and end transactions of a backend. All modules
-- over the backend share them. A transaction belongs to the coroutine that began it, and to the
-- coroutines that this one resumes meanwhile. While it is suspended, nodes cannot be used, until
-- the transaction exceeds its time limit or nothing can resume the coroutine any more.
--
-- The main program is never suspended, so its transactions need no check. For transactions of other
-- coroutines the backend calls check before each use.
local function new_transactions(core)
  local transactions = {restarts = 1000, seconds = 60} -- the limits
  local ids, last_id, top = {}, 0, 0                -- by level: the transaction's id; the highest level
  local owned, began = {}, {}                       -- by level: began in a coroutine; the time of begin
  local owners = setmetatable({}, {__mode = "v"})   -- by level: that coroutine
  local lost = setmetatable({}, {__mode = "k"})     -- coroutines whose open transaction was rolled back
  local guarded = false

  -- current returns the running coroutine, nil in the main program.
  local function current()
    local coroutine, is_main = running()
    return not is_main and coroutine or nil
  end

  -- unwind rolls transactions back until level remains.
  local function unwind(level)
    local now = core.level()
    while now > level do
      local ok, problem = pcall(core.rollback)
      local after = core.level()
      if after >= now then error(ok and "nodedb: NDB_E_LEVEL: the transaction cannot be rolled back" or problem, 0) end
      now = after
    end
  end

  -- set_level records the number of open transactions. It marks suspended coroutines whose
  -- transaction has ended as lost, so that they do not take a later transaction for theirs; if the
  -- host has ended transactions, it marks all their coroutines.
  local check
  local function set_level(level, by_host)
    while top > level do
      local owner = owned[top] and owners[top]
      if owner and (by_host or status(owner) == "suspended") then lost[owner] = true end
      if owner then owners[top] = nil end
      ids[top], owned[top] = false, false
      top = top - 1
    end
    top = level
    local needed = level > 0 and owned[level] or next(lost) ~= nil
    if needed ~= guarded then
      core.guard(needed and check or nil)
      guarded = needed
    end
  end

  -- may_be_ended reports whether the transaction of a suspended coroutine has exceeded its time
  -- limit, or nothing can resume the coroutine any more.
  local function may_be_ended(level)
    if core.now() - began[level] > transactions.seconds * 1000 then return true end
    if not collectgarbage then return false end
    collectgarbage()
    collectgarbage()
    return owners[level] == nil
  end

  -- Separate functions, since a coroutine in a local of check would not be collected.
  local function current_is_lost()
    local thread = current()
    return thread and lost[thread]
  end

  local function owner_state(level)
    local owner = owners[level]
    return owner and status(owner)
  end

  -- check raises an error if the innermost transaction belongs to a suspended coroutine, or if the
  -- running coroutine has lost its transaction.
  function check()
    local level = core.level()
    set_level(level, true)
    if current_is_lost() then
      error("nodedb: NDB_E_LEVEL: the transaction of this coroutine was rolled back while it was suspended", 0)
    end
    while level > 0 and owned[level] do
      local state = owner_state(level)
      if state == "running" or state == "normal" then return end
      if state == "suspended" and not may_be_ended(level) then
        error("nodedb: NDB_E_LEVEL: a suspended coroutine has a transaction open: resume it until its " ..
          "transaction has ended; the transaction is rolled back when nothing can resume the coroutine any " ..
          "more, or at its time limit", 0)
      end
      unwind(level - 1)
      level = core.level()
      set_level(level)
    end
  end

  -- begin returns the level and the id of a new transaction.
  function transactions.begin(begin)
    if guarded then check() end
    if begin then begin() else core.begin() end
    local level, coroutine = core.level(), current()
    set_level(level - 1)
    last_id, top = last_id + 1, level
    ids[level], owned[level], began[level] = last_id, coroutine ~= nil, core.now()
    if coroutine then owners[level] = coroutine end
    set_level(level)
    return level, last_id
  end

  -- innermost returns the level of the innermost transaction after the function of a transaction
  -- has returned; nil if that transaction has already ended.
  function transactions.innermost(level, id)
    local now = core.level()
    if now >= level and ids[level] == id then return now end
    local coroutine = current()
    if coroutine then lost[coroutine] = nil end
    set_level(now)
    return nil
  end

  -- rollback ends the transaction at a level, and those nested in it.
  function transactions.rollback(level)
    unwind(level - 1)
    set_level(core.level())
  end

  -- commit returns the number of the commit; after a conflict false, with the transaction back in
  -- its initial state.
  function transactions.commit(level)
    local number = core.commit()
    if number then set_level(level - 1) end
    return number
  end

  -- age returns how many seconds the outermost transaction has been open.
  function transactions.age() return (core.now() - began[1]) / 1000 end

  -- level returns the number of open transactions, or raises an error if this coroutine may not use
  -- them.
  function transactions.level()
    if last_id == 0 then return 0 end -- there may be no session
    if guarded then check() end
    return core.level()
  end

  -- closed resets the state when the backend is closed.
  function transactions.closed()
    set_level(0)
    last_id = 0
  end

  return transactions
end

-- This function returns the module. marker is the result of getmetatable for its nodes. A dialect
-- defines the differences of another module over the same backend:
--   methods(methods, KEY)   adds methods
--   outcome(result, …)      interprets the results of a transaction's function: nil, "restart",
--                           "rollback", or the text of an error to raise after a rollback
--   delete(key)             implements the mark DELETE of settree
--   filters_root            true: gettree also passes the node itself to its filter
--   family(new, module)     adds constructors of other nodes; new(methods, fields, setters, made)
--                           creates them
return function(core, marker, dialect)
  dialect = dialect or {}
  local M = {}
  local methods = {} -- by name; the first argument is a node
  local guarded = {} -- by __name, for node:__name(), which a script may call with any value
  local KEY, SELF = {}, {} -- keys in a table of children
  local proxy, append, get = core.proxy, core.append, core.get

  local function is_node(v)
    return type(v) == "userdata" and getmetatable(v) == marker
  end

  local function set_value(key, value)
    if value == nil then return core.kill_value(key) end
    return core.set(key, value)
  end

  -- Nodes -----------------------------------------------------------------------------

  local function assign(node, name, value)
    if name == "__" then return set_value(node[KEY], value) end
    local path = core.zwrite_key(node[KEY])
    if type(name) == "string" and match(name, "^[%a_][%w_]*$") then
      path = path .. "." .. name
    else
      path = path .. "[" .. described(name) .. "]"
    end
    fail("cannot assign %s to %s: a node's value is its field __, so write %s.__ = %s",
      described(value), path, path, described(value))
  end

  local function add(node, by)
    if not is_node(node) then fail("a number + a node: write node + number") end
    core.increment(node[KEY], by)
    return node
  end

  local function subtract(node, by)
    if not is_node(node) then fail("a number - a node: write node - number") end
    if type(by) == "string" then by = "-" .. by
    elseif type(by) == "number" then by = (-by ~= by or by == 0) and -by or "9223372036854775808" -- the least integer
    else fail("node - x: x must be a number, got %s", described(by)) end
    core.increment(node[KEY], by)
    return node
  end

  local function to_text(node) return core.zwrite_key(node[KEY]) end

  local function children_of(node, options) return methods.pairs(node, options) end

  local function no_ipairs(node)
    fail("ipairs(%s): a node has endless subscripts; write: for subscript, value in node:values()", to_text(node))
  end

  -- A family is the nodes of one constructor: of node(), or of one from inherit(). own contains the
  -- methods of its class; if the class has get and set, they read and write the value of its nodes.
  -- extra has metamethods, properties a function for each field that is not a subnode, and setters
  -- one for each field that can be assigned.
  local families = setmetatable({}, {__mode = "k"}) -- the family of each node, except standard ones

  local function new_family(own, extra, properties, setters)
    local family = {own = own, extra = extra, properties = properties, setters = setters}
    local call
    local children_mt = {__mode = "v"}
    local roots = setmetatable({}, {__mode = "v"})    -- by name
    local reserved = setmetatable({}, {__mode = "v"}) -- subscripts that begin with __, by key

    -- overriding returns the class's method with a name, with or without its two underscores.
    local function overriding(name) return own[name] or own["__" .. name] end

    local function assign_own(node, name, value)
      local setter = setters and setters[name] or name == "__" and own and overriding("set")
      if setter then
        setter(node, value)
        return
      end
      assign(node, name, value)
    end

    local function new_node(key, parent, name)
      -- Room for all fields at once: a script may make a node for each event.
      local children = parent and {[KEY] = key, [SELF] = false, [parent] = name} or {[KEY] = key, [SELF] = false}
      setmetatable(children, children_mt)
      local metatable = {__index = children, __newindex = own and assign_own or assign, __call = call,
        __metatable = marker, __tostring = to_text, __pairs = children_of, __ipairs = no_ipairs, __add = add,
          __sub = subtract}
      if extra then
        for k, v in next, extra do metatable[k] = v end
      end
      local node = proxy(metatable)
      children[SELF] = node
      if own then families[node] = family end
      return node
    end

    local function reserved_child(node, name)
      local key = append(node[KEY], name)
      local child = reserved[key]
      if child == nil then
        child = new_node(key, node, name)
        reserved[key] = child
      end
      return child
    end

    -- Called for a field that the table of children lacks: the value, a method, or a child whose
    -- path is new. A child with a number has one entry for the number, and one for each text of it
    -- that a script uses.
    function children_mt.__index(children, name)
      if name == "__" then
        local getter = own and overriding("get")
        if getter then return getter(children[SELF]) end
        return get(children[KEY])
      end
      if own then
        local property = properties and properties[name]
        if property then return property(children[SELF]) end
        local v = own[name]
        if v == nil and is_reserved(name) then v = own[strsub(name, 3)] end
        if v ~= nil then return v end
      end
      local method = guarded[name]
      if method then return method end
      if is_reserved(name) then
        fail("node.%s: there is no method %s; to get the subnode of a name that begins with __, " ..
          "write node(%q)", name, strsub(name, 3), name)
      end
      if type(name) == "userdata" and is_node(name) then
        fail("a node cannot be a subscript (to call a method, write node:method(), on the node itself)")
      end
      local key, subscript = append(children[KEY], name)
      local node = rawget(children, subscript)
      if node == nil then
        node = new_node(key, children[SELF], subscript)
        children[subscript] = node
      end
      if subscript ~= name then children[name] = node end
      return node
    end

    local function step(node, subscript)
      if is_reserved(subscript) then return reserved_child(node, subscript) end
      if own and (own[subscript] ~= nil or properties and properties[subscript]) then
        return reserved_child(node, subscript)
      end
      return node[subscript]
    end

    local function walk(node, ...)
      for i = 1, select("#", ...) do
        local subscript = select(i, ...)
        if type(subscript) == "table" then
          for k = 1, #subscript do node = step(node, subscript[k]) end
        else
          node = step(node, subscript)
        end
      end
      return node
    end

    -- node:method(…) is node.method(node, …), which calls a child with its parent. Otherwise the
    -- arguments are subscripts.
    function call(node, ...)
      local parent = ...
      if type(parent) ~= "userdata" then return walk(node, ...) end
      local name = node[parent]
      local method = own and type(name) == "string" and overriding(name) or methods[name]
      if method then return method(...) end
      fail("there is no method %s; the methods are %s", described(name), M.method_names)
    end

    function family.root(name)
      local node = type(name) == "string" and roots[name]
      if not node then
        node = new_node(core.root(name))
        roots[name] = node
      end
      return node
    end

    family.walk, family.step = walk, step
    return family
  end

  local standard = new_family()

  -- step returns a subnode of a node of any family.
  local function step(node, subscript) return (families[node] or standard).step(node, subscript) end

  local made_by = setmetatable({}, {__mode = "k"}) -- the family of each constructor

  -- constructor returns the function that creates nodes of a family. It calls made, if given, with
  -- each new node.
  local function constructor(family, made)
    local function make(first, ...)
      if type(first) == "string" then return family.walk(family.root(first), ...) end
      if is_node(first) then
        if (families[first] or standard) == family then return family.walk(first, ...) end
        local path = pack(core.decode(first[KEY]))
        return family.walk(family.walk(family.root(path[1]), unpack(path, 2, path.n)), ...)
      end
      fail("node: the first argument must be a name or a node, got %s", described(first))
    end
    local construct = made and function(...)
      local node = make(...)
      made(node)
      return node
    end or make
    made_by[construct] = family
    return construct
  end

  M.node = constructor(standard)

  function M.isnode(v) return is_node(v) end

  local INHERITED = {}
  for name in gmatch("call add sub tostring pairs concat len lt le mul div mod pow unm", "%a+") do
    INHERITED["__" .. name] = true
  end

  -- superclass_of returns the methods that a class overrides, by name with or without underscores.
  local function superclass_of(family)
    return setmetatable({}, {__metatable = false, __index = function(_, name)
      local v = family.own and family.own[name]
      if v ~= nil or type(name) ~= "string" then return v end
      return methods[name] or guarded[name]
    end})
  end

  function M.inherit(make, metatable)
    local parent = made_by[make]
    if not parent then fail("inherit: argument 1 must be a constructor of nodes, got %s", described(make)) end
    if metatable == nil then metatable = {} end
    if type(metatable) ~= "table" then fail("inherit: argument 2 must be a metatable, got %s", described(metatable)) end
    if metatable.__index ~= nil and type(metatable.__index) ~= "table" then
      fail("inherit: __index must be a table of methods, got %s", described(metatable.__index))
    end
    local own, extra = metatable.__index or metatable, {}
    for k, v in next, parent.extra or {} do extra[k] = v end
    for k, v in next, metatable do
      if INHERITED[k] then
        extra[k] = v
      elseif is_reserved(k) and k ~= "__index" and not (own == metatable and methods[strsub(k, 3)]) then
        fail("inherit: a node's metamethod %s cannot be replaced", described(k))
      end
    end
    if parent.own and getmetatable(own) == nil then setmetatable(own, {__index = parent.own}) end
    local family = new_family(own, extra, parent.properties, parent.setters)
    return constructor(family), own, superclass_of(parent)
  end

  -- relative returns the node of a key below node; depth is the depth of node.
  local function relative(node, depth, key)
    local path = pack(core.decode(key))
    for i = depth + 2, path.n do node = step(node, path[i]) end
    return node
  end

  -- Methods -----------------------------------------------------------------------------

  function methods.get(self, default)
    local value = get(self[KEY])
    if value == nil then return default end
    return value
  end

  function methods.set(self, value) return set_value(self[KEY], value) end
  function methods.set_new(self, value) return core.set_new(self[KEY], value) end
  function methods.compare_and_set(self, expected, value) return core.compare_and_set(self[KEY], expected, value) end
  local function check_increment(by)
    if type(by) == "boolean" then fail("incr: the increment must be a number or a text, got %s", described(by)) end
    return by
  end

  function methods.incr(self, by) return core.increment(self[KEY], check_increment(by)) end
  function methods.kill(self) return core.kill(self[KEY]) end
  function methods.data(self) return core.data(self[KEY]) end

  function methods.has_value(self)
    local data = core.data(self[KEY])
    return data == 1 or data == 11
  end

  function methods.has_tree(self) return core.data(self[KEY]) >= 10 end
  function methods.count(self) return core.count(self[KEY]) end

  function methods.merge(self, from)
    if not is_node(from) then fail("merge: argument 1 must be the node to copy from, got %s", described(from)) end
    return core.merge(self[KEY], from[KEY])
  end

  function methods.expire(self, seconds)
    local ms = milliseconds("expire: argument 1", seconds)
    if ms == nil then return core.expire_at(self[KEY], 0) end
    return core.expire(self[KEY], ms)
  end

  -- moment converts a time in seconds since 1970 to milliseconds for the core; nil to 0, never.
  local function moment(what, time)
    if time == nil then return 0 end
    if type(time) ~= "number" or time ~= time then
      fail("%s must be a time in seconds since 1970, got %s", what, described(time))
    end
    if time > 1e12 then return 0 end
    local ms = time * 1000
    return ms < 1 and 1 or ms - ms % 1
  end

  function methods.expire_at(self, time)
    return core.expire_at(self[KEY], moment("expire_at: argument 1", time))
  end

  function methods.expire_tree(self, seconds)
    local ms = milliseconds("expire_tree: argument 1", seconds)
    if ms then ms = ms == 0 and 1 or ms + core.clock() end
    return core.expire_tree(self[KEY], ms or 0)
  end

  function methods.kill_range(self, from, to) core.kill_range(self[KEY], from, to) end

  function methods.ttl(self)
    local ms = core.ttl(self[KEY])
    return ms and ms / 1000
  end

  function methods.lock(self, timeout)
    core.unlock_all()
    core.lock({self[KEY]}, milliseconds("lock: timeout", timeout, -1))
  end

  function methods.lock_incr(self, timeout)
    core.lock({self[KEY]}, milliseconds("lock_incr: timeout", timeout, -1))
  end

  function methods.lock_decr(self) core.unlock(self[KEY]) end
  methods.grab, methods.release = methods.lock_incr, methods.lock_decr

  -- bounds reads the argument of an iteration: true for reverse, or a table of options.
  local function bounds(what, options, flags)
    if options == nil or options == false then return flags end
    if options == true then return flags + REVERSE end
    if type(options) ~= "table" then
      fail("%s: the argument must be true (reverse) or a table of options, got %s", what, described(options))
    end
    for k in next, options do
      if k ~= "reverse" and k ~= "from" and k ~= "to" and k ~= "limit" then
        fail("%s: unknown option %s; the options are reverse, from, to and limit", what, described(k))
      end
    end
    local limit = options.limit
    if limit ~= nil and (type(limit) ~= "number" or not (limit >= 0) or limit < 1e15 and limit % 1 ~= 0) then
      fail("%s: limit must be a whole number, got %s", what, described(limit))
    end
    if limit == 0 then return nil end
    if limit and limit >= 1e15 then limit = nil end
    return options.reverse and flags + REVERSE or flags, options.from, options.to, limit
  end

  local function nothing() end

  function methods.subscripts(self, options)
    local flags, from, to, limit = bounds("subscripts", options, 0)
    if not flags then return nothing end
    return core.siblings(self[KEY], flags, from, to, limit)
  end

  function methods.values(self, options)
    local flags, from, to, limit = bounds("values", options, VALUES)
    if not flags then return nothing end
    return core.siblings(self[KEY], flags, from, to, limit)
  end

  function methods.pairs(self, options)
    local flags, from, to, limit = bounds("pairs", options, VALUES)
    if not flags then return nothing end
    local following, child = core.siblings(self[KEY], flags, from, to, limit), (families[self] or standard).step
    return function()
      local subscript, value = following()
      if subscript == nil then return nil end
      return child(self, subscript), value, subscript
    end
  end

  -- walk_bound returns the key of a bound of a walk: a node below key, or a subscript of a child.
  -- last: the bound includes the descendants.
  local function walk_bound(what, key, bound, last)
    if bound == nil then return nil end
    if is_node(bound) then
      bound = bound[KEY]
      if strsub(bound, 1, #key) ~= key then
        fail("walk: option %s is %s, which is not below %s", what, core.zwrite_key(bound), core.zwrite_key(key))
      end
    else
      bound = append(key, bound)
    end
    return last and bound .. "\255" or bound
  end

  function methods.walk(self, options)
    local flags, from, to, limit = bounds("walk", options, SELF_TOO + VALUES)
    if not flags then return nothing end
    local reverse = flags % (2 * REVERSE) >= REVERSE
    local following = core.descendants(self[KEY], flags, limit,
      walk_bound("from", self[KEY], from, reverse), walk_bound("to", self[KEY], to, not reverse))
    local depth = core.depth(self[KEY])
    return function()
      local key, value = following()
      if key == nil then return nil end
      return relative(self, depth, key), value
    end
  end

  function methods.name(self) return (select(-1, core.decode(self[KEY]))) end
  function methods.varname(self) return (core.decode(self[KEY])) end
  function methods.depth(self) return core.depth(self[KEY]) end

  function methods.subsarray(self)
    local path = pack(core.decode(self[KEY]))
    local subscripts = {}
    for i = 2, path.n do subscripts[i - 1] = path[i] end
    return subscripts
  end

  function methods.ismutable() return false end

  -- Trees as tables: the field __ is the value of a node that has children.

  M.DELETE = setmetatable({}, {__tostring = function() return "nodedb.DELETE" end, __metatable = false,
    __newindex = function() fail("DELETE is read-only") end})

  local delete = dialect.delete or core.kill

  local function set_tree(node, tree, filter, depth)
    if depth > 32 then fail("settree: the table is nested more than 31 levels deep, or contains itself") end
    for name, value in next, tree do
      if filter then
        name, value = filter(node, name, value)
      end
      if name ~= nil and value ~= nil then
        if name == "__" then
          if value == M.DELETE then value = nil end
          set_value(node[KEY], value)
        else
          if value == M.DELETE then
            delete(step(node, name)[KEY])
          elseif type(value) == "table" then
            set_tree(step(node, name), value, filter, depth + 1)
          else
            core.set_child(node[KEY], name, value)
          end
        end
      end
    end
  end

  function methods.settree(self, tree, filter)
    if tree == M.DELETE then return delete(self[KEY]) end
    if type(tree) ~= "table" then
      set_value(self[KEY], tree)
      return self
    end
    set_tree(self, tree, filter, 1)
    return self
  end

  -- filtered returns the value to use and whether to descend; if the filter does not say, it
  -- descends as without a filter.
  local function filtered(filter, node, name, value, recurse, depth)
    local use, descend = filter(node, name, value, recurse, depth)
    if descend == nil then descend = recurse end
    return use, descend
  end

  local function get_tree(node, depth, limit, filter)
    local tree = {}
    for child, value, name in methods.pairs(node) do
      local recurse = depth < limit
      if filter then value, recurse = filtered(filter, node, name, value, recurse, depth) end
      if recurse and core.data(child[KEY]) >= 10 then
        local below = get_tree(child, depth + 1, limit, filter)
        below.__ = value
        if next(below) ~= nil then tree[name] = below end
      elseif value ~= nil then
        tree[name] = value
      end
    end
    return tree
  end

  function methods.gettree(self, maxdepth, filter)
    if maxdepth ~= nil and not (type(maxdepth) == "number" and maxdepth == maxdepth) then
      fail("gettree: argument 1 must be the number of levels, got %s", described(maxdepth))
    end
    local value, recurse = get(self[KEY]), true
    if filter and dialect.filters_root then value, recurse = filtered(filter, self, "", value, true, 0) end
    local tree = recurse and get_tree(self, 1, maxdepth or 32, filter) or {}
    tree.__ = value
    return tree
  end

  function methods.dump(self, maxlines)
    local lines, limit = {}, maxlines or 30
    if type(limit) ~= "number" or not (limit >= 0) or limit < 1e15 and limit % 1 ~= 0 then
      fail("dump: argument 1 must be the number of lines, got %s", described(limit))
    end
    for key, value in core.descendants(self[KEY], SELF_TOO + VALUES, limit < 1e15 and limit + 1 or nil) do
      if #lines == limit then
        lines[limit + 1] = format("... more than %d nodes", limit)
        break
      end
      lines[#lines + 1] = core.zwrite_key(key) .. "=" .. core.zwrite(value)
    end
    return concat(lines, "\n")
  end

  if dialect.methods then dialect.methods(methods, KEY) end
  -- family returns a constructor of nodes with their own methods and fields.
  if dialect.family then
    dialect.family(function(own, properties, setters, made)
      return constructor(new_family(own, nil, properties, setters), made)
    end, M)
  end
  for name, method in next, methods do
    guarded["__" .. name] = function(self, ...)
      if not is_node(self) then
        fail("__%s: argument 1 must be a node, got %s (write node:__%s())", name, described(self), name)
      end
      return method(self, ...)
    end
  end
  do
    local names = {}
    for name in next, methods do names[#names + 1] = name end
    sort(names)
    M.method_names = concat(names, ", ")
  end

  -- Functions over names and subscripts ---------------------------------------------------

  -- root_again and append_again are core.root and append with a memory, for the part of a path
  -- before its end, which calls in a loop share. They remember the last name, and for each
  -- subscript the key to which it was last appended, and the result.
  local last_root, last_root_key
  local function root_again(name)
    if name ~= last_root then
      last_root_key = core.root(name)
      last_root = name
    end
    return last_root_key
  end

  local appended_to, appended, remembered = {}, {}, 0
  local function append_again(key, name)
    if appended_to[name] == key then return appended[name] end
    local result = append(key, name)
    if not appended_to[name] then
      if remembered == 256 then appended_to, appended, remembered = {}, {}, 0 end
      remembered = remembered + 1
    end
    appended_to[name], appended[name] = key, result
    return result
  end

  -- key_of encodes a path: a node or a name, and count more arguments, each a subscript or a table
  -- of subscripts.
  local function key_of(what, first, count, ...)
    local key
    if type(first) == "string" then
      key = root_again(first)
    elseif is_node(first) then
      key = first[KEY]
    else
      fail("%s: argument 1 must be a name or a node, got %s", what, described(first))
    end
    local given = select("#", ...)
    for i = 1, count do
      local subscript = select(i, ...)
      if type(subscript) == "table" then
        for k = 1, #subscript do key = append(key, subscript[k]) end
      elseif i < given and type(subscript) == "string" then
        key = append_again(key, subscript)
      else
        key = append(key, subscript)
      end
    end
    return key
  end

  function M.get(first, ...) return get(key_of("get", first, select("#", ...), ...)) end
  function M.data(first, ...) return core.data(key_of("data", first, select("#", ...), ...)) end
  function M.kill(first, ...) return core.kill(key_of("kill", first, select("#", ...), ...)) end
  function M.count(first, ...) return core.count(key_of("count", first, select("#", ...), ...)) end

  -- last returns the last of count arguments, for functions with a value after the subscripts.
  local function last(what, count, name, ...)
    if count < 1 then fail("%s: the last argument, %s, is missing", what, name) end
    return (select(count, ...))
  end

  function M.set(first, ...)
    local count = select("#", ...)
    local value = last("set", count, "the value", ...)
    if count == 1 or value == nil or type((select(count - 1, ...))) == "table" then
      return set_value(key_of("set", first, count - 1, ...), value)
    end
    -- The backend builds the key of the node.
    return core.set_child(key_of("set", first, count - 2, ...), select(count - 1, ...))
  end

  function M.incr(first, ...)
    local count, by = select("#", ...), nil
    -- After a name alone, or a table of subscripts, the increment is optional.
    if count > 0 and type((select(count, ...))) ~= "table" then
      by = check_increment((select(count, ...)))
      count = count - 1
    end
    return core.increment(key_of("incr", first, count, ...), by)
  end

  function M.lock_incr(first, ...)
    local count = select("#", ...)
    local timeout
    -- After a table of subscripts the timeout is optional; after single subscripts the last
    -- argument is the timeout.
    if count > 1 or count == 1 and type((...)) ~= "table" then
      timeout = last("lock_incr", count, "the timeout", ...)
      count = count - 1
    end
    core.lock({key_of("lock_incr", first, count, ...)}, milliseconds("lock_incr: timeout", timeout, -1))
  end

  function M.lock_decr(first, ...)
    core.unlock(key_of("lock_decr", first, select("#", ...), ...))
  end
  M.grab, M.release = M.lock_incr, M.lock_decr

  function M.lock(nodes, timeout)
    local keys = {}
    if nodes ~= nil then
      if type(nodes) ~= "table" then fail("lock: argument 1 must be a table of nodes, got %s", described(nodes)) end
      for i = 1, #nodes do
        local entry = nodes[i]
        if type(entry) == "table" then
          keys[i] = key_of("lock", entry[1], #entry - 1, unpack(entry, 2))
        else
          keys[i] = key_of("lock", entry, 0)
        end
      end
    end
    local ms = milliseconds("lock: timeout", timeout, -1)
    core.unlock_all()
    if #keys > 0 then core.lock(keys, ms) end
  end

  function M.merge(to, from)
    return core.merge(key_of("merge", to, 0), key_of("merge", from, 0))
  end

  function M.subscript_next(first, ...)
    return core.next_sibling(key_of("subscript_next", first, select("#", ...), ...), false)
  end

  -- The subscript "" is before all others for $ORDER, in both directions.
  local function is_empty(key, parent) return parent and append(parent, "") == key end

  local function previous(key)
    local parent = core.parent(key)
    if is_empty(key, parent) then return (core.siblings(parent, REVERSE, nil, nil, 1)()) end
    return core.next_sibling(key, true)
  end

  function M.subscript_previous(first, ...)
    return previous(key_of("subscript_previous", first, select("#", ...), ...))
  end

  function M.subscripts(first, ...)
    local count, reverse = select("#", ...), nil
    if count > 0 and (type((select(count, ...))) == "boolean" or select(count, ...) == nil) then
      reverse = select(count, ...)
      count = count - 1
    end
    local key = key_of("subscripts", first, count, ...)
    local parent = core.parent(key)
    if not parent then
      return function()
        local name = core.next_sibling(key, reverse)
        if name == nil then return nil end
        key = core.root(name)
        return name
      end
    end
    local from
    if not is_empty(key, parent) then
      from = core.next_sibling(key, reverse)
      if from == nil then return nothing end
    elseif not reverse then
      from = core.next_sibling(key, false) -- "" itself means the start of $ORDER
      if from == nil then return nothing end
    end
    return core.siblings(parent, reverse and REVERSE or 0, from)
  end

  local function next_node(what, reverse, first, ...)
    local key = key_of(what, first, select("#", ...), ...)
    local name = core.decode(key)
    local following = core.next_node(key, reverse)
    if following == nil then return nil end
    local path = pack(core.decode(following))
    if path[1] ~= name then return nil end
    local subscripts = {}
    for i = 2, path.n do subscripts[i - 1] = path[i] end
    return subscripts
  end

  function M.node_next(...) return next_node("node_next", false, ...) end
  function M.node_previous(...) return next_node("node_previous", true, ...) end

  function M.names(reverse) return core.siblings("", reverse and REVERSE or 0) end

  function M.settree(first, ...) return methods.settree(M.node(first), ...) end
  function M.gettree(first, ...) return methods.gettree(M.node(first), ...) end
  function M.dump(first, ...) return methods.dump(M.node(first), ...) end

  M.str2zwr, M.zwr2str = core.zwrite, core.zread

  -- load reads lines in the format of dump.
  function M.load(text)
    if type(text) ~= "string" then fail("load: argument 1 must be text, got %s", described(text)) end
    local count = 0
    for line in gmatch(text, "[^\n]+") do
      count = count + 1
      local ok, problem = pcall(core.load_line, line)
      if not ok then
        local code, reason = match(problem, "^(nodedb: [%u_]+: )(.*)")
        error(code and code .. "load: line " .. count .. ": " .. reason or problem, 0)
      end
    end
    return count
  end

  -- Errors --------------------------------------------------------------------------------

  local codes = {}
  for name, code in next, TRANSACTION_CODES do codes[name] = code end
  for name, code in next, core.codes do codes[name] = code end
  for name, code in next, codes do M[name] = code end

  local function error_code(message)
    if type(message) ~= "string" then return nil end
    return codes[match(message, "nodedb: ([%u_]+):")]
  end
  M.get_error_code = error_code

  -- Transactions ----------------------------------------------------------------------------

  local transactions = core.shared.transactions or new_transactions(core)
  core.shared.transactions = transactions

  -- The innermost transaction runs again only if trestart, or the end of a nested one, asked for it
  -- and its error arrives. An equal error of another origin has no effect.
  local restart_wanted = false

  local function restart_error()
    restart_wanted = true
    error(RESTARTED, 0)
  end

  function M.trestart()
    if transactions.level() == 0 then fail("trestart: no transaction is open") end
    restart_error()
  end

  function M.trollback()
    if transactions.level() == 0 then fail("trollback: no transaction is open") end
    error(ROLLED_BACK, 0)
  end

  function M.tp_limits(limits)
    if limits ~= nil then
      if type(limits) ~= "table" then
        fail("tp_limits: argument 1 must be a table of limits, got %s", described(limits))
      end
      for name, limit in next, limits do
        if name ~= "restarts" and name ~= "seconds" then
          fail("tp_limits: unknown limit %s; the limits are restarts and seconds", described(name))
        end
        if type(limit) ~= "number" or not (limit >= 0) then
          fail("tp_limits: %s must be a number, 0 or more, got %s", name, described(limit))
        end
      end
      for name, limit in next, limits do transactions[name] = limit end
    end
    return {restarts = transactions.restarts, seconds = transactions.seconds}
  end

  -- abort rolls a transaction back and raises an error.
  local function abort(tx, problem)
    transactions.rollback(tx.level)
    error(problem, 0)
  end

  -- exceeded returns an error if a transaction exceeds a limit, or nil.
  local function exceeded(tx)
    local restarts, seconds = transactions.restarts, transactions.seconds
    if tx.runs > restarts then
      return format("nodedb: NDB_TP_LIMIT: the transaction has run %d times without success and was rolled back; " ..
        "to allow more restarts, use nodedb.tp_limits", tx.runs)
    end
    if transactions.age() > seconds then
      return format("nodedb: NDB_TP_LIMIT: the transaction took longer than %s s and was rolled back; " ..
        "make it smaller, or raise the limit with nodedb.tp_limits", seconds)
    end
  end

  -- run begins a transaction and calls its function. It runs under pcall, so that finish always
  -- ends it.
  local function run(tx)
    if not tx.level then
      tx.level, tx.id = transactions.begin()
    end
    restart_wanted = false
    tx.runs = tx.runs + 1
    local names = tx.names
    for i = 1, #names do core.restore_local(names[i]) end
    return tx.f(unpack(tx, 1, tx.n))
  end

  local finish

  local function run_again(tx)
    if tx.level > 1 then
      transactions.rollback(tx.level)
      restart_error()
    end
    local problem = exceeded(tx)
    if problem then abort(tx, problem) end
    local ok
    ok, problem = pcall(core.restart)
    if not ok then abort(tx, problem) end
    return finish(tx, pcall(run, tx))
  end

  local function is_restart(problem)
    return restart_wanted and type(problem) == "string" and strfind(problem, "NDB_TP_RESTART", 1, true) ~= nil
  end

  -- finish commits the transaction, rolls it back, or runs it again. It returns the function's
  -- results.
  function finish(tx, ok, ...)
    local level = tx.level
    if not level then error((...), 0) end -- begin has failed
    local now = transactions.innermost(level, tx.id)
    if not now then
      if not ok then error((...), 0) end
      error("nodedb: NDB_E_LEVEL: the transaction was ended while its function ran", 0)
    end
    if not ok then
      if is_restart(...) then return run_again(tx) end
      abort(tx, (...))
    end
    if now > level then
      abort(tx, format("nodedb: NDB_E_ARGUMENT: transaction: its function returned at transaction level %d, " ..
        "but was called at level %d", now, level))
    end
    local outcome = dialect.outcome and dialect.outcome(...)
    if outcome == "restart" then return run_again(tx) end
    if outcome then abort(tx, outcome == "rollback" and ROLLED_BACK or outcome) end
    local problem = level == 1 and exceeded(tx)
    if problem then abort(tx, problem) end
    local done, number = pcall(transactions.commit, level)
    if not done then abort(tx, number) end
    -- A conflict: the transaction is back in its initial state.
    if not number then return finish(tx, pcall(run, tx)) end
    if level == 1 and number ~= 0 and tx.durable then core.wait(number) end
    return ...
  end

  local function transact(id, names, f, ...)
    local tx = {f = f, names = names, runs = 0, durable = id ~= "BATCH" and id ~= "BA", level = false, id = false,
      n = select("#", ...), ...}
    return finish(tx, pcall(run, tx))
  end

  local function transaction_arguments(what, id, names, f, ...)
    if type(id) ~= "string" then return transaction_arguments(what, "", id, names, f, ...) end
    if type(names) == "function" or type(names) ~= "table" and f == nil then
      return transaction_arguments(what, id, {}, names, f, ...)
    end
    if type(names) == "string" then names = {names} end
    if type(names) ~= "table" then
      fail("%s: the names of trees in memory must be a table, got %s", what, described(names))
    end
    if type(f) ~= "function" then fail("%s: the function to run is missing, got %s", what, described(f)) end
    return id, names, f, ...
  end

  function M.tp(...) return transact(transaction_arguments("tp", ...)) end

  function M.view(f, ...)
    if type(f) ~= "function" then fail("view: argument 1 must be the function to run, got %s", described(f)) end
    local level, id = transactions.begin(core.begin_view)
    local results = pack(pcall(f, ...))
    if transactions.innermost(level, id) then transactions.rollback(level)
    elseif results[1] then error("nodedb: NDB_E_LEVEL: the transaction was ended while its function ran", 0) end
    if not results[1] then error(results[2], 0) end
    return unpack(results, 2, results.n)
  end

  local function nodes_of(what, list)
    if type(list) ~= "table" then fail("%s: argument 1 must be a list, got %s", what, described(list)) end
    local keys = {}
    for i = 1, #list do
      local entry = list[i]
      if type(entry) == "table" then
        keys[i] = key_of(what, entry[1], #entry - 1, unpack(entry, 2))
      else
        keys[i] = key_of(what, entry, 0)
      end
    end
    return keys
  end

  function M.get_all(nodes)
    local keys = nodes_of("get_all", nodes)
    return M.view(function()
      local values = {}
      for i = 1, #keys do values[i] = get(keys[i]) end
      return values
    end)
  end

  function M.set_all(nodes, values)
    local keys = nodes_of("set_all", nodes)
    if type(values) ~= "table" then fail("set_all: argument 2 must be a list of values, got %s", described(values)) end
    for i = 1, #keys do
      if values[i] == nil then fail("set_all: node %d has no value", i) end
    end
    core.set_all(keys, values)
  end

  function M.transaction(...)
    local id, names, f = transaction_arguments("transaction", ...)
    return function(...) return transact(id, names, f, ...) end
  end

  -- The store ------------------------------------------------------------------------------

  for _, name in next, {"open", "stat", "backup", "check", "compact"} do
    M[name] = core[name]
  end

  -- Changes in an open transaction cannot be durable, so sync and close must not claim it.
  local function outside(what)
    if transactions.level() > 0 then
      error("nodedb: NDB_E_LEVEL: " .. what ..
        ": a transaction is open: end it first, since its changes are not durable before", 0)
    end
  end

  if core.sync then
    function M.sync()
      outside("sync")
      return core.sync()
    end
  end

  if core.close then
    function M.close()
      outside("close")
      transactions.closed()
      return core.close()
    end
  end
  return M, methods
end
