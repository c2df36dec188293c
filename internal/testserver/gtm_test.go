package testserver_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/perigeedb/perigee/internal/testserver"
)

// TestGTM sets a node in one process and reads it in another, and sees an error of a routine.
func TestGTM(t *testing.T) {
	if _, err := testserver.FindGTM(); err != nil {
		t.Skip(err)
	}
	routines := fstest.MapFS{"count.m": {Data: []byte("count\twrite $increment(^count,$zcmdline) quit\nbad\twrite 1/0 quit\n")}}
	g, err := testserver.StartGTM(t.Context(), t.TempDir(), routines, testserver.GTMOptions{Buffers: 1024, Allocation: 1000})
	must(t, err)
	for _, want := range []string{"2", "4"} {
		out, err := g.Run(t.Context(), "count", "2")
		must(t, err)
		if strings.TrimSpace(out) != want {
			t.Errorf("a routine wrote %q; expected %q", out, want)
		}
	}
	if _, err := g.Run(t.Context(), "bad^count"); err == nil || !strings.Contains(err.Error(), "Attempt to divide by zero") {
		t.Errorf("a routine that fails: %v", err)
	}
	must(t, g.Stop())
	must(t, g.Stop())
}
