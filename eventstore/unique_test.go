//go:build linux && cgo

package eventstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/internal/testseed"
)

func uniqueConfig(window time.Duration) TableConfig {
	return TableConfig{
		Unique: catalog.Unique{Key: []string{"id", "host"}, Window: catalog.Duration(window)},
		Columns: []event.Column{
			{Name: "id", Path: []string{"id"}, Type: event.Int64},
			{Name: "host", Path: []string{"host"}, Type: event.String},
		},
	}
}

// repeated returns the number of rows that table events has dropped.
func repeated(s *Store) uint64 { return s.UniqueStates()["events"].Repeated }

func TestUnique(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	p := take(t, openTable(t, s, uniqueConfig(time.Hour)))
	appendDocs(t, p, 0, `{"id":1,"host":"a","n":1}`, `{"id":1,"host":"b","n":2}`, `{"id":1,"host":"a","n":3}`, `{"id":null,"host":"a","n":4}`, `{"host":"a","n":5}`, `{"id":2,"host":"","n":6}`)
	appendDocs(t, p, 6, `{"id":2,"host":"","n":7}`, `{"id":1,"host":"b","n":8}`)
	const sql = `SELECT string_agg(n, ' ' ORDER BY n) FROM events`
	check := func(want string, dropped uint64) {
		t.Helper()
		if got := ask(t, s, sql); got != want || repeated(s) != dropped {
			t.Errorf("rows %q with %d dropped, want %q with %d", got, repeated(s), want, dropped)
		}
	}
	check("1 2 4 5 6", 3)
	// A range that is appended again is skipped and not counted as repeated.
	appendDocs(t, p, 4, `{"host":"a","n":5}`, `{"id":2,"host":"","n":6}`, `{"id":2,"host":"","n":7}`, `{"id":1,"host":"b","n":8}`, `{"id":3,"host":"a","n":9}`)
	check("1 2 4 5 6 9", 3)

	// After a restart the keys come from the log, and later from key files.
	reopen := func() {
		t.Helper()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = openStore(t, folder)
		table, err := s.UseTable("events")
		if err != nil {
			t.Fatal(err)
		}
		p = take(t, table)
	}
	reopen()
	appendDocs(t, p, 9, `{"id":1,"host":"a","n":10}`, `{"id":4,"host":"a","n":11}`)
	check("1 2 4 5 6 9 11", 1)
	seal(t, s)
	appendDocs(t, p, 11, `{"id":4,"host":"a","n":12}`, `{"id":1,"host":"b","n":13}`, `{"id":5,"host":"a","n":14}`)
	check("1 2 4 5 6 9 11 14", 3)
	reopen()
	appendDocs(t, p, 14, `{"id":4,"host":"a","n":15}`, `{"id":5,"host":"a","n":16}`, `{"id":6,"host":"a","n":17}`)
	check("1 2 4 5 6 9 11 14 17", 2)
	if stats, err := s.Tables(); err != nil || stats[0].Unique == nil || stats[0].Unique.Keys != 7 || stats[0].Unique.Repeated != 2 {
		t.Errorf("stats: %+v, %v", stats[0].Unique, err)
	}
	// The keys of deleted rows still count.
	if _, err := s.Delete(context.Background(), "events", "id = 6"); err != nil {
		t.Fatal(err)
	}
	appendDocs(t, p, 17, `{"id":6,"host":"a","n":18}`)
	check("1 2 4 5 6 9 11 14", 3)
}

// TestUniqueWindow lets keys leave their window; their files are removed too.
func TestUniqueWindow(t *testing.T) {
	t.Parallel() // it waits for seconds
	s := openStore(t, t.TempDir())
	p := take(t, openTable(t, s, uniqueConfig(3*time.Second)))
	appendDocs(t, p, 0, `{"id":1,"host":"a"}`)
	appendDocs(t, p, 1, `{"id":1,"host":"a"}`)
	if repeated(s) != 1 {
		t.Fatalf("%d rows were dropped", repeated(s))
	}
	seal(t, s)
	next := uint64(2)
	for begun := time.Now(); repeated(s) == next-1; time.Sleep(50 * time.Millisecond) { // until it is stored again
		appendDocs(t, p, next, `{"id":1,"host":"a"}`)
		next++
		if age := time.Since(begun); age > 30*time.Second {
			t.Fatalf("after %v the key still counts", age)
		}
	}
	if got := ask(t, s, `SELECT count(*) FROM events`); got != "2" {
		t.Errorf("%s rows", got)
	}
	time.Sleep(3100 * time.Millisecond)
	seal(t, s)
	waitUntil(t, s, func() bool {
		left, err := filepath.Glob(filepath.Join(s.folder, "tables/events/keys-*"))
		return err == nil && len(left) == 0 && len(s.current().Table("events").Keys) == 0
	})
}

