//go:build linux && cgo

package sqlworker

import (
	"os"
	"testing"

	"github.com/perigeedb/perigee/eventstore/internal/protocol"
)

// TestFreeDatabases checks that databases are reused, with what they cache, only for requests with
// their memory limit and not after an error, and that only a few are kept.
func TestFreeDatabases(t *testing.T) {
	d := databases{settings: protocol.Settings{Folder: t.TempDir(), Role: protocol.MergeRole, Threads: 1}}
	const small, large = "64.0 MiB", "128.0 MiB"
	// take checks whether a database is new, or has the table with which an earlier take marked it.
	take := func(memory, mark string) *database {
		t.Helper()
		one, err := d.take(map[string]int64{small: 64 << 20, large: 128 << 20}[memory])
		if err != nil {
			t.Fatal(err)
		}
		rows, err := one.conn.Run(`SELECT current_setting('memory_limit'), coalesce((SELECT string_agg(table_name) FROM duckdb_tables()), '')`)
		if err != nil {
			t.Fatal(err)
		}
		if limit, got := rows[0][0], rows[0][1]; limit != memory || got != mark {
			t.Errorf("got a database with %v of memory and the mark %q, want %s and %q", limit, got, memory, mark)
		}
		return one
	}
	takeNew := func(memory, mark string) *database {
		t.Helper()
		one := take(memory, "")
		if err := one.conn.Exec("CREATE TABLE " + mark + " (i INTEGER)"); err != nil {
			t.Fatal(err)
		}
		return one
	}
	first := takeNew(small, "first")
	d.put(first, false)
	second := takeNew(large, "second")
	d.put(second, false)
	take(small, "first")
	take(large, "second")
	d.put(second, true)
	third := takeNew(large, "third")
	fourth := takeNew(large, "fourth")
	d.put(first, false)
	d.put(third, false)
	d.put(fourth, false) // one too many
	take(large, "third")
	d.put(takeNew(large, "fifth"), true)
	d.put(third, true)
	take(small, "first")
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
