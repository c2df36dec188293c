//go:build cgo && lmdb

package coretest

import (
	"context"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/nodedb"
)

// TestIdleSessions checks that the file does not grow while others write and sessions are idle in
// the pool.
func TestIdleSessions(t *testing.T) {
	s, err := nodedb.Open(t.TempDir(), nodedb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	text := strings.Repeat("x", 1000)
	write := func() uint64 {
		t.Helper()
		for round := range 40 {
			err := s.Update(context.Background(), func(tx *nodedb.Tx) error {
				for i := range 200 {
					if err := tx.Set(nodedb.Name("^idle").At(i), fmt.Sprint(round, text)); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		stat, err := s.Stat()
		if err != nil {
			t.Fatal(err)
		}
		return stat.UsedBytes + stat.FreeBytes
	}
	before := write()
	// Two sessions at once: the one that reads inside stays idle in the pool from then on.
	get := func(inside func() error) error {
		return s.View(context.Background(), func(tx *nodedb.Tx) error {
			if _, err := tx.Get(nodedb.Name("^idle").At(1)); err != nil {
				return err
			}
			return inside()
		})
	}
	if err := get(func() error { return get(func() error { return nil }) }); err != nil {
		t.Fatal(err)
	}
	if after := write(); after > before+before/2 {
		t.Errorf("the file grew from %d to %d bytes while a session waited", before, after)
	}
}

const idleNodes = 500

func init() {
	// idle FOLDER WHAT: opens the store, reads, and then is idle until its input ends; then it
	// continues an iterator that it has kept.
	childWork["idle"] = func(arguments []string) (err error) {
		defer catchFault(&err)
		store, err := openCoreStore(arguments[0], coreOptions{readOnly: arguments[1] == "readonly"})
		if err != nil {
			return err
		}
		var s crashSession
		var iterators []coreIterator
		if what := arguments[1]; what != "store" {
			session, err := store.session()
			if err != nil {
				return err
			}
			s = crashSession{session}
			s.count(crashKey("^idle(1)"))
			for range 3 {
				if what == "transaction" { // the iterator outlives the transaction
					s.call(coreCall{what: doBegin})
				}
				it, err := s.iterate(crashKey("^stays"), walkValues)
				if err != nil {
					return err
				}
				for i := range 3 {
					if item := it.next(); !strings.HasPrefix(item, fmt.Sprint(i, "=")) {
						return fmt.Errorf("item %d is %s", i, item)
					}
				}
				if what == "transaction" {
					s.call(coreCall{what: doCommit})
				}
				iterators = append(iterators, it)
			}
		}
		fmt.Println("idle")
		io.Copy(io.Discard, os.Stdin)
		for _, it := range iterators {
			for i := 3; i < idleNodes; i++ {
				want := fmt.Sprint(i, "=\"stays ", i, repeat("s", 20), "\"")
				if item := it.next(); item != want {
					return fmt.Errorf("after the wait, item %d is %s, want %s", i, item, want)
				}
			}
			if item := it.next(); item != "NDB_NONE" {
				return fmt.Errorf("behind the last item comes %s", item)
			}
			it.close()
		}
		if arguments[1] != "store" {
			s.close()
		}
		fmt.Println("done")
		return store.close()
	}
}

// writeBeside fills a store in a new folder, calls beside to start processes that have it open, and
// makes many small transactions. It returns the size of the file.
func writeBeside(t *testing.T, beside func(folder string)) int64 {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "store")
	s, err := nodedb.Open(folder, nodedb.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	set := func(f func(tx *nodedb.Tx) error) {
		t.Helper()
		if err := s.Update(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	set(func(tx *nodedb.Tx) error {
		for i := range idleNodes {
			if err := tx.Set(nodedb.Name("^stays").At(i), fmt.Sprint("stays ", i, strings.Repeat("s", 20))); err != nil {
				return err
			}
		}
		return tx.Set(nodedb.Name("^idle").At(1), 1)
	})
	beside(folder)
	time.Sleep(time.Second) // unused snapshots are released meanwhile
	for i := range 1800 {
		set(func(tx *nodedb.Tx) error { return tx.Set(nodedb.Name("^idle").At(i%50), fmt.Sprint(i)) })
	}
	about, err := os.Stat(filepath.Join(folder, "data.mdb"))
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return about.Size()
}

// TestIdleProcess checks that a process that has the store open and is idle does not make the file
// grow while another writes, whatever it has read, and that it can continue iterators that it has
// kept.
func TestIdleProcess(t *testing.T) {
	alone := writeBeside(t, func(string) {})
	worst := 0.0
	for _, what := range []string{"store", "session", "readonly", "transaction"} {
		var child *testChild
		size := writeBeside(t, func(folder string) {
			child = startChild(t, "idle", folder, what)
			if line := child.read(t); line != "idle" {
				t.Fatal(line)
			}
		})
		child.input.Close()
		if line := child.read(t); line != "done" {
			t.Errorf("%s: %s", what, line)
		}
		ratio := float64(size) / float64(alone)
		worst = max(worst, ratio)
		if ratio > 2 {
			t.Errorf("the file has %d bytes beside an idle process with a %s, %d without it: want at most twice as many", size, what, alone)
		}
	}
	fmt.Printf("figure nodes_idle_file_ratio %.2f\n", worst)
}

// TestIdleSessionInProcess checks the same for a session with an iterator in the writing process.
func TestIdleSessionInProcess(t *testing.T) {
	alone := writeBeside(t, func(string) {})
	size := writeBeside(t, func(folder string) {
		s, err := nodedb.Open(folder, nodedb.Options{NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		session, err := s.Session()
		if err != nil {
			t.Fatal(err)
		}
		next, stop := iter.Pull2(session.Children(context.Background(), nodedb.Name("^stays"), nodedb.Range{}))
		for i := range 3 {
			if child, err, _ := next(); err != nil || child.Subscript.String() != fmt.Sprint(i) {
				t.Fatalf("child %v, %v, want %d", child.Subscript, err, i)
			}
		}
		t.Cleanup(func() {
			for i := 3; i < idleNodes; i++ {
				if child, err, _ := next(); err != nil || child.Subscript.String() != fmt.Sprint(i) {
					t.Errorf("child %v, %v, want %d", child.Subscript, err, i)
					break
				}
			}
			stop()
			session.Close()
			s.Close()
		})
	})
	if size > 2*alone {
		t.Errorf("the file has %d bytes beside an idle session, %d without it: want at most twice as many", size, alone)
	}
}
