package stubs

// Modules returns the modules of every engine in the order of the reference.
func Modules() []Module {
	return []Module{jsonModule, logModule, statsModule, timeModule, osModule, hashModule, reModule, netModule}
}

// StateModules returns the modules for scripts of pipelines with a state, or that read the state of
// another pipeline, in the order of the reference.
func StateModules() []Module { return []Module{timerModule, windowModule, stateModule} }

var stateModule = Module{
	Name: "state", Doc: "The states of other pipelines, to read.",
	Functions: []Function{
		{"open", "name: string", "nodedb nodedb", "a state that the pipeline names in `reads`, with the functions and nodes of [`nodedb`](nodedb-lua.md); a call that would change a node is an error"},
	},
}

var timerModule = Module{
	Name: "timer", Doc: "Timers of a pipeline with a state.",
	Functions: []Function{
		{"after", "seconds: number; key: string|number", "number due", "sets the timer of the key to run after so many seconds, and returns that time. A key has one timer: setting it again moves it"},
		{"at", "time: number; key: string|number", "number due", "sets the timer of the key to run at a time in seconds since 1970. A time in the past means as soon as possible"},
		{"cancel", "key: string|number", "boolean", "removes the timer of the key; returns whether there was one"},
		{"due", "key: string|number", "number? time", "the time of the key's timer, or `nil`"},
	},
}

var windowModule = Module{
	Name: "window", Doc: "Windows, joins, removal of duplicates and rate limits in a pipeline with a state.",
	Functions: []Function{
		{"tumbling", "name: string; options: table", "windows windows", "windows of a fixed length, one after the other: `seconds`"},
		{"session", "name: string; options: table", "windows windows", "windows that end when a key has had no event for a time: `gap`, in seconds"},
		{"join", "name: string; options: table", "join join", "pairs of values of two sides with the same key, whose times differ by at most `seconds`"},
		{"dedupe", "name: string; options: table", "dedupe dedupe", "tells the first event with an id from others within `seconds`"},
		{"limit", "name: string; options: table", "limit limit", "a token bucket for each key: at most `count` at once, refilled evenly within `seconds`"},
	},
	Objects: []Object{
		{"windows", "The object that window.tumbling and window.session return.", []Function{
			{"add", "key: string|number; value?: string|number|boolean; time?: number", "boolean added", "adds a value to the key's window; `false` if the event is late, because its window has already been completed"},
			{"completed", "", "table[] rows", "the windows that have ended since, each once: `{key, from, to, count, sum, min, max, first, last}`. At most 1,000; the next call returns the others"},
			{"get", "key: string|number", "table? row", "the key's latest window, which is not complete yet, in the same form; `nil` if there is none"},
		}},
		{"join", "The object that window.join returns.", []Function{
			{"add", `side: "left"|"right"; key: string|number; value: any; time?: number`, "any[]? matches", "keeps a value, and returns the values of the other side that match it; `nil` if the event is late"},
			{"completed", "", "table[] rows", "the values that have found no match in time, each once: `{side, key, value, time}`. At most 1,000"},
		}},
		{"dedupe", "The object that window.dedupe returns.", []Function{
			{"first", "id: string|number; time?: number", "boolean? first", "`true` for the first event with the id, `false` for its duplicates, `nil` if the event is too late to tell"},
		}},
		{"limit", "The object that window.limit returns.", []Function{
			{"take", "key: string|number; tokens?: number; time?: number", "boolean taken; number seconds", "takes a token, or several, and returns `true` and 0. If the bucket has too few, it takes none, and returns `false` and the seconds until it has"},
		}},
	},
}

var jsonModule = Module{
	Name: "json", Global: true, Doc: "JSON text and values. json is a global too.",
	Values: []Value{{"null", "userdata", "a value that is written as `null`"}},
	Functions: []Function{
		{"encode", "v: any", "string text", "text. Tables as in [documents](documents.md); a value without a JSON form is an error"},
		{"decode", "text: string", "any value; string? reason", "a value; an object or array is read lazily, like the event. `nil` and the reason for invalid JSON"},
		{"array", "t?: any", "table list", "`t`, marked as an array, so that it is `[]` when empty. An object, a scalar, or an array made by `json.array()` becomes the element of a new array: `json.array(\"x\")` is `[\"x\"]`, `json.array(json.array())` is `[[]]`"},
		{"empty", "", "table list", "a new empty array"},
		{"isnull", "v: any; key?: string|integer", "boolean", "whether `v` is `json.null`; with a key, whether the key exists in the table `v` and is `null`"},
	},
}

var logModule = Module{
	Name: "log", Doc: "The log of the engine.",
	Functions: []Function{
		{"debug", "...: any", "", "writes a line for people who look for a mistake"},
		{"info", "...: any", "", "writes a line; `print` does the same"},
		{"warn", "...: any", "", "writes a warning"},
		{"warning", "...: any", "", "the same as `log.warn`"},
		{"error", "...: any", "", "writes an error; the script continues"},
	},
}

