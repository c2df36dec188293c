-- The modules in the script of a pipeline with a state, over the session that the engine attaches
-- for a run, and the module state for the states of other pipelines. Scripts do not see the stored
-- trees whose names begin with ^%.
return function(face, backend, strings, new_timer, new_window, new_other, has)
  local byte, type = string.byte, type

  local function is_reserved(name) return type(name) == "string" and byte(name, 1) == 94 and byte(name, 2) == 37 end

  -- hide makes the backend's iterations over names skip reserved ones.
  local function hide(core)
    local siblings, next_sibling, next_node, parent = core.siblings, core.next_sibling, core.next_node, core.parent

    function core.siblings(key, ...)
      local following = siblings(key, ...)
      if key ~= "" then return following end
      return function()
        local name
        repeat name = following() until not is_reserved(name)
        return name
      end
    end

    function core.next_sibling(key, reverse)
      local following = next_sibling(key, reverse)
      while is_reserved(following) and not parent(key) do
        key = following .. "\0" -- the key of this name
        following = next_sibling(key, reverse)
      end
      return following
    end

    function core.next_node(key, reverse)
      local following = next_node(key, reverse)
      if is_reserved(following) then return nil end -- such names are the first ones
      return following
    end
  end

  return function(ffi, host)
    host.reserved = true
    local modules = {}
    if #has.reads > 0 then modules.state = new_other(face, backend, hide, has.reads)(ffi, host) end
    if not has.keeps then return modules end
    host.functions = {
      now = host.now,
      wait = function() end,
      open = function() error("nodedb: NDB_E_ARGUMENT: open: the state of the pipeline is the store", 0) end,
    }
    local core = backend(ffi, host)
    hide(core)
    local time = ffi.cast("double *", host.clock)
    function host.time() return time[0] end
    local retry = ffi.cast("double *", host.retry)
    function host.is_retry() return retry[0] ~= 0 end
    -- key returns a key of an event: a number that no double holds becomes the text of its digits.
    function host.key(v)
      if type(v) == "userdata" then return host.digits(v) or v end
      return v
    end
    local timer = new_timer(core, host)
    modules.nodedb, modules.yottadb = face(core, host.marker), (strings(face, core))
    modules.timer, modules.window = timer, new_window(core, host, timer)
    return modules
  end
end
