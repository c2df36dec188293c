-- The reference describes all functions and methods, and no others.
local T = {}

function T.every_function_is_described(ndb, t)
  local described = {}
  for _, section in ipairs(require "nodedb.api") do
    for _, entry in ipairs(section) do
      local kind, name = entry[1]:match("^(nodedb%.)([%w_]+)")
      if not kind then kind, name = entry[1]:match("^(node:)([%w_]+)") end
      if kind then described[kind .. name] = true end
    end
  end
  for name in pairs(ndb) do
    if not name:find("^NDB_") then
      t.equal(described["nodedb." .. name], true, "nodedb." .. name .. " is described")
    end
    described["nodedb." .. name] = nil
  end
  for name in ndb.method_names:gmatch("[%w_]+") do
    t.equal(described["node:" .. name], true, "node:" .. name .. " is described")
    described["node:" .. name] = nil
  end
  t.equal(next(described), nil, "described and absent")
end

-- Prints the page, for go test -update.
function T.print(_, t)
  local out = assert(io.open(t.folder .. "/page.md", "w"))
  local function write(...) out:write(..., "\n") end
  write "# The Lua module nodedb"
  write ""
  write "<!-- Printed from nodedb/lua/nodedb/api.lua by: go test ./nodedb/lua -run TestReference -update -->"
  write ""
  write [[
`require "nodedb"` gives scripts a hierarchical, transactional database: in Perigee's engine, and in any LuaJIT or Lua
5.1 to 5.4, for which `make nodedb-lua`, or `luarocks make` in `nodedb/lua`, builds it. Scripts that were written for
lua-yottadb can `require "yottadb"`. [Moving from lua-yottadb or M](../howto/from-lua-yottadb-or-m.md) lists what
differs.]]
  for _, section in ipairs(require "nodedb.api") do
    write ""
    write("## " .. section.title)
    if section.text then
      write ""
      write(section.text)
    end
    if #section > 0 then
      write ""
      write "| call | what it does |"
      write "|---|---|"
      for _, entry in ipairs(section) do
        write("| `" .. entry[1]:gsub("|", "\\|") .. "` | " .. entry[2]:gsub("\n", " "):gsub("|", "\\|") .. " |")
      end
    end
  end
  out:close()
end

return T
