-- The module timer: timers of a pipeline with a state, in the tree ^%timers, which nodedb hides from
-- scripts. ^%timers("key", key) is the time of a timer, and ^%timers("due", time, key) orders the
-- timers by it. host.begin_timer(key, due) removes a timer that is due, for the engine.
return function(core, host)
  local error, format, type = error, string.format, type
  local append, get, set, kill_value = core.append, core.get, core.set, core.kill_value
  local TIMERS = "^%timers\0" -- the key of the name
  local KEYS, DUE = append(TIMERS, "key"), append(TIMERS, "due")

  local function fail(text, ...) error("timer." .. format(text, ...), 0) end

  local function check_number(f, what, n)
    if type(n) == "number" and n - n == 0 then return end
    fail("%s: the %s must be a number of seconds, got %s", f, what, tostring(n))
  end

  -- key_of returns the node of a timer, and its key.
  local function key_of(f, key)
    key = host.key(key)
    local kind = type(key)
    if kind ~= "number" and not (kind == "string" and host.is_text(key)) then
      if kind == "string" then kind = "string that is not UTF-8" end
      fail("%s: the key must be a text or a number, got a %s", f, kind)
    end
    local node = append(KEYS, key)
    return node, key
  end

  local function due_node(due, key)
    local node = append(append(DUE, due), key) -- without the second result of append
    return node
  end

  local function remove(node, key)
    local due = get(node)
    if due == nil then return nil end
    kill_value(node)
    kill_value(due_node(due, key))
    return due
  end

  local function put(f, due, key)
    if not host.handles_timers then
      fail("%s: the script has no function timer: define 'function timer(key, due)' as a global", f)
    end
    local node
    node, key = key_of(f, key)
    remove(node, key)
    set(node, due)
    set(due_node(due, key), "")
    return due
  end

  local M = {}

  function M.at(time, key)
    check_number("at", "time", time)
    return put("at", time, key)
  end

  function M.after(seconds, key)
    check_number("after", "duration", seconds)
    if seconds < 0 then fail("after: the duration must be 0 or more, got %s", tostring(seconds)) end
    return put("after", host.time() + seconds, key)
  end

  function M.cancel(key)
    return remove(key_of("cancel", key)) ~= nil
  end

  function M.due(key)
    local node = key_of("due", key)
    return get(node)
  end

  -- A timer that was cancelled or moved since it was found due does not run, unless it is a dead
  -- letter that runs again.
  function host.begin_timer(key, due)
    local node = append(KEYS, key)
    if get(node) ~= due then return host.is_retry() end
    remove(node, key)
    return true
  end

  return M
end
