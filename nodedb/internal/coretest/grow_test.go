//go:build cgo && lmdb

package coretest

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/nodedb"
)

func init() {
	childWork["grow"] = func(arguments []string) error {
		store, err := nodedb.Open(arguments[0], nodedb.Options{NoWait: true})
		if err != nil {
			return err
		}
		value := strings.Repeat("v", 60_000)
		for i := range 500 { // 30 MB, but a new store has only 16 MiB
			if err := store.Update(context.Background(), func(tx *nodedb.Tx) error { return tx.Set(nodedb.Name("^g").At(i), value) }); err != nil {
				return err
			}
		}
		if err := store.Close(); err != nil {
			return err
		}
		fmt.Println("grown")
		return nil
	}
}

// TestAnotherProcessGrowsTheStore reads a store that has outgrown this process's map, with
// snapshots from before and after.
func TestAnotherProcessGrowsTheStore(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "store")
	store, err := nodedb.Open(folder, nodedb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	count := func(tx *nodedb.Tx) uint64 {
		n, err := tx.Count(context.Background(), nodedb.Name("^g"))
		if err != nil {
			t.Error(err)
		}
		return n
	}
	err = store.View(t.Context(), func(tx *nodedb.Tx) error {
		if n := count(tx); n != 0 {
			t.Errorf("%d nodes in a new store", n)
		}
		if line := startChild(t, "grow", folder).read(t); line != "grown" {
			t.Error(line)
		}
		if n := count(tx); n != 0 {
			t.Errorf("%d nodes in a snapshot from before", n)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := store.View(t.Context(), func(tx *nodedb.Tx) error {
		if n := count(tx); n != 500 {
			t.Errorf("%d nodes, want 500", n)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}
