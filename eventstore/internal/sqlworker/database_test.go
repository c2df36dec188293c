//go:build linux && cgo

package sqlworker

import (
	"os"
	"testing"

	"github.com/perigeedb/perigee/eventstore/internal/protocol"
)

// TestFreeDatabases checks that databases are reused only with their memory limit, not after
// an error, and that only a few are kept.
func TestFreeDatabases(t *testing.T) {
	d := databases{settings: protocol.Settings{Folder: t.TempDir(), Role: protocol.MergeRole, Threads: 1}}
	take := func(memory int64, again *database) *database {
		t.Helper()
		one, err := d.take(memory)
		if err != nil {
			t.Fatal(err)
		}
		if again != nil && one != again || again == nil && one.number != uint64(d.made) {
			t.Errorf("database %d with %d bytes of memory, of %d that were made", one.number, memory, d.made)
		}
		return one
	}
	const small, large = 64 << 20, 128 << 20
	first := take(small, nil)
	d.put(first, false)
	second := take(large, nil)
	d.put(second, false)
	take(small, first)
	take(large, second)
	d.put(second, true)
	third := take(large, nil)
	fourth := take(large, nil)
	d.put(first, false)
	d.put(third, false)
	d.put(fourth, false) // one too many
	take(large, third)
	d.put(take(large, nil), true)
	d.put(third, true)
	take(small, first)
	d.put(first, true)
}

// TestClosedDatabases checks that closing a database ends its threads.
func TestClosedDatabases(t *testing.T) {
	const threads, rounds = 8, 10
	count := func() int {
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Fatal(err)
		}
		return len(tasks)
	}
	d := databases{settings: protocol.Settings{Folder: t.TempDir(), Role: protocol.QueryRole, Threads: threads}}
	before := count()
	for range rounds {
		one, err := d.take(64 << 20)
		if err != nil {
			t.Fatal(err)
		}
		if started := count() - before; started < threads/2 {
			t.Fatalf("a database has started %d threads", started)
		}
		d.put(one, true)
	}
	// The runtime may have started some threads too.
	if left := count() - before; left > threads*rounds/2 {
		t.Errorf("%d threads are left of %d databases with %d each", left, rounds, threads)
	}
}
