//go:build cgo && lmdb && luajit

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/nodedb"
)

// TestEvalIdle: a script with --nodes that waits for its input does not make the file of the store grow.
func TestEvalIdle(t *testing.T) {
	size := func(idle bool) int64 {
		folder := filepath.Join(t.TempDir(), "store")
		s, err := nodedb.Open(folder, nodedb.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		set := func(i int) {
			t.Helper()
			if err := s.Update(t.Context(), func(tx *nodedb.Tx) error { return tx.Set(nodedb.Name("^n").At(i%50), i) }); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 50 {
			set(i)
		}
		if idle {
			in, events := io.Pipe()
			printed, out := io.Pipe()
			lines := bufio.NewReader(printed)
			var errs bytes.Buffer
			ended := make(chan int, 1)
			const script = `
				local nodedb = require "nodedb"
				local step, state, at
				function main(event)
					if not step then step, state, at = nodedb.node("^n"):subscripts() end
					at = step(state, at)
					event.value, event.at = nodedb.get("^n", 1), at
					return event
				end`
			file := filepath.Join(t.TempDir(), "idle.lua")
			if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
				t.Fatal(err)
			}
			go func() {
				code := perigee([]string{"eval", "--nodes", folder, file}, console{in, out, &errs, os.LookupEnv, nil})
				out.Close()
				ended <- code
			}()
			next := 0
			event := func() {
				t.Helper()
				events.Write([]byte("{}\n"))
				line, err := lines.ReadString('\n')
				if want := fmt.Sprintf(`"at":%d`, next); !strings.Contains(line, want) {
					t.Errorf("eval prints %q, %v, want %s; %s", line, err, want, &errs)
				}
				next++
			}
			event()
			event()
			time.Sleep(time.Second) // within which what nobody uses is released
			defer func() {
				event()
				events.Close()
				if code := <-ended; code != 0 {
					t.Errorf("eval ends with %d: %s", code, &errs)
				}
			}()
		}
		for i := range 600 {
			set(i)
		}
		about, err := os.Stat(filepath.Join(folder, "data.mdb"))
		if err != nil {
			t.Fatal(err)
		}
		return about.Size()
	}
	alone, beside := size(false), size(true)
	if beside > 2*alone {
		t.Errorf("the file has %d bytes beside eval, which waits, %d without it: want at most twice as many", beside, alone)
	}
}
