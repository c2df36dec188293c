---@meta globals

---An event, or an object or array in it. Read and write fields as in a table; parts that the script
---does not change keep their bytes. A document is valid until main returns.
---@class event
---@field [string] any
---@field [integer] any

---What to() returns, for main to return.
---@class routed

---Routes an event to a sink, or to several. It goes to no other sink.
---@param sink string|string[] name of the sink, or a list of names
---@param value event|table|nil an event, a table or a list of them; nil sends nothing
---@return routed
function to(sink, value) end

---Writes a line to the log, like log.info.
---@param ... any
function print(...) end

---Returns a module: json, log, net, stats, time, hash, re, nodedb, in a pipeline with a state timer
---and window, one of the program that runs the script, or a Lua file beside the script
---("lib.helpers" is lib/helpers.lua).
---@param name string
---@return any
function require(name) end
