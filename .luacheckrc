std = "luajit"
globals = { "main", "timer" }
files["source/redis/*.lua"] = { read_globals = { "redis", "KEYS", "ARGV" } }
files["sink/redis/*.lua"] = { read_globals = { "redis", "KEYS", "ARGV", "cjson", "struct", "less" } }
files["internal/luajit/*.lua"] = { globals = { "perigee_library", "perigee_log", "perigee_wait" }, read_globals = { "rawlen" } }
files["engine/trial/*.lua"] = { globals = { "perigee_call" }, read_globals = { "json" } }
files["nodedb/lua/**/*.lua"] = { std = "max", ignore = { "581" } }
exclude_files = { "internal/luajit/torture/*.lua", "script/stubs/*.lua", "**/testdata/**" }
