package main

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/perigeedb/perigee/nodedb"
)

// TestArchiveTakeOver lets a second worker go on with the units of one that was killed and is gone with
// its disk.
func TestArchiveTakeOver(t *testing.T) {
	if nodedb.Version() == "" {
		t.Skip("state needs a build with cgo")
	}
	t.Parallel()
	b := newCountingBed(t)
	archive := shortDir(t)
	file, folder := b.archivingWorker("partition", archive)
	first := runEngine(t, file, flushAgeVariable+"=50ms")
	for i := range 4 {
		b.push(1, 2, 3)
		for _, list := range []int{1, 2, 3} {
			b.has(list, i+1)
		}
	}
	b.trimmed(3)
	_ = first.cmd.Process.Kill()
	<-first.done
	first.done <- nil
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	b.push(1, 2, 3)
	other, _ := b.archivingWorker("partition", archive)
	second := runEngine(t, other, flushAgeVariable+"=50ms")
	for _, list := range []int{1, 2, 3} {
		b.has(list, 5)
	}
	second.says("the state is restored")
	second.signal(syscall.SIGTERM)
	second.ends(0)
	says(t, 0, "none", "state", "verify", other)
}

// TestStateSetBack restores the database that is the home to an older state: the engine refuses its newer
// copy, perigee state restore takes the older state from the archive, and the events that the database has lost
// are counted again.
func TestStateSetBack(t *testing.T) {
	if nodedb.Version() == "" {
		t.Skip("state needs a build with cgo")
	}
	t.Parallel()
	server := maria.Server(t)
	database := server.Database(t)
	db, err := sql.Open("mysql", server.DSN(database))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	folder := shortDir(t)
	file := filepath.Join(folder, "visits.yaml")
	writeFile(t, file, fmt.Sprintf(`
http: off
pipelines:
  visits:
    source: {file: {path: visits.ndjson}}
    script:
      lua: |
        local counts = require("nodedb").node "^counts"
        function main(event) return {id = event.id, n = counts[event.user]:incr()} end
    state: {name: users, archive: {to: archive}}
    sink: {mysql: {address: %q, user: root, database: %s, table: visits, create: true, columns: [{name: id, type: int64}, {name: n, type: int64}]}}
    batch: {events: 5}
`, server.Address(), database))
	visits := filepath.Join(folder, "visits.ndjson")
	events := 0
	visit := func(n int) {
		t.Helper()
		var text strings.Builder
		old, _ := os.ReadFile(visits)
		text.Write(old)
		for range n {
			events++
			fmt.Fprintf(&text, "{\"id\":%d,\"user\":\"ada\"}\n", events)
		}
		writeFile(t, visits, text.String())
	}
	expect := func(want int) {
		t.Helper()
		var rows, numbers, last int
		err := db.QueryRow("SELECT COUNT(*), COUNT(DISTINCT n), MAX(n) FROM visits").Scan(&rows, &numbers, &last)
		if err != nil || rows != want || numbers != want || last != want {
			t.Errorf("there are %d rows with %d numbers up to %d, %v, want %d", rows, numbers, last, err, want)
		}
	}
	visit(40)
	says(t, 0, "", "run", file)
	expect(40)
	tables := tablesOf(t, db)
	for _, name := range tables {
		execAll(t, db, "CREATE TABLE saved_"+name+" LIKE "+name, "INSERT INTO saved_"+name+" SELECT * FROM "+name)
	}
	visit(40)
	says(t, 0, "", "run", file)
	expect(80)
	says(t, 0, "a snapshot of note", "state", "snapshot", file, "users")
	for _, name := range tables {
		execAll(t, db, "DELETE FROM "+name, "INSERT INTO "+name+" SELECT * FROM saved_"+name)
	}
	says(t, 1, "perigee state restore", "run", file)
	expect(40)
	says(t, 0, "restored at note", "state", "restore", file, "users", "--yes")
	says(t, 0, "", "run", file)
	expect(80)
	says(t, 0, "none", "state", "verify", file)

	// Another machine takes the branch that goes on.
	if err := os.RemoveAll(filepath.Join(folder, "perigee-data")); err != nil {
		t.Fatal(err)
	}
	visit(10)
	says(t, 0, "", "run", file)
	expect(90)
	segments, err := filepath.Glob(filepath.Join(folder, "archive", "users", "*", "segments", "*"))
	if err != nil || len(segments) == 0 {
		t.Fatalf("the archive has %v, %v", segments, err)
	}
	data, err := os.ReadFile(segments[0])
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	writeFile(t, segments[0], string(data))
	says(t, 1, "the object is damaged", "state", "verify", file)
}

func tablesOf(t *testing.T, db *sql.DB) (names []string) {
	t.Helper()
	rows, err := db.Query("SHOW TABLES")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return names
}

func execAll(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			t.Fatal(err)
		}
	}
}
