//go:build cgo && luajit

package luajit

import (
	"context"
	"flag"
	"testing"
	"time"

	"github.com/perigeedb/perigee/internal/luajit/torture"
	"github.com/perigeedb/perigee/internal/testsize"
)

// FuzzLoad loads arbitrary text as a script. It must soon end, in an error or a script that runs.
func FuzzLoad(f *testing.F) {
	if testsize.Long() || flag.Lookup("test.fuzz").Value.String() != "" { // TestTorture runs them
		for _, script := range torture.Scripts() {
			f.Add([]byte(script.Code()))
		}
	}
	for seed := range uint64(10) {
		f.Add([]byte(program(seed)))
	}
	for _, text := range []string{
		"local a for _ in (nil):foo() do end", "\x1bLJ\x02\x00", "#!shebang\nreturn 1", "goto a ::a:: goto a",
		"x = [==[ ]=] ]==] --[[ c ]] y = 0x1p-4 z = 1e999 'a' \"\\z\\u{10ffff}\\x7f\"", "f{...}'x'[1]:y''.z = function(...) end",
		"const a = 1 a += 2 return a ? b : c ?? d?.e", "for i = 1, 2 do continue end", "x => y -> z",
		"local a, b <const>, c <close> = 1", "return " + "(((((((1)))))))", "a.b.c[d]:e(f)(g)'h'{i = j}",
	} {
		f.Add([]byte(text))
	}
	w := NewWatchdog()
	f.Cleanup(w.Close)
	f.Fuzz(func(t *testing.T, text []byte) {
		opts := Options{EventTime: 20 * time.Millisecond, BatchTime: 50 * time.Millisecond, Memory: 16 << 20}
		e, err := NewEngine(w, opts, Setup{Output: 1 << 20, Sinks: []Sink{{}}})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		start := time.Now()
		if err := e.Load(context.Background(), "fuzz.lua", text); err == nil {
			e.Run(context.Background(), hostileBatch(), 0)
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}
