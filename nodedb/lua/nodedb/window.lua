-- The module window: tumbling and session windows, joins, removal of duplicates and rate limits,
-- over the nodes of a pipeline with a state.
--
-- An object keeps its state in one tree. Time is that of the clock, or of the events; then the
-- present is the time of the latest event so far. Stored times alone decide what has ended. Timers
-- only make sure that a script asks.
--
-- tree("end", time, …) lists what ends at a time, so that the first entries are the next to end.
return function(core, host, timer)
  local error, pairs, tonumber, tostring, type = error, pairs, tonumber, tostring, type
  local floor, format, max, min = math.floor, string.format, math.max, math.min
  local append, get, set, set_new = core.append, core.get, core.set, core.set_new
  local increment, kill, next_sibling = core.increment, core.kill, core.next_sibling
  local encode, decode = host.json.encode, host.json.decode
  local ROWS_MAX = 1000 -- of one call of completed
  local REVERSE, VALUES = 4, 8 -- flags of iterations, from nodedb.h

  local function fail(text, ...) error("window." .. format(text, ...), 0) end

  -- at returns the key of a node below another.
  local function at(key, first, ...)
    if first == nil then return key end
    local below = append(key, first)
    return at(below, ...)
  end

  -- first_time returns the first subscript below a key, which is not "".
  local function first_time(key)
    local before = append(key, "") -- "" precedes all others
    return next_sibling(before, false)
  end

  local function first_below(key)
    local before = append(key, "")
    if core.data(before) > 0 then return "" end
    return next_sibling(before, false)
  end

  -- Options ---------------------------------------------------------------------------------------

  local function check_options(kind, options, required)
    if type(options) ~= "table" then
      fail("%s: argument 2 must be a table of options, got a %s", kind, type(options))
    end
    local known = {time = true, late = true, idle = true}
    for name in pairs(required) do known[name] = true end
    for name, v in pairs(options) do
      if not known[name] then fail("%s: unknown option %s", kind, tostring(name)) end
      if name ~= "time" and (type(v) ~= "number" or not (v >= 0 and v < 1e12)) then
        fail("%s: %s must be a number, 0 or more, got %s", kind, name, tostring(v))
      end
    end
    for name in pairs(required) do
      if options[name] == nil or options[name] == 0 then fail("%s: the option %s must be more than 0", kind, name) end
    end
    if options.time ~= nil and options.time ~= "event" and options.time ~= "clock" then
      fail('%s: time must be "event" or "clock", got %s', kind, tostring(options.time))
    end
    if options.time ~= "event" and (options.late or options.idle) then
      fail('%s: late and idle need time = "event": by the clock no event is late', kind)
    end
  end

  local kinds = {} -- by name of the tree

  -- new_object returns what all kinds have.
  local function new_object(kind, name, options, required)
    check_options(kind, options, required)
    if type(name) ~= "string" or name:sub(1, 1) ~= "^" then
      fail("%s: argument 1 must be the name of a stored tree, such as \"^%ss\", got %s", kind, kind, tostring(name))
    end
    if kinds[name] and kinds[name] ~= kind then fail("%s: %s is the tree of a %s", kind, name, kinds[name]) end
    kinds[name] = kind
    local tree = core.root(name)
    return {kind = kind, name = name, tree = tree, ends = append(tree, "end"), present = append(tree, "time"),
      active = append(tree, "active"), by_events = options.time == "event", late = options.late or 0,
      idle = options.idle}
  end

  -- Time ------------------------------------------------------------------------------------------

  -- present returns the present of an object; nil before the first event.
  local function present(o)
    if o.by_events then return get(o.present) end
    return host.time()
  end

  -- arm sets the object's timer, unless it is due earlier.
  local function arm(o, due)
    if not host.handles_timers then return end
    local set_to = timer.due(o.name)
    if not set_to or set_to > due then timer.at(due, o.name) end
  end

  -- take_time returns the time of an event, and the present with it.
  local function take_time(o, f, time)
    if not o.by_events then
      if time ~= nil then fail('%s.%s: pass no time, or create the object with time = "event"', o.kind, f) end
      time = host.time()
      return time, time
    end
    if type(time) ~= "number" or time - time ~= 0 then
      fail('%s.%s: the last argument must be the time of the event in seconds, got %s', o.kind, f, tostring(time))
    end
    return time, max(time, get(o.present) or time)
  end

  -- advance records the time of an event that is not late.
  local function advance(o, now)
    if not o.by_events then return end
    if get(o.present) ~= now then set(o.present, now) end
    if o.idle then
      local clock = host.time()
      if get(o.active) ~= clock then set(o.active, clock) end
      arm(o, clock + o.idle)
    end
  end

  -- listed adds an entry to those that end at a time, and unlisted removes it.
  local function listed(o, time, ...)
    set(at(o.ends, time, ...), "")
    if not o.by_events then arm(o, time) end
  end

  local function unlisted(o, time, ...) kill(at(o.ends, time, ...)) end

  -- ended returns the time of the entries that are the next to end, if they have ended.
  local function ended(o, now)
    local time = first_time(o.ends)
    if time and time + o.late <= now then return time end
  end

  local function key_of(o, f, key)
    key = host.key(key)
    local kind = type(key)
    if kind ~= "string" and kind ~= "number" then
      fail("%s.%s: the key must be a text or a number, got a %s", o.kind, f, kind)
    end
    return key
  end

  -- Windows ---------------------------------------------------------------------------------------

  -- suffix returns what the key of a subnode has after that of its parent.
  local function suffix(name)
    local parent = core.root "^x"
    return (append(parent, name)):sub(#parent + 1)
  end
  local COUNT, SUM, MIN, MAX = suffix "count", suffix "sum", suffix "min", suffix "max"
  local FIRST, LAST, FIRST_TIME, LAST_TIME = suffix "first", suffix "last", suffix "first_time", suffix "last_time"

  -- fold adds a value at a time to the aggregates of a window.
  local function fold(window, value, time)
    increment(window .. COUNT, 1)
    if value == nil then return end
    if type(value) == "number" then
      increment(window .. SUM, value)
      local node = window .. MIN
      local known = get(node)
      if not known or value < known then set(node, value) end
      node = window .. MAX
      known = get(node)
      if not known or value > known then set(node, value) end
    end
    local node = window .. FIRST_TIME
    local known = get(node)
    if not known or time < known then
      set(node, time)
      set(window .. FIRST, value)
    end
    node = window .. LAST_TIME
    known = get(node)
    if not known or time >= known then
      set(node, time)
      set(window .. LAST, value)
    end
  end

  local function less(a, b) return a < b end
  local function at_least(a, b) return a >= b end
  local function more(a, b) return a > b end

  -- combine adds the aggregates of one window to those of another.
  local function combine(into, from)
    -- take takes a field from the other window if it is better there.
    local function take(field, better)
      local mine, other = get(into .. field), get(from .. field)
      if other == nil or mine ~= nil and not better(other, mine) then return false end
      set(into .. field, other)
      return true
    end
    increment(into .. COUNT, get(from .. COUNT))
    local sum = get(from .. SUM)
    if sum ~= nil then increment(into .. SUM, sum) end
    take(MIN, less)
    take(MAX, more)
    if take(FIRST_TIME, less) then set(into .. FIRST, get(from .. FIRST)) end
    if take(LAST_TIME, at_least) then set(into .. LAST, get(from .. LAST)) end
  end

  local function row(window, key, from, to)
    local sum = get(window .. SUM) -- in exact decimal, which a double may not hold
    return {key = key, from = from, to = to, count = get(window .. COUNT), sum = sum and tonumber(sum),
      min = get(window .. MIN), max = get(window .. MAX), first = get(window .. FIRST),
      last = get(window .. LAST)}
  end

  -- completed calls take(time, rows) for each entry that has ended, which adds to rows, and returns
  -- rows. It sets the timer for the next entries.
  local function completed(o, take)
    local rows, now = {}, present(o)
    if not now then return rows end
    local idle = o.idle and host.time() - get(o.active) >= o.idle
    while #rows < ROWS_MAX do
      local time = ended(o, idle and math.huge or now)
      if not time then break end
      if time + o.late > now then -- what has ended stays so
        now = time + o.late
        set(o.present, now)
      end
      take(time, rows)
    end
    local time = first_time(o.ends)
    if time and not o.by_events then arm(o, time) end
    if time and o.idle then arm(o, max(host.time(), get(o.active) + o.idle)) end
    return rows
  end

  -- next_listed removes the first entry that ends at a time, and returns its subscripts.
  local function next_listed(o, time, depth)
    local key, second, third = (append(o.ends, time)), nil, nil
    local first = first_below(key)
    key = append(key, first)
    if depth > 1 then
      second = first_below(key)
      key = append(key, second)
    end
    if depth > 2 then
      third = first_below(key)
      key = append(key, third)
    end
    kill(key)
    return first, second, third
  end

  local M = {}

  local function window_methods(o)
    local open = append(o.tree, "open")
    local object = {name = o.name}

    function object.completed()
      return completed(o, function(time, rows)
        local key, from = next_listed(o, time, 2)
        local window = at(open, key, from)
        rows[#rows + 1] = row(window, key, from, o.to(window, time))
        kill(window)
      end)
    end

    function object.get(_, key)
      key = key_of(o, "get", key)
      local from = core.siblings(append(open, key), REVERSE, nil, nil, 1)()
      if from == nil then return nil end
      local window = at(open, key, from)
      return row(window, key, from, o.to(window, from + o.length))
    end
    return object, open
  end

  local function value_of(o, value)
    local kind = type(value)
    if kind == "userdata" and host.digits(value) then return tonumber(host.digits(value)) end
    local taken = kind == "number" and value - value == 0 or kind == "string" or kind == "boolean" or kind == "nil"
    if not taken then
      fail("%s.add: the value must be a finite number, a text or a boolean, got %s", o.kind, tostring(value))
    end
    return value
  end

  function M.tumbling(name, options)
    local o = new_object("tumbling", name, options, {seconds = true})
    o.length = options.seconds
    function o.to(_, time) return time end
    local object, open = window_methods(o)

    function object.add(_, key, value, time)
      key = key_of(o, "add", key)
      value = value_of(o, value)
      local t, now = take_time(o, "add", time)
      local from = floor(t / o.length) * o.length
      local to = from + o.length
      if to + o.late <= now then return false end
      advance(o, now)
      local window = at(open, key, from)
      if core.data(window) == 0 then listed(o, to, key, from) end
      fold(window, value, t)
      return true
    end
    return object
  end

  function M.session(name, options)
    local o = new_object("session", name, options, {gap = true})
    o.length = options.gap
    function o.to(window) return get(window) end
    local object, open = window_methods(o)

    -- Sessions that the event touches become one. The value of a session's node is its last time.
    function object.add(_, key, value, time)
      key = key_of(o, "add", key)
      value = value_of(o, value)
      local t, now = take_time(o, "add", time)
      local sessions, from, to = append(open, key), t, t
      local touched = {}
      local start = next_sibling(append(sessions, t), true)
      if start and get((append(sessions, start))) + o.length > t then touched[1] = start end
      start = core.data((append(sessions, t))) > 0 and t or next_sibling(append(sessions, t), false)
      if start and start - o.length < t then touched[#touched + 1] = start end
      for i = 1, #touched do
        from = min(from, touched[i])
        to = max(to, get((append(sessions, touched[i]))))
      end
      if to + o.length + o.late <= now then return false end
      advance(o, now)
      local session = append(sessions, from)
      for i = 1, #touched do
        local other = append(sessions, touched[i])
        unlisted(o, get(other) + o.length, key, touched[i])
        if touched[i] ~= from then
          combine(session, other)
          kill(other)
        end
      end
      set(session, to)
      listed(o, to + o.length, key, from)
      fold(session, value, t)
      return true
    end
    return object
  end

  -- Joins -----------------------------------------------------------------------------------------

  function M.join(name, options)
    local o = new_object("join", name, options, {seconds = true})
    local object = {name = o.name}
    local sides = {left = append(o.tree, "left"), right = append(o.tree, "right")}
    local MATCHED = "matched"

    -- The value of a side's node (key, time, number) is the JSON of the event's value.
    function object.add(_, side, key, value, time)
      if not sides[side] then fail('join.add: the side must be "left" or "right", got %s', tostring(side)) end
      key = key_of(o, "add", key)
      local t, now = take_time(o, "add", time)
      if t + o.late < now then return nil end
      advance(o, now)
      local text = encode(value)
      local number = increment(append(o.tree, "number"), 1)
      local mine = at(sides[side], key, t, number)
      set(mine, text)
      listed(o, t + options.seconds, side, key, number)
      set(at(o.tree, "of", number), t)
      local others, found = append(side == "left" and sides.right or sides.left, key), {}
      for moment in core.siblings(others, 0, t - options.seconds, t + options.seconds) do
        local same = append(others, moment)
        for n, match in core.siblings(same, VALUES) do
          found[#found + 1] = decode(match)
          local matched = at(same, n, MATCHED)
          if not get(matched) then set(matched, true) end
        end
      end
      if #found > 0 then set(append(mine, MATCHED), true) end
      return found
    end

    -- completed returns the values that have found no match in time.
    function object.completed()
      return completed(o, function(ending, rows)
        local side, key, number = next_listed(o, ending, 3)
        local of = at(o.tree, "of", number)
        local t = get(of)
        local node = at(sides[side], key, t, number)
        if not get((append(node, MATCHED))) then
          rows[#rows + 1] = {side = side, key = key, value = decode(get(node)), time = t}
        end
        kill(of)
        kill(node)
      end)
    end
    return object
  end

  -- Duplicates and limits -------------------------------------------------------------------------

  -- By the clock, nodes expire. By events, each call removes up to two entries that have ended.
  local function forget(o, now, depth, key)
    for _ = 1, 2 do
      local time = o.by_events and ended(o, now)
      if not time then return end
      kill(at(key, next_listed(o, time, depth)))
    end
  end

  local function expire(node, seconds) core.expire(node, floor(seconds * 1000) + 1) end

  function M.dedupe(name, options)
    local o = new_object("dedupe", name, options, {seconds = true})
    local object, seconds, ids = {name = o.name}, options.seconds, append(o.tree, "id")
    o.late = options.late or seconds

    -- By events, the subnodes of an id are the times of its first events.
    local function is_first(id, t)
      local node = append(id, t)
      if core.data(node) > 0 then return false end
      local before, after = next_sibling(node, true), next_sibling(node, false)
      return not (type(before) == "number" and before > t - seconds or after and after < t + seconds)
    end

    function object.first(_, id, time)
      id = key_of(o, "first", id)
      local t, now = take_time(o, "first", time)
      local node = append(ids, id)
      if not o.by_events then
        if not set_new(node, t) then return false end
        expire(node, seconds)
        return true
      end
      if t + o.late < now then return nil end
      advance(o, now)
      forget(o, now, 2, ids)
      if not is_first(node, t) then return false end
      set(append(node, t), "")
      listed(o, t + seconds, id, t) -- all events from then + late on are later by seconds, or late
      return true
    end
    return object
  end

  function M.limit(name, options)
    local o = new_object("limit", name, options, {count = true, seconds = true})
    local object, interval, keys = {name = o.name}, options.seconds / options.count, append(o.tree, "key")

    -- The value of a key is the time at which all of its tokens are there again.
    function object.take(_, key, tokens, time)
      key = key_of(o, "take", key)
      if tokens == nil then tokens = 1 end
      if type(tokens) ~= "number" or not (tokens > 0 and tokens <= options.count) then
        fail("limit.take: the number of tokens must be above 0, and at most %s, got %s", tostring(options.count),
          tostring(tokens))
      end
      local t, now = take_time(o, "take", time)
      advance(o, now)
      forget(o, now, 1, keys)
      local node = append(keys, key)
      local before = get(node)
      local full = max(before or t, t) + tokens * interval
      local wait = full - options.seconds - t
      if wait > 1e-6 then return false, wait end
      if before and o.by_events then unlisted(o, before, key) end
      set(node, full)
      if o.by_events then listed(o, full, key) else expire(node, full - t) end
      return true, 0
    end
    return object
  end

  return M
end