// TestUniqueConcurrently sends the same keys from several partitions concurrently.
func TestUniqueConcurrently(t *testing.T) {
	s := openStore(t, t.TempDir())
	table := openTable(t, s, uniqueConfig(time.Hour))
	const lanes, batches, perBatch = 8, 30, 50
	var running sync.WaitGroup
	for lane := range lanes {
		p, _, err := table.TakeOver(context.Background(), "pipe", fmt.Sprint(lane))
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() {
			for batch := range batches {
				var docs []string
				for i := range perBatch { // in another order on each lane
					id := batch*perBatch + (i*7+lane*13)%perBatch
					docs = append(docs, fmt.Sprintf(`{"id":%d,"host":"a"}`, id))
				}
				if err := p.Append(context.Background(), outputOf(uint64(batch*perBatch), docs...)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	running.Wait()
	if got, want := ask(t, s, `SELECT count(*), count(DISTINCT id) FROM events`), fmt.Sprintf("%d,%[1]d", batches*perBatch); got != want {
		t.Errorf("rows and ids: %s, want %s", got, want)
	}
	if got := repeated(s); got != (lanes-1)*batches*perBatch {
		t.Errorf("%d rows were dropped", got)
	}
}

// TestUniqueAfterFailure appends a key again after its first append failed.
func TestUniqueAfterFailure(t *testing.T) {
	s := openStore(t, t.TempDir())
	table := openTable(t, s, uniqueConfig(time.Hour))
	p := take(t, table)
	b := table.acquireBuffer()
	out := outputOf(0, `{"id":1,"host":"a"}`, `{"id":2,"host":"a"}`, `{"id":1,"host":"a"}`)
	if err := b.extract(table, out); err != nil {
		t.Fatal(err)
	}
	rows, claim, err := table.claimKeys(context.Background(), b, rowRuns{{0, 3}}, time.Now())
	if err != nil || rows.count() != 2 {
		t.Fatalf("%v, %v", rows, err)
	}
	// Another partition waits for the outcome.
	other, _, err := table.TakeOver(context.Background(), "pipe", "other")
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := other.Append(ended, out); !errors.Is(err, context.Canceled) {
		t.Errorf("an append that need not wait: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- other.Append(context.Background(), out) }()
	claim.end(false)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	appendDocs(t, p, 0, `{"id":1,"host":"a"}`, `{"id":3,"host":"a"}`)
	if got := ask(t, s, `SELECT string_agg(id, ' ' ORDER BY id) FROM events`); got != "1 2 3" || repeated(s) != 2 {
		t.Errorf("rows %s, %d dropped", got, repeated(s))
	}
}

// TestUniqueIsBounded checks that appends fail when the memory for keys is full, and resume
// when keys have left the window.
func TestUniqueIsBounded(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	config := uniqueConfig(3 * time.Second)
	config.Unique.Memory = 1 // the minimum
	p := take(t, openTable(t, s, config))
	var err error
	n := uint64(0)
	for ; err == nil && n < 100_000; n += 100 {
		var docs []string
		for i := range uint64(100) {
			docs = append(docs, fmt.Sprintf(`{"id":%d,"host":"a"}`, n+i))
		}
		err = p.Append(context.Background(), outputOf(n, docs...))
	}
	if err == nil || !strings.Contains(err.Error(), "keys within the window of unique") || event.HintOf(err) == "" {
		t.Fatalf("after %d keys: %v", n, err)
	}
	if _, permanent := errors.AsType[*event.PermanentError](err); permanent {
		t.Errorf("the error is permanent: %v", err)
	}
	n -= 100
	if u := s.UniqueStates()["events"]; u.Bytes > 64*16*16 {
		t.Errorf("the keys take %d bytes", u.Bytes)
	}
	if got := ask(t, s, `SELECT count(*) FROM events`); got != fmt.Sprint(n) {
		t.Errorf("%s rows, and %d were appended", got, n)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, folder) // with all keys, whatever memory they need
	table, err := s.UseTable("events")
	if err != nil {
		t.Fatal(err)
	}
	p = take(t, table)
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		if err = p.Append(context.Background(), outputOf(n, `{"id":-1,"host":"a"}`)); err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

func TestUniqueSettings(t *testing.T) {
	s := openStore(t, t.TempDir())
	for name, change := range map[string]func(c *TableConfig){
		"a column that is not declared": func(c *TableConfig) { c.Unique.Key = []string{"id", "nothing"} },
		"a column of type float64":      func(c *TableConfig) { c.Columns[0].Type = event.Float64 },
		"no window":                     func(c *TableConfig) { c.Unique.Window = 0 },
		"a window of half seconds":      func(c *TableConfig) { c.Unique.Window = catalog.Duration(1500 * time.Millisecond) },
	} {
		c := uniqueConfig(time.Hour)
		change(&c)
		_, err := s.Table("events", c)
		if permanent, ok := errors.AsType[*event.PermanentError](err); !ok || permanent.Hint == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	c := uniqueConfig(time.Hour)
	c.Columns[0].Type = event.Int64
	p := take(t, openTable(t, s, c))
	if got := s.UniqueStates()["events"].Memory; got != 256<<20 {
		t.Errorf("the keys may take %d bytes by default", got)
	}
	appendDocs(t, p, 0, `{"id":1,"host":"a"}`)
	c.Unique.Key = []string{"HOST"} // another key; existing rows count too
	openTable(t, s, c)
	appendDocs(t, p, 1, `{"id":2,"host":"a"}`, `{"id":2,"host":"b"}`)
	c.Unique = catalog.Unique{}
	openTable(t, s, c)
	appendDocs(t, p, 3, `{"id":3,"host":"a"}`)
	if got, want := ask(t, s, `SELECT id, host FROM events ORDER BY ALL`), "1,a\n2,b\n3,a"; got != want {
		t.Errorf("rows %q, want %q", got, want)
	}
}

// uniqueFolder turns the test's process into one that appends duplicates.
const uniqueFolder = "EVENTSTORE_UNIQUE"

// appendRepetitions endlessly appends events from several partitions, mostly duplicates of
// earlier or concurrent ones, and prints the keys that are durable.
func appendRepetitions(folder string) error {
	seed, err := strconv.ParseUint(os.Getenv(testseed.Variable), 10, 64)
	if err != nil {
		return err
	}
	s, err := Open(folder, workOptions())
	if err != nil {
		return err
	}
	table, err := s.Table("events", uniqueConfig(24*time.Hour))
	if err != nil {
		return err
	}
	var printing sync.Mutex
	failed := make(chan error)
	for lane := range 4 {
		p, done, err := table.TakeOver(context.Background(), "pipe", fmt.Sprint(lane))
		if err != nil {
			return err
		}
		next := uint64(0)
		for _, r := range done {
			next = r.End()
		}
		random := rand.New(rand.NewPCG(seed, uint64(lane)))
		go func() {
			for ; ; next += workBatch {
				var docs, ids []string
				for range workBatch {
					id := next/2 + uint64(random.IntN(2*workBatch))
					ids = append(ids, fmt.Sprint(id))
					docs = append(docs, fmt.Sprintf(`{"id":%d,"host":"%s"}`, id, strings.Repeat("x", 50)))
				}
				if err := p.Append(context.Background(), outputOf(next, docs...)); err != nil {
					failed <- err
				}
				printing.Lock()
				fmt.Println(strings.Join(ids, " "))
				printing.Unlock()
			}
		}()
	}
	return <-failed
}

// TestUniqueKill repeatedly kills a process that appends duplicates. Each acknowledged key
// must exist exactly once.
func TestUniqueKill(t *testing.T) {
	folder := t.TempDir()
	r := testseed.New(t)
	acknowledged := map[string]bool{}
	for kill := range countFrom(t, "PERIGEE_STORE_KILLS", 6) {
		appendAndKill(t, folder, r.Uint64(), 10+r.IntN(60), time.Duration(r.IntN(50_000))*time.Microsecond, acknowledged)
		s := openWork(t, folder)
		if got, want := ask(t, s, `SELECT count(*) - count(DISTINCT id) FROM events`), "0"; got != want {
			t.Errorf("kill %d: %s rows repeat", kill, got)
		}
		stored := map[string]bool{}
		for id := range strings.SplitSeq(ask(t, s, `SELECT id FROM events`), "\n") {
			stored[id] = true
		}
		for id := range acknowledged {
			if !stored[id] {
				t.Errorf("kill %d: key %s was acknowledged, and is gone", kill, id)
			}
		}
		if kill == 1 { // later kills must repeat some keys in files, whatever else was sealed by chance
			seal(t, s)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Fatalf("after kill %d, with %d keys", kill+1, len(acknowledged))
		}
	}
	s := openWork(t, folder)
	if len(acknowledged) == 0 || sealedFiles(s) == 0 || len(s.current().Table("events").Keys) == 0 {
		t.Errorf("%d keys, %d sealed files: the test proves little", len(acknowledged), sealedFiles(s))
	}
}

func appendAndKill(t *testing.T, folder string, seed uint64, batches int, more time.Duration, acknowledged map[string]bool) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), uniqueFolder+"="+folder, fmt.Sprintf("%s=%d", testseed.Variable, seed))
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	hung := time.AfterFunc(patience, func() {
		t.Error("the process says nothing more")
		_ = cmd.Process.Kill()
	})
	defer hung.Stop()
	said := 0
	for lines := bufio.NewReader(stdout); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			break // ignore a truncated line
		}
		if strings.HasPrefix(line, "error") {
			t.Errorf("the process says %q", line)
		}
		for id := range strings.FieldsSeq(line) {
			acknowledged[id] = true
		}
		if said++; said == batches {
			time.AfterFunc(more, func() { _ = cmd.Process.Kill() })
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // the error only reports the kill
}

func TestKeysFile(t *testing.T) {
	folder, table := t.TempDir(), &manifest.Table{Name: "events"}
	want := []manifest.Key{{Hash: manifest.KeyHash{1, 2, 3}, Arrived: 4}, {Hash: manifest.KeyHash{1 << 31, 0, 5}, Arrived: 7}}
	file, err := manifest.WriteKeys(folder, table, 9, want)
	if err != nil || file.Number != 9 || file.Newest.Unix() != 7 {
		t.Fatalf("%+v, %v", file, err)
	}
	read := func() (keys []manifest.Key, err error) {
		err = manifest.ReadKeys(folder, table, 9, func(k manifest.Key) { keys = append(keys, k) })
		return keys, err
	}
	if got, err := read(); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, %v", got, err)
	}
	path := table.Path(folder, manifest.KeysName(9))
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		spoiled := append([]byte{}, whole...)
		spoiled[n] ^= 1
		for _, content := range [][]byte{whole[:n], spoiled} {
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := read(); !isDamage(err) {
				t.Errorf("a file that is damaged at byte %d: %v", n, err)
			}
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := read(); !isDamage(err) {
		t.Errorf("a file that is missing: %v", err)
	}
}

// TestDamagedKeys opens a store with a damaged key file. Without an error, duplicates would
// be stored again.
func TestDamagedKeys(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	appendDocs(t, take(t, openTable(t, s, uniqueConfig(time.Hour))), 0, `{"id":1,"host":"a"}`)
	seal(t, s)
	entry := s.current().Table("events")
	if len(entry.Keys) != 1 {
		t.Fatalf("%d files of keys", len(entry.Keys))
	}
	path := entry.Path(folder, manifest.KeysName(entry.Keys[0].Number))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)-1] ^= 1
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := Open(folder, Options{}); err == nil || !isDamage(err) || !strings.Contains(err.Error(), "keys") {
		t.Errorf("opened: %v", err)
		if s != nil {
			s.Close()
		}
	}
}

func isDamage(err error) bool {
	_, ok := errors.AsType[*manifest.DamageError](err)
	return ok
}
