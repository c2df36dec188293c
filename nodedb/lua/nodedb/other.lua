-- The module state: the states of other pipelines, to read. state.open(name) returns the module
-- nodedb over a snapshot of that state, which the engine attaches for a run. Each has a backend of
-- its own; its nodes are not nodes of any other.
return function(face, backend, hide, names)
  local error, format, setmetatable, type = error, string.format, setmetatable, type

  -- The functions that change nodes or wait for locks.
  local CHANGES = {"set", "set_child", "set_new", "set_all", "compare_and_set", "increment", "kill", "kill_value",
    "kill_range", "merge", "expire", "expire_at", "expire_tree", "load_line", "lock", "unlock"}

  return function(ffi, host)
    local reader = ffi.cast("void *(*)(void *, const char *)", host.addresses.ndb_reader)
    local readable, opened = {}, {}
    for _, name in next, names do readable[name] = true end

    local function refuse_changes(core, name)
      local function refuse()
        error(format("nodedb: NDB_E_ARGUMENT: the state %s belongs to another pipeline: this one only reads it",
            name), 0)
      end
      for _, change in next, CHANGES do core[change] = refuse end
    end

    local function new_module(name)
      local own = setmetatable({
        session = function() return reader(ffi.cast("void *", host.session()), name) end,
        functions = {
          now = host.now,
          wait = function() end,
          open = function() error("nodedb: NDB_E_ARGUMENT: open: use open of the module state", 0) end,
        },
      }, {__index = host})
      local core = backend(ffi, own)
      hide(core)
      refuse_changes(core, name)
      return face(core, host.marker .. " of " .. name)
    end

    local M = {}

    function M.open(name)
      if type(name) ~= "string" then
        error("state.open: the name of a state is required, such as " .. format("%q", names[1]), 0)
      end
      if not readable[name] then
        error(format("state.open: the pipeline does not read a state %q: add it to reads: [%s] in the configuration",
          name, table.concat(names, ", ")), 0)
      end
      opened[name] = opened[name] or new_module(name)
      return opened[name]
    end

    return M
  end
end
