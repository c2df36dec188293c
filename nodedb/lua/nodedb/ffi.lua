-- The backend for LuaJIT. It calls the C core through the FFI, so that LuaJIT compiles the calls to
-- plain C calls. Its functions have the arguments and results of those in native.c.
--
-- host provides the parts that differ between a plain LuaJIT and the engine:
--   addresses   pointers to the functions of nodedb.h, by name
--   session     a function that returns the pointer to the session
--   proxy       proxy(metatable) returns an empty userdata
--   codes       the error codes, by name
--   digits      optional: digits(v) returns the text of a number that is a userdata, or nil
--   generation  optional: a pointer to a double that changes when all iterations end
--   reserved    optional: true if names that begin with ^% are not for scripts
--   collect     optional, for tests: a function that collects all garbage, called before every
--               C call
--   functions   functions that this file lacks, such as open; they are copied into the module
-- The module never returns cdata to scripts. detach() ends all iterations; call it before the
-- session is closed.
--
-- Lua must keep all memory alive that C reads, until the call has returned. Arguments of the call
-- are safe: taking their address and calling C are one instruction, and C does not call back. But a
-- scalar contains only an address. So set_scalar returns the object that the scalar points into,
-- and its caller keeps that in a local that it uses again after the call, as the second argument
-- of fail or hold. Then every stack frame and every exit state of compiled code between the two
-- contains the local; the collector frees nothing while a trace runs. Each scalar needs its own
-- local, and no tail call may occur while one is needed. A finalizer must not use the module: it
-- can run between any two instructions here, and would overwrite the scalars.
local error, pairs, pcall, tonumber, tostring, type = error, pairs, pcall, tonumber, tostring, type

