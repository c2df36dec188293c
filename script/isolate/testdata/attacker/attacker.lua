-- A script for tests. While it is loaded, and again for each event, it searches for data of the
-- engine and the machine.
local secret = "perigee-test-" .. "secret"
local log = require "log"

local function search()
  local found = {attempts = 0, leaks = {}}
  local function try(what, f, ...)
    found.attempts = found.attempts + 1
    local ok, result = pcall(f, ...)
    if ok and result ~= nil and result ~= false then
      found.leaks[#found.leaks + 1] = what .. ": " .. tostring(result):sub(1, 100)
    end
  end
  for _, name in ipairs {
    "secret.yaml", "secret.txt", "lib.secret.txt", "../secret", "/etc/passwd", "etc.passwd", "..", ".", "", "secret/", "lib/secret",
    "secret\0", "secret.lua\0.txt", "./secret", "lib..secret", "file:///etc/passwd", "ffi", "jit", "jit.util", "io", "debug", "package", "os",
    ("a"):rep(300), ("a."):rep(150) .. "a", ("x"):rep(1000000),
  } do
    try("require " .. name:sub(1, 50), require, name)
  end
  for i = 1, 2000 do try("require of a missing name", require, "missing" .. i) end
  for _, name in ipairs {"PATH", "HOME", "TZ", "TMPDIR", "PERIGEE_TEST_SECRET", "PERIGEE_SCRIPT_WORKER", "GOMAXPROCS"} do
    try("os.getenv of " .. name, function() return os.getenv(name) end)
  end
  for _, name in ipairs {"io", "debug", "package", "jit", "ffi", "dofile", "loadfile", "load", "loadstring", "getfenv", "setfenv", "newproxy", "module"} do
    try("global " .. name, function() return _G and _G[name] end)
    try("global " .. name .. " of the environment of the string functions", function() return getmetatable("").__index[name] end)
  end
  try("os.execute", function() return os.execute("true") end)
  try("os.remove", function() return os.remove("/tmp/perigee-test") end)
  try("os.tmpname", function() return os.tmpname() end)
  try("io.open", function() return io.open("/etc/passwd"):read() end)
  try("an address", function() return require("net").addr("localhost") end)
  try("the secret in a traceback", function()
    local _, why = pcall(require, "secret")
    return tostring(why):find(secret, 1, true)
  end)
  if #found.leaks == 0 then found.leaks = nil end
  return found
end

local loading = search()
log.info(#(loading.leaks or {}) .. " leaks")

function main()
  return {loading = loading, running = search()}
end
