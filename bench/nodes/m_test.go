package main

import (
	"testing"

	"github.com/perigeedb/perigee/internal/testserver"
)

// TestRoutines runs every routine on few nodes.
func TestRoutines(t *testing.T) {
	if _, err := testserver.FindGTM(); err != nil {
		t.Skip(err)
	}
	m, err := startM(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := m.stop(); err != nil {
			t.Error(err)
		}
	}()
	b := bench{siblings: 2000, operations: 20_000}
	expected := map[string]string{ // what the last operation finds
		"loadInts": "2000", "loadStrings": "rec00002000", "loadDeep": "20000",
		"walkInts": "2000", "walkIntValues": "1000002000", "walkStrings": "rec00002000", "walkStringValues": "1000002000",
	}
	for _, j := range b.jobs() {
		for _, label := range []string{j.m, j.mTransactions} {
			if label == "" {
				continue
			}
			found, err := m.run(t.Context(), label, j.count, j.nodes, j.batch)
			if err != nil {
				t.Fatalf("%s: %v", j.title, err)
			}
			t.Log(label, j.count, j.nodes, j.batch, found)
			if found.operations != j.count || found.took <= 0 {
				t.Errorf("%s: %d operations in %v; expected %d", label, found.operations, found.took, j.count)
			}
			if want := expected[label]; want != "" && found.found != want {
				t.Errorf("%s found %s; expected %s", label, found.found, want)
			}
		}
	}
}
