-- The modules in Perigee's engine, which opens the store. What a transaction does is durable when
-- the engine says so: it syncs the store once per batch, before it hands on what the events of the
-- batch have returned.
return function(face, backend, strings)
  return function(ffi, host)
    host.functions = {
      now = host.now,
      wait = function() end,
      open = function() error("nodedb: NDB_E_ARGUMENT: the script's host has opened the store", 0) end,
    }
    local core = backend(ffi, host)
    return {nodedb = face(core, host.marker), yottadb = (strings(face, core))}
  end
end
