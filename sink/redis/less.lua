-- Prefix of the scripts that compare positions: numbers of 64 bits do not fit Lua's, so
-- they are compared by length and digits.
local function less(a, b) -- luacheck: ignore 211
  if #a ~= #b then return #a < #b end
  return a < b
end
