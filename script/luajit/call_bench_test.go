//go:build cgo && luajit

package luajit_test

import (
	"context"
	"testing"

	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/luajit"
)

// BenchmarkCall reports the time of one event that calls something.
func BenchmarkCall(b *testing.B) {
	host := script.Module{Name: "host", Functions: map[string]script.Func{
		"nothing": func(context.Context, []any) ([]any, error) { return nil, nil },
	}}
	for _, job := range []struct{ name, text string }{
		{"none", `function main(e) return e end`},
		{"go", `local host = require "host" function main(e) host.nothing() return e end`},
		{"crc32", `local hash = require "hash" function main(e) local h = hash.crc32(e.city) return e end`},
		{"re", `local re = require "re" function main(e) local m = re.match(e.city, "^S(.*)e$") return e end`},
		{"time.now", `local time = require "time" function main(e) local t = time.now() return e end`},
		{"stats.count", `local stats = require "stats" function main(e) stats.count("events") return e end`},
		{"json.encode", `local json = require "json" function main(e) local s = json.encode(e) return e end`},
	} {
		b.Run(job.name, func(b *testing.B) {
			opts := script.Options{Sinks: []script.Sink{{}}, Modules: []script.Module{host}, Stats: &script.Stats{}}
			benchmarkWith(b, luajit.Language, job.text, trimmed, 256, opts)
		})
	}
}

func BenchmarkValue(b *testing.B) {
	const label = `function main(row) return row.city .. ":" .. tostring(row.amount * 1.07) end`
	opts := script.Options{Sinks: []script.Sink{{}}, ReturnsValue: true}
	for _, lang := range []script.Language{luajit.Language, luajit.Interpreted} {
		b.Run(lang.Name, func(b *testing.B) { benchmarkWith(b, lang, label, row, 256, opts) })
	}
}