var statsModule = Module{
	Name: "stats", Doc: "Measurements, which /metrics shows as perigee_stats_NAME.",
	Functions: []Function{
		{"count", "name: string; amount?: number; labels?: table", "", "a counter; the amount is 1 by default and never negative"},
		{"counter", "name: string; amount?: number; labels?: table", "", "the same as `stats.count`"},
		{"gauge", "name: string; value: number; labels?: table", "", "the last value"},
		{"histogram", "name: string; value: number; labels?: table", "", "a distribution, in buckets from 0.001 to a million"},
	},
}

var timeModule = Module{
	Name: "time", Doc: "The clock, and times as text.",
	Functions: []Function{
		{"now", "", "number seconds", "seconds since 1970, to the microsecond"},
		{"unix", "", "integer seconds", "whole seconds since 1970"},
		{"parse", "text: string", "number? seconds; string? reason", "seconds, from RFC 3339 (`2026-11-22T10:00:00Z`, a space for the `T` allowed) or a date; `nil` and the reason"},
		{"format", "seconds: number; template?: string", "string text", "RFC 3339 in UTC, or the template with the conversion specifiers of [`os.date`](#os), and `%s` (seconds since 1970), `%L` (milliseconds), `%f` (microseconds)"},
	},
}

var osModule = Module{
	Name: "os", Global: true, Doc: "The four functions of Lua's os that scripts have.",
	Functions: []Function{
		{"date", "format?: string; time?: number", "string|osdate text", "text by the conversion specifiers of C99's `strftime` in the C locale; `%c` by default. A leading `!` means UTC, otherwise the local time zone of the process (`TZ`). `*t` and `!*t` return a table with `year month day hour min sec wday yday isdst`. An invalid specifier, or a year outside 0 to 9999, is an error"},
		{"time", "date?: table", "integer seconds", "whole seconds since 1970: now, or of a table with `year`, `month`, `day` and optionally `hour` (12), `min` (0), `sec` (0), read as local time"},
		{"difftime", "t2: number; t1?: number", "number seconds", "the difference in whole seconds"},
		{"clock", "", "number seconds", "processor time of the process, in seconds"},
	},
}

var hashModule = Module{
	Name: "hash", Doc: "Digests and checksums.",
	Functions: []Function{
		{"md5", "text: string", "string hex", "the digest in hexadecimal"},
		{"sha1", "text: string", "string hex", "the digest in hexadecimal"},
		{"sha256", "text: string", "string hex", "the digest in hexadecimal"},
		{"sha512", "text: string", "string hex", "the digest in hexadecimal"},
		{"hmac", `digest: "md5"|"sha1"|"sha256"|"sha512"; key: string; text: string`, "string hex", "a keyed digest: `hash.hmac(\"sha256\", key, text)`"},
		{"crc32", "text: string", "integer", "a 32-bit number"},
		{"fnv1a", "text: string", "integer", "a 32-bit number"},
		{"murmur3", "text: string; seed?: integer", "integer", "a 32-bit number"},
		{"xxhash", "text: string; seed?: integer", "string hex", "64 bits in hexadecimal"},
	},
}

var reModule = Module{
	Name: "re", Doc: "Regular expressions in RE2 syntax. The text comes first.",
	Functions: []Function{
		{"match", "text: string; pattern: string", "string? ...", "the groups, or the whole match if the pattern has none; `nil` for no match"},
		{"find", "text: string; pattern: string; from?: integer", "integer? first; integer? last; string? ...", "first and last byte, then the groups"},
		{"test", "text: string; pattern: string", "boolean", "whether the pattern matches"},
		{"gmatch", "text: string; pattern: string", "fun(): string?, ...", "an iterator over the results of `re.match`"},
		{"all", "text: string; pattern: string; count?: integer", "table list", "a list of the matches; a list of lists if the pattern has several groups"},
		{"replace", "text: string; pattern: string; with: string; count?: integer", "string text; integer count", "the new text and the number of replacements; `$1` or `${name}` is a group, `$$` a dollar sign"},
		{"split", "text: string; pattern: string; count?: integer", "string[] parts", "a list of the parts"},
	},
}

var netModule = Module{
	Name: "net", Doc: "Addresses of machines and networks.",
	Functions: []Function{
		{"getmac", "", "string? address; string? reason", "the hardware address of the first interface that has one"},
		{"addr", "host: string", "string? ip; string? reason", "the IP address of the host; `nil` and the reason. The function asks the resolver, so it may wait"},
		{"parse", "text: string", "table? address; string? reason", "`{ip, version, private, loopback, multicast, link_local}`, for a prefix also `bits` and `network`; `nil` and the reason"},
		{"contains", "prefix: string|string[]; ip: string", "boolean", "whether the prefix (`10.0.0.0/8`), or one of a list of prefixes, contains the address"},
	},
}
