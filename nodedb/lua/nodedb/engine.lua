-- The modules in Perigee's engine, which opens the store. The engine makes transactions durable: it
-- syncs the store once per batch, before it passes on the results of the batch's events.
return function(face, backend, strings)
  return function(ffi, host)
    host.functions = {
      now = host.now,
      wait = function() end,
      open = function() error("nodedb: NDB_E_ARGUMENT: open: the script's host has already opened the store", 0) end,
    }
    local core = backend(ffi, host)
    return {nodedb = face(core, host.marker), yottadb = (strings(face, core))}
  end
end