return function(ffi, host)
  -- A Lua state may have several backends.
  if not pcall(ffi.typeof, "nodedb_scalar") then ffi.cdef[[
  typedef struct { double number; const char *bytes; uint32_t len; uint32_t type; } nodedb_scalar;
  typedef struct {
    const nodedb_scalar *subscript, *value;
    const char *const *key;
    const uint32_t *key_len;
    uint32_t count;
  } nodedb_items;
  typedef struct { const char *key; size_t len; } nodedb_key;
  typedef struct { const char *key; size_t len; nodedb_scalar value; } nodedb_pair;
  typedef struct nodedb_iter nodedb_iter;
  ]] end
  local cast, new, string, copy = ffi.cast, ffi.new, ffi.string, ffi.copy

  -- The test's collect reuses freed memory, so that a test notices a call that reads text without
  -- keeping it alive.
  local collections = 0
  local function collect()
    host.collect()
    collections = collections + 1
    for length = 1, 40 do local _ = ("%d\255"):format(collections):rep(length) end
  end

  local function import(name, signature)
    local address = host.addresses[name]
    if address == nil then error("nodedb: the host lacks the function " .. name) end
    local f = cast(signature, address)
    if not host.collect then return f end
    return function(...)
      collect()
      return f(...)
    end
  end

  local ndb_message = import("ndb_message", "const char *(*)(void)")
  local ndb_code_name = import("ndb_code_name", "const char *(*)(int)")
  local ndb_key_name = import("ndb_key_name", "int (*)(char *, size_t, const char *, size_t)")
  local ndb_key_append = import("ndb_key_append", "int (*)(char *, size_t, size_t, const nodedb_scalar *)")
  local ndb_key_decode = import("ndb_key_decode", "int (*)(const char *, size_t, size_t *, nodedb_scalar *, char *)")
  local ndb_key_depth = import("ndb_key_depth", "int (*)(const char *, size_t)")
  local ndb_key_parent = import("ndb_key_parent", "int (*)(const char *, size_t)")
  local ndb_zwrite_key = import("ndb_zwrite_key", "long (*)(const char *, size_t, char *, size_t)")
  local ndb_zwrite_scalar = import("ndb_zwrite_scalar", "long (*)(const nodedb_scalar *, char *, size_t)")
  local ndb_zwrite_parse_key = import("ndb_zwrite_parse_key", "int (*)(const char *, size_t, size_t *, char *)")
  local ndb_zwrite_parse_scalar = import("ndb_zwrite_parse_scalar",
    "int (*)(const char *, size_t, size_t *, nodedb_scalar *, char *)")
  local ndb_get = import("ndb_get", "int (*)(void *, const char *, size_t, nodedb_scalar *)")
  local ndb_set = import("ndb_set", "int (*)(void *, const char *, size_t, const nodedb_scalar *)")
  local ndb_set_child = import("ndb_set_child",
    "int (*)(void *, const char *, size_t, const nodedb_scalar *, const nodedb_scalar *)")
  local ndb_set_new = import("ndb_set_new", "int (*)(void *, const char *, size_t, const nodedb_scalar *)")
  local ndb_compare_and_set = import("ndb_compare_and_set",
    "int (*)(void *, const char *, size_t, const nodedb_scalar *, const nodedb_scalar *)")
  local ndb_data = import("ndb_data", "int (*)(void *, const char *, size_t)")
  local ndb_increment = import("ndb_increment",
    "int (*)(void *, const char *, size_t, const nodedb_scalar *, nodedb_scalar *)")
  local ndb_kill = import("ndb_kill", "int (*)(void *, const char *, size_t)")
  local ndb_kill_value = import("ndb_kill_value", "int (*)(void *, const char *, size_t)")
  local ndb_expire = import("ndb_expire", "int (*)(void *, const char *, size_t, uint64_t)")
  local ndb_ttl = import("ndb_ttl", "int (*)(void *, const char *, size_t, uint64_t *)")
  local ndb_count = import("ndb_count",
    "int (*)(void *, const char *, size_t, uint64_t, char *, size_t *, uint64_t *)")
  local ndb_merge = import("ndb_merge",
    "int (*)(void *, const char *, size_t, const char *, size_t, uint64_t, char *, size_t *)")
  local ndb_next_sibling = import("ndb_next_sibling", "int (*)(void *, const char *, size_t, int, nodedb_scalar *)")
  local ndb_next_node = import("ndb_next_node", "int (*)(void *, const char *, size_t, int, const char **, size_t *)")
  local ndb_iter_open = import("ndb_iter_open",
    "int (*)(void *, const char *, size_t, int, const nodedb_scalar *, const nodedb_scalar *, uint64_t," ..
      " nodedb_iter **)")
  local ndb_iter_fill = import("ndb_iter_fill", "int (*)(nodedb_iter *, nodedb_items *)")
  local ndb_iter_valid = import("ndb_iter_valid", "int (*)(const nodedb_iter *)")
  local ndb_iter_seek_after = import("ndb_iter_seek_after", "int (*)(nodedb_iter *, uint32_t)")
  local ndb_iter_close = import("ndb_iter_close", "void (*)(nodedb_iter *)")
  local ndb_begin = import("ndb_begin", "int (*)(void *)")
  local ndb_commit = import("ndb_commit", "int (*)(void *, uint64_t *)")
  local ndb_rollback = import("ndb_rollback", "int (*)(void *)")
  local ndb_restart = import("ndb_restart", "int (*)(void *)")
  local ndb_level = import("ndb_level", "int (*)(void *)")
  local ndb_restore_local = import("ndb_restore_local", "int (*)(void *, const char *, size_t)")
  local ndb_lock = import("ndb_lock", "int (*)(void *, const nodedb_key *, size_t, int64_t)")
  local ndb_unlock = import("ndb_unlock", "int (*)(void *, const char *, size_t)")
  local ndb_unlock_all = import("ndb_unlock_all", "void (*)(void *)")
  local ndb_begin_view = import("ndb_begin_view", "int (*)(void *)")
  local ndb_clock = import("ndb_clock", "uint64_t (*)(void *)")
  local ndb_expire_at = import("ndb_expire_at", "int (*)(void *, const char *, size_t, uint64_t)")
  local ndb_set_all = import("ndb_set_all", "int (*)(void *, const nodedb_pair *, size_t)")
  local ndb_kill_range = import("ndb_kill_range",
    "int (*)(void *, const char *, size_t, const nodedb_scalar *, const nodedb_scalar *, uint64_t, char *, size_t *)")
  local ndb_expire_tree = import("ndb_expire_tree",
    "int (*)(void *, const char *, size_t, uint64_t, uint64_t, char *, size_t *)")

  local OK, MORE, NONE, CONFLICT, LEVEL = 0, 1, 2, -5, -7
  local ABSENT, NUMBER, DIGITS, STRING, FALSE, TRUE = 0, 1, 2, 3, 4, 5
  local DESCENDANTS, VALUES, KEYS = 1, 8, 16
  local KEY_MAX, STEPS = 1900, 10000

  -- Buffers for arguments and results. A call ends before the next one begins.
  local out, argument, other_argument = new "nodedb_scalar", new "nodedb_scalar", new "nodedb_scalar"
  local key_room, text_room = new("char[?]", KEY_MAX), new("char[?]", KEY_MAX)
  local at_room, length_room, number_room = new "size_t[1]", new "size_t[1]", new "uint64_t[1]"
  local pointer_room, iter_room = new "const char *[1]", new "nodedb_iter *[1]"

  local core = {shared = {}}
  local connected        -- the pointer to the session, nil until the first use
  local session          -- the same; nil while a guard checks each call
  local guard
  local writes = 0       -- counts changes, so that iterations notice them
  local iterations = {}  -- the open ones: pointers, by number
  local last_iteration = 0
  local generation = host.generation and cast("double *", host.generation) or new "double[1]"

  local function connect()
    connected = connected or cast("void *", host.session())
    return connected
  end

  local function start()
    if guard then guard() end
    connect()
    if not guard then session = connected end
    return connected
  end

  -- guard(f) makes the module call f before each use of a node, until guard(nil). f raises an error
  -- if the use is not allowed. Without a guard, a use costs nothing.
  function core.guard(f)
    guard = f
    session = not f and connected or nil
  end

  -- fail raises the error for a code. Its other arguments only stay alive until here.
  local function fail(code)
    error("nodedb: " .. string(ndb_code_name(code)) .. ": " .. string(ndb_message()), 0)
  end

  local function hold() end

  local function refuse(what, given)
    local kind = type(given)
    local got = given == nil and "nil" or kind == "number" and tostring(given) or "a " .. kind
    error("nodedb: NDB_E_ARGUMENT: " .. what .. ", got " .. got, 0)
  end

  local function check_key(key)
    if type(key) ~= "string" then refuse("a node is required", key) end
  end

  -- plain returns the text of the host's own kind of number, and any other value unchanged.
  local function plain(v)
    if type(v) ~= "userdata" or not host.digits then return v end
    return host.digits(v) or v
  end

  -- set_scalar returns the object that the caller must keep alive until C has read the scalar.
  local function set_scalar(scalar, v, what)
    v = plain(v)
    local kind = type(v)
    if kind == "number" then
      if v - v ~= 0 then refuse(what .. " must be a finite number", v) end
      scalar.type = NUMBER
      scalar.number = v
    elseif kind == "string" then
      scalar.type = STRING
      scalar.bytes = v
      scalar.len = #v
    elseif kind == "boolean" then
      scalar.type = v and TRUE or FALSE
    else
      refuse(what .. " must be a string, a number or a boolean", v)
    end
    return v
  end

  local function set_subscript(scalar, v)
    v = plain(v)
    local kind = type(v)
    if kind ~= "number" and kind ~= "string" then refuse("a subscript must be a string or a number", v) end
    return set_scalar(scalar, v, "a subscript")
  end

  local function scalar_value(scalar)
    local kind = scalar.type
    if kind == NUMBER then return scalar.number end
    if kind == STRING or kind == DIGITS then return string(scalar.bytes, scalar.len) end
    if kind == TRUE then return true end
    if kind == FALSE then return false end
    return nil
  end

  -- Keys ------------------------------------------------------------------------------------

  -- check_reserved raises an error if the name in key_room is not for scripts.
  local function check_reserved()
    if host.reserved and key_room[0] == 94 and key_room[1] == 37 then
      error("nodedb: NDB_E_ARGUMENT: names that begin with ^% belong to Perigee: choose another name", 0)
    end
  end

  function core.root(name)
    if type(name) ~= "string" then refuse("a name must be a string", name) end
    local len = ndb_key_name(key_room, KEY_MAX, name, #name)
    if len < 0 then fail(len) end
    check_reserved()
    return string(key_room, len)
  end

  function core.append(key, subscript)
    check_key(key)
    local held = set_subscript(argument, subscript)
    local len = #key
    if len > KEY_MAX then refuse("a node is required", key) end
    copy(key_room, key, len)
    local total = ndb_key_append(key_room, len, KEY_MAX, argument)
    if total < 0 then fail(total, held) end
    at_room[0] = len
    local code = ndb_key_decode(key_room, total, at_room, out, text_room)
    if code < 0 then fail(code) end
    return string(key_room, total), scalar_value(out)
  end

  -- decode_from returns the subscripts of key from at_room[0] on.
  local function decode_from(key)
    local code = ndb_key_decode(key, #key, at_room, out, text_room)
    if code == NONE then return end
    if code < 0 then fail(code) end
    return scalar_value(out), decode_from(key)
  end

  function core.decode(key)
    check_key(key)
    at_room[0] = 0
    return decode_from(key)
  end

  function core.depth(key)
    check_key(key)
    local depth = ndb_key_depth(key, #key)
    if depth < 0 then fail(depth) end
    return depth
  end

  function core.parent(key)
    check_key(key)
    local len = ndb_key_parent(key, #key)
    if len < 0 then fail(len) end
    if len == 0 then return nil end
    return key:sub(1, len)
  end

  -- Text --------------------------------------------------------------------------------------

  -- zwrite calls write(room, cap, text, len) with a growing buffer, until the result fits.
  local function zwrite(write, text, len)
    local room, cap = text_room, KEY_MAX
    while true do
      local length = tonumber(write(room, cap, text, len))
      if length < 0 then fail(length) end
      if length <= cap then return string(room, length) end
      room, cap = new("char[?]", length), length
    end
  end

  local function write_key(room, cap, key, len)
    local length = ndb_zwrite_key(key, len, room, cap)
    return length
  end

  local function write_scalar(room, cap, scalar)
    local length = ndb_zwrite_scalar(scalar, room, cap)
    return length
  end

  function core.zwrite_key(key)
    check_key(key)
    return zwrite(write_key, key, #key)
  end

  function core.zwrite(v)
    local held = set_scalar(argument, v, "a value")
    local text = zwrite(write_scalar, argument)
    hold(held)
    return text
  end

  local function check_end(text)
    local at = tonumber(at_room[0])
    if at ~= #text then
      error("nodedb: NDB_E_ARGUMENT: invalid zwrite text at byte " .. at + 1 .. ": " .. text:sub(at + 1), 0)
    end
  end

  function core.zread(text)
    if type(text) ~= "string" then refuse("the argument must be text in zwrite form", text) end
    at_room[0] = 0
    local room = new("char[?]", #text + 1)
    local code = ndb_zwrite_parse_scalar(text, #text, at_room, out, room)
    if code < 0 then fail(code) end
    check_end(text)
    local v = scalar_value(out)
    hold(room)
    return v
  end

  function core.load_line(line)
    if type(line) ~= "string" then refuse("the argument must be a line in zwrite form", line) end
    at_room[0] = 0
    local len = ndb_zwrite_parse_key(line, #line, at_room, key_room)
    if len < 0 then fail(len) end
    check_reserved()
    local at = tonumber(at_room[0])
    if line:byte(at + 1) ~= 61 then check_end(line:sub(1, at) == line and line .. "=" or line) end
    at_room[0] = at + 1
    local room = new("char[?]", #line + 1)
    local code = ndb_zwrite_parse_scalar(line, #line, at_room, out, room)
    if code < 0 then fail(code) end
    check_end(line)
    writes = writes + 1
    code = ndb_set(session or start(), key_room, len, out)
    if code < 0 then fail(code, room) end
  end

  -- Nodes ---------------------------------------------------------------------------------------

  function core.get(key)
    check_key(key)
    local code = ndb_get(session or start(), key, #key, out)
    if code == OK then return scalar_value(out) end
    if code ~= NONE then fail(code) end
    return nil
  end

  function core.set(key, v)
    check_key(key)
    writes = writes + 1
    local held = set_scalar(argument, v, "a value")
    local code = ndb_set(session or start(), key, #key, argument)
    if code < 0 then fail(code, held) end
  end

  function core.set_child(key, subscript, v)
    check_key(key)
    writes = writes + 1
    local held = set_subscript(argument, subscript)
    local held_value = set_scalar(other_argument, v, "a value")
    local code = ndb_set_child(session or start(), key, #key, argument, other_argument)
    if code < 0 then fail(code, held, held_value) end
  end

  function core.set_new(key, v)
    check_key(key)
    writes = writes + 1
    local held = set_scalar(argument, v, "a value")
    local code = ndb_set_new(session or start(), key, #key, argument)
    if code < 0 then fail(code, held) end
    return code == OK
  end

  function core.compare_and_set(key, expected, v)
    check_key(key)
    writes = writes + 1
    other_argument.type = ABSENT
    local held_expected = expected ~= nil and set_scalar(other_argument, expected, "the expected value")
    local held = set_scalar(argument, v, "a value")
    local code = ndb_compare_and_set(session or start(), key, #key, other_argument, argument)
    if code < 0 then fail(code, held_expected, held) end
    return code == OK
  end

  function core.data(key)
    check_key(key)
    local code = ndb_data(session or start(), key, #key)
    if code < 0 then fail(code) end
    return code
  end

  function core.increment(key, by)
    check_key(key)
    writes = writes + 1
    if by == nil then by = 1 end
    local held = set_scalar(argument, by, "the increment")
    local code = ndb_increment(session or start(), key, #key, argument, out)
    if code < 0 then fail(code, held) end
    return scalar_value(out)
  end

  function core.kill(key)
    check_key(key)
    writes = writes + 1
    local code = ndb_kill(session or start(), key, #key)
    if code < 0 then fail(code) end
  end

  function core.kill_value(key)
    check_key(key)
    writes = writes + 1
    local code = ndb_kill_value(session or start(), key, #key)
    if code < 0 then fail(code) end
  end

  function core.expire(key, ms)
    check_key(key)
    writes = writes + 1
    local code = ndb_expire(session or start(), key, #key, ms)
    if code < 0 then fail(code) end
    return code == OK
  end

  function core.ttl(key)
    check_key(key)
    local code = ndb_ttl(session or start(), key, #key, number_room)
    if code < 0 then fail(code) end
    if code == NONE then return nil end
    return tonumber(number_room[0])
  end

  -- Counts and merges run in slices, so that the script's limits apply between them.

  function core.count(key)
    check_key(key)
    local position, position_len, count = new("char[?]", KEY_MAX), new "size_t[1]", new "uint64_t[1]"
    local code
    repeat
      code = ndb_count(session or start(), key, #key, STEPS, position, position_len, count)
    until code ~= MORE
    if code < 0 then fail(code) end
    return tonumber(count[0])
  end

  function core.merge(key, from)
    check_key(key)
    check_key(from)
    writes = writes + 1
    local position, position_len = new("char[?]", KEY_MAX), new "size_t[1]"
    local steps = ndb_level(session or start()) > 0 and STEPS or 0
    local code
    repeat
      code = ndb_merge(session or start(), key, #key, from, #from, steps, position, position_len)
    until code ~= MORE
    if code < 0 then fail(code) end
  end

  function core.next_sibling(key, reverse)
    check_key(key)
    local code = ndb_next_sibling(session or start(), key, #key, reverse and 1 or 0, out)
    if code < 0 then fail(code) end
    if code == NONE then return nil end
    return scalar_value(out)
  end

  function core.next_node(key, reverse)
    check_key(key)
    local code = ndb_next_node(session or start(), key, #key, reverse and 1 or 0, pointer_room, length_room)
    if code < 0 then fail(code) end
    if code == NONE then return nil end
    return string(pointer_room[0], length_room[0])
  end

  -- Many nodes ------------------------------------------------------------------------------------

  -- clock returns the time by which nodes expire, in ms since 1970.
  function core.clock()
    local ms = tonumber(ndb_clock(session or start()))
    if ms > 2^53 then fail(LEVEL) end -- no session is attached
    return ms
  end

  function core.expire_at(key, ms)
    check_key(key)
    writes = writes + 1
    local code = ndb_expire_at(session or start(), key, #key, ms)
    if code < 0 then fail(code) end
    return code == OK
  end

  function core.expire_tree(key, ms)
    check_key(key)
    writes = writes + 1
    local position, position_len = new("char[?]", KEY_MAX), new "size_t[1]"
    local steps = ndb_level(session or start()) > 0 and STEPS or 0
    local code
    repeat
      code = ndb_expire_tree(session or start(), key, #key, ms, steps, position, position_len)
    until code ~= MORE
    if code < 0 then fail(code) end
  end

  function core.kill_range(key, from, to)
    check_key(key)
    from, to = plain(from), plain(to)
    local from_room, to_room = new "nodedb_scalar", new "nodedb_scalar"
    local low, high
    if from ~= nil then low, from = from_room, set_subscript(from_room, from) end
    if to ~= nil then high, to = to_room, set_subscript(to_room, to) end
    writes = writes + 1
    local position, position_len = new("char[?]", KEY_MAX), new "size_t[1]"
    local steps = ndb_level(session or start()) > 0 and STEPS or 0
    local code
    repeat
      code = ndb_kill_range(session or start(), key, #key, low, high, steps, position, position_len)
    until code ~= MORE
    if code < 0 then fail(code) end
    return from, to -- keeps them alive until here
  end

  -- set_all sets the nodes of keys to values, all of them or none.
  function core.set_all(keys, values)
    local count = #keys
    local list, texts = new("nodedb_pair[?]", count + 1), {}
    for i = 1, count do
      local key, value = keys[i], plain(values[i])
      check_key(key)
      texts[i] = value -- keeps it alive during the call; keys does the same for keys
      list[i - 1].key, list[i - 1].len = key, #key
      set_scalar(list[i - 1].value, value, "a value")
    end
    writes = writes + 1
    local code = ndb_set_all(session or start(), list, count)
    if code < 0 then fail(code, texts) end
    return texts
  end

  function core.begin_view()
    writes = writes + 1
    local code = ndb_begin_view(session or start())
    if code < 0 then fail(code) end
  end

  -- Iterations ------------------------------------------------------------------------------------

  local function close_number(number)
    local iter = iterations[number]
    if iter ~= nil then
      iterations[number] = nil
      ndb_iter_close(iter)
    end
  end

  -- The collector closes an iteration that a script has dropped. That may be after detach(), so the
  -- iteration has a number in place of a pointer.
  local function close_iteration(iteration) close_number(iteration.number) end
  local iteration_type = ffi.metatype("struct { double number; }", {__gc = close_iteration})

  function core.detach()
    for number in pairs(iterations) do close_number(number) end
    writes = writes + 1
    connected = nil
    core.guard(nil)
  end

  local function open_iteration(key, flags, from, to, limit)
    check_key(key)
    local code = ndb_iter_open(session or start(), key, #key, flags, from, to, limit or 0, iter_room)
    if code < 0 then fail(code) end
    last_iteration = last_iteration + 1
    iterations[last_iteration] = iter_room[0]
    return iteration_type(last_iteration), new "nodedb_items"
  end

  -- more gets the next batch, after item at. It returns true if the present batch is still valid.
  local function more(iteration, items, at)
    local iter = iterations[iteration.number]
    if iter == nil then
      items.count = 0
      return false
    end
    if guard then guard() end
    if at < items.count then
      -- The script has changed something since the batch was read.
      if ndb_iter_valid(iter) ~= 0 then return true end
      local code = ndb_iter_seek_after(iter, at - 1)
      if code < 0 then fail(code) end
    end
    items.count = 0
    local code = ndb_iter_fill(iter, items)
    if code == OK then return false end
    items.count = 0
    if code ~= NONE then fail(code) end
    close_iteration(iteration)
    return false
  end

  function core.siblings(key, flags, from, to, limit)
    local held_from = from ~= nil and set_subscript(argument, from)
    local held_to = to ~= nil and set_subscript(other_argument, to)
    local low, high = from ~= nil and argument or nil, to ~= nil and other_argument or nil
    local iteration, items = open_iteration(key, flags, low, high, limit)
    hold(held_from, held_to)
    local at, count, seen, born = 0, 0, writes, generation[0]
    local subscript, value
    if flags % (2 * VALUES) < VALUES then
      return function()
        if at >= count or seen ~= writes or born ~= generation[0] then
          seen = writes
          if not more(iteration, items, at) then
            at, count, subscript = 0, items.count, items.subscript
            if count == 0 then return nil end
          end
        end
        local scalar = subscript[at]
        at = at + 1
        if scalar.type == NUMBER then return scalar.number end
        return string(scalar.bytes, scalar.len)
      end
    end
    return function()
      if at >= count or seen ~= writes or born ~= generation[0] then
        seen = writes
        if not more(iteration, items, at) then
          at, count, subscript, value = 0, items.count, items.subscript, items.value
          if count == 0 then return nil end
        end
      end
      local i = at
      at = i + 1
      return scalar_value(subscript[i]), scalar_value(value[i])
    end
  end

  -- The bounds from and to are keys.
  function core.descendants(key, flags, limit, from, to)
    local held_from = from ~= nil and set_scalar(argument, from, "a bound")
    local held_to = to ~= nil and set_scalar(other_argument, to, "a bound")
    local iteration, items = open_iteration(key, flags + DESCENDANTS + KEYS, held_from and argument or nil,
      held_to and other_argument or nil, limit)
    local at, count, seen, born = 0, 0, writes, generation[0]
    return function()
      if at >= count or seen ~= writes or born ~= generation[0] then
        seen = writes
        if not more(iteration, items, at) then
          at, count = 0, items.count
          if count == 0 then return nil end
        end
      end
      local i = at
      at = i + 1
      return string(items.key[i], items.key_len[i]), scalar_value(items.value[i])
    end
  end

  -- Transactions -----------------------------------------------------------------------------------

  -- These do not call the guard, since the guard calls them.

  function core.begin()
    writes = writes + 1
    local code = ndb_begin(connected or connect())
    if code < 0 then fail(code) end
  end

  function core.commit()
    writes = writes + 1
    number_room[0] = 0
    local code = ndb_commit(connected or connect(), number_room)
    if code == CONFLICT then return false end
    if code < 0 then fail(code) end
    return tonumber(number_room[0])
  end

  function core.rollback()
    writes = writes + 1
    local code = ndb_rollback(connected or connect())
    if code < 0 then fail(code) end
  end

  function core.restart()
    writes = writes + 1
    local code = ndb_restart(connected or connect())
    if code < 0 then fail(code) end
  end

  function core.level()
    local level = ndb_level(connected or connect())
    return level
  end

  function core.restore_local(name)
    if type(name) ~= "string" then refuse("the name of a tree in memory must be a string", name) end
    local code = ndb_restore_local(connected or connect(), name, #name)
    if code < 0 then fail(code) end
  end

  -- Locks --------------------------------------------------------------------------------------------

  function core.lock(keys, ms)
    local list = new("nodedb_key[?]", #keys + 1)
    for i = 1, #keys do
      check_key(keys[i])
      list[i - 1].key, list[i - 1].len = keys[i], #keys[i]
    end
    local code = ndb_lock(session or start(), list, #keys, ms)
    if code < 0 then fail(code, keys) end
  end

  function core.unlock(key)
    check_key(key)
    local code = ndb_unlock(session or start(), key, #key)
    if code < 0 then fail(code) end
  end

  function core.unlock_all() ndb_unlock_all(session or start()) end

  core.proxy, core.codes = host.proxy, host.codes
  for name, f in pairs(host.functions) do
    if core[name] == nil then core[name] = f end
  end
  return core
end
