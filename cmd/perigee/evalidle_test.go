//go:build cgo && lmdb && luajit

package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
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
			var errs bytes.Buffer
			ended := make(chan int)
			const script = `local nodedb = require "nodedb"
				kept = kept or nodedb.node("^n"):subscripts()
				event.value, event.next = nodedb.get("^n", 1), kept()
				return event`
			go func() {
				ended <- perigee([]string{"eval", "--nodes", folder, "-e", script}, console{in, out, &errs, os.LookupEnv, nil})
			}()
			event := func() {
				t.Helper()
				events.Write([]byte("{}\n"))
				if n, err := printed.Read(make([]byte, 1000)); n == 0 {
					t.Fatalf("eval prints nothing: %v", err)
				}
			}
			event()
			event()
			time.Sleep(time.Second) // within which what nobody uses is released
			defer func() {
				event()
				go io.Copy(io.Discard, printed)
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
