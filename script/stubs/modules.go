package stubs

// Modules returns the modules of every engine in the order of the reference.
func Modules() []Module {
	return []Module{jsonModule, logModule, statsModule, timeModule, osModule, hashModule, reModule, netModule}
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
