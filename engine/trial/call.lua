local returned = require "MODULE"

-- find returns a global, or a field of what the script returned, by a path such as "lib.trim".
local function find(path)
  local value, first
  for name in path:gmatch "[^.]+" do
    if not first then
      first, value = name, _G[name]
      if value == nil and type(returned) == "table" then value = returned[name] end
    elseif type(value) == "table" then
      value = value[name]
    else
      value = nil
    end
  end
  if type(value) ~= "function" then
    error("the script has no function " .. path .. ": define it as a global, without local, or return it in a table", 0)
  end
  return value
end

local function pack(...)
  local results = json.array {}
  for i = 1, select("#", ...) do
    local value = select(i, ...)
    if value == nil then value = json.null end
    results[i] = value
  end
  return {r = results}
end

function perigee_call(call)
  return pack(find(call.f)(unpack(call.a, 1, call.n)))
end
