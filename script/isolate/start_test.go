//go:build linux

package isolate

import (
	"testing"

	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/lua"
)

// BenchmarkStart starts a worker and loads a script in it.
func BenchmarkStart(b *testing.B) {
	s := load(b, lua.Language(), script.Code{Name: "a.lua", Text: []byte("function main(event) return event end")}, script.Options{}).(*isolatedScript)
	for b.Loop() {
		p, err := s.open(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		p.Close()
	}
}
