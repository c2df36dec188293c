//go:build linux && cgo

package eventstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/internal/lakecache"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/lake"
	"github.com/perigeedb/perigee/internal/powercut"
	"github.com/perigeedb/perigee/internal/s3client"
	"github.com/perigeedb/perigee/internal/testseed"
	"github.com/perigeedb/perigee/internal/testserver"
)

// useCommitter puts the real committer on the path, or skips the test.
func useCommitter(t testing.TB) {
	t.Helper()
	program := os.Getenv("PERIGEE_LAKE")
	if program == "" {
		t.Skip("needs PERIGEE_LAKE, the program perigee-lake: make test-lake")
	}
	t.Setenv("PATH", filepath.Dir(program)+":"+os.Getenv("PATH"))
}

// localConfig is a table whose data leave the disk after 24 hours for a lake below folder.
func localConfig(folder string) TableConfig {
	c := lakeConfig(folder)
	c.Bloom = []string{"text"}
	c.Lake.Local = catalog.Duration(24 * time.Hour)
	return c
}

// settle merges files as a store does over days, publishes them, and lets data leave the disk.
func settle(t testing.TB, s *Store) {
	t.Helper()
	if err := settleStore(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

func settleStore(ctx context.Context, s *Store) error {
	if err := mergeQuiet(ctx, s); err != nil {
		return err
	}
	if err := s.publish(ctx, time.Now().Add(48*time.Hour)); err != nil {
		return err
	}
	return errors.Join(s.leave(ctx, time.Now()), s.collectGarbage())
}

func mergeQuiet(ctx context.Context, s *Store) error {
	s.compacting.Lock()
	defer s.compacting.Unlock()
	for {
		groups := s.nextMerge(s.current().Table("events"), time.Now().Add(1000*time.Hour))
		if len(groups) == 0 {
			return nil
		}
		if _, err := s.rewriteFiles(ctx, s.current().Table("events").ID, groups, rewriteOptions{}); err != nil {
			return err
		}
	}
}

// remoteFiles returns the files whose data have left the disk, and how many of them are there in
// spite of that.
func remoteFiles(s *Store) (remote []*manifest.File, here int) {
	entry := s.current().Table("events")
	for _, f := range entry.Files {
		if f.Remote == nil {
			continue
		}
		remote = append(remote, f)
		if _, err := os.Stat(entry.Path(s.folder, f.Name)); err == nil {
			here++
		}
	}
	return remote, here
}

// lakeQueries returns statements whose answers do not depend on the files of a table.
func lakeQueries(r *rand.Rand, n int) (all []string) {
	day := func() string {
		return fmt.Sprintf("TIMESTAMP '2026-11-%02d %02d:00:00'", 22+r.IntN(3), r.IntN(24))
	}
	for range n {
		where := []string{
			fmt.Sprintf("id < %d", r.IntN(600)), fmt.Sprintf("kind = 'k%d'", r.IntN(5)), "moment >= " + day(), "moment < " + day(), fmt.Sprintf("text = 'text %d é\n'", r.IntN(25)),
			"moment BETWEEN " + day() + " AND " + day(), "amount > 0", "flag", "moment > TIMESTAMP '" + time.Now().UTC().Add(-time.Hour).Format(time.DateTime) + "'", fmt.Sprintf("id = %d", r.IntN(600)),
		}
		condition := where[r.IntN(len(where))]
		if r.IntN(2) == 0 {
			condition += []string{" AND ", " OR "}[r.IntN(2)] + where[r.IntN(len(where))]
		}
		all = append(all, []string{
			"SELECT count(*), sum(id), min(moment), max(moment), sum(amount) FILTER (isfinite(amount)), count(_rest) FROM events WHERE " + condition,
			"SELECT * FROM events WHERE " + condition + " ORDER BY id",
			"SELECT kind, count(*), sum(small) FROM events WHERE " + condition + " GROUP BY ALL ORDER BY ALL",
			"SELECT id, moment FROM events ORDER BY moment DESC, id LIMIT " + fmt.Sprint(1+r.IntN(300)),
			"SELECT a.id, b.id FROM events a JOIN events b ON a.id = b.id + 1 WHERE a." + where[0] + " ORDER BY ALL",
			"DESCRIBE events", "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'main' ORDER BY ALL",
		}[r.IntN(7)])
	}
	return all
}

// TestLakeLocal applies the same random operations to a table whose data leave the disk and to one
// without a lake, and compares the answers to random queries.
func TestLakeLocal(t *testing.T) {
	useCommitter(t)
	r := testseed.New(t)
	folder := t.TempDir()
	config := localConfig(folder)
	plain := config
	plain.Lake = nil
	open := func(name string, c TableConfig) (*Store, *Partition) {
		s, err := Open(filepath.Join(folder, name), Options{LakeCache: []int64{40 << 10, 200 << 10, 10 << 20}[r.IntN(3)]})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s, take(t, openTable(t, s, c))
	}
	s, p := open("lake", config)
	other, otherP := open("plain", plain)
	next, left, did := 0, 0, map[string]int{}
	grow := func() {
		n := 20 + r.IntN(100)
		docs := lakeDocs(r, next, n)
		if next > 0 && r.IntN(3) == 0 {
			for i := range docs { // of today
				docs[i] = fmt.Sprintf(`{"id":%d,"moment":%d,"kind":"new","text":"text %d é\n"}`, next+i, time.Now().Add(-time.Duration(i)*time.Second).UnixNano(), i)
			}
		}
		appendDocs(t, p, uint64(next), docs...)
		appendDocs(t, otherP, uint64(next), docs...)
		next += n
		if r.IntN(4) > 0 {
			seal(t, s)
		}
		seal(t, other)
	}
	steps := map[string]func(){
		"grow":   grow,
		"settle": func() { settle(t, s) },
		"publish": func() {
			if err := s.publish(t.Context(), time.Now().Add(time.Duration(r.IntN(20))*time.Hour)); err != nil {
				t.Fatal(err)
			}
		},
		"compact": func() { wake(s.compactor) },
		"delete": func() {
			predicate := []string{fmt.Sprintf("kind = 'k%d' AND id %% 3 = 0", r.IntN(4)), fmt.Sprintf("id BETWEEN %d AND %[1]d + 20", r.IntN(next+1)), "text = 'nothing'"}[r.IntN(3)]
			for _, one := range []*Store{s, other} {
				d, err := one.Delete(t.Context(), "events", predicate)
				if err == nil && r.IntN(2) == 0 {
					err = one.WaitDeleted(t.Context(), d)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		},
		"restart": func() {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s, p = open("lake", config)
		},
		"restore": func() {
			archive, err := os.Create(filepath.Join(folder, "backup.tar"))
			if err != nil {
				t.Fatal(err)
			}
			defer archive.Close()
			if err := errors.Join(s.Backup(t.Context(), archive), s.Close(), os.RemoveAll(filepath.Join(folder, "lake"))); err != nil {
				t.Fatal(err)
			}
			if _, err := archive.Seek(0, 0); err != nil {
				t.Fatal(err)
			}
			if err := Restore(filepath.Join(folder, "lake"), archive); err != nil {
				t.Fatal(err)
			}
			s, p = open("lake", config)
		},
		"elsewhere": func() { // another lake: all data come back, and go there
			config.Lake = new(*config.Lake)
			config.Lake.Table = fmt.Sprintf("test.events%d", r.IntN(1e9))
			openTable(t, s, config)
		},
	}
	names := []string{"grow", "grow", "grow", "settle", "settle", "publish", "compact", "delete", "restart", "restore", "elsewhere"}
	grow()
	grow() // the first one gives the table all columns
	rounds := countFrom(t, "PERIGEE_LAKE_STEPS", 25)
	for range rounds {
		name := names[r.IntN(len(names))]
		did[name]++
		steps[name]()
		remote, _ := remoteFiles(s)
		left = max(left, len(remote))
		for _, sql := range lakeQueries(r, 4) {
			want := ask(t, other, sql)
			rows, err := s.Execute(t.Context(), Statement{SQL: sql, Format: FormatCSV})
			if err != nil && strings.Contains(err.Error(), "fit on this disk at once") {
				did["too large"]++
				continue
			} else if err != nil {
				t.Fatalf("after %s: %s: %v (%s)", name, sql, err, event.HintOf(err))
			}
			rows.Close()
			if got := ask(t, s, sql); got != want {
				t.Fatalf("after %s: %s\n got %s\nwant %s", name, sql, got, want)
			}
		}
	}
	steps["grow"]()
	{ // the oldest of the days goes
		config.Retention = time.Since(time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC))
		plain.Retention = config.Retention
		if err := mergeQuiet(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		openTable(t, s, config)
		openTable(t, other, plain)
		for _, one := range []*Store{s, other} {
			seal(t, one)
			wake(one.compactor)
			waitUntil(t, one, func() bool {
				return !slices.ContainsFunc(one.current().Table("events").Files, func(f *manifest.File) bool { return f.Day < "2026-11-23" })
			})
		}
		settle(t, s)
		const sql = "SELECT count(*), sum(id), min(moment) FROM events"
		if got, want := ask(t, s, "SELECT count(*), sum(id), min(moment) FROM events WHERE moment >= TIMESTAMP '2026-11-24'"), ask(t, other, "SELECT count(*), sum(id), min(moment) FROM events WHERE moment >= TIMESTAMP '2026-11-24'"); got != want {
			t.Errorf("after retention: %s\n got %s\nwant %s", sql, got, want)
		}
	}
	if left == 0 {
		t.Error("no data have left the disk: the test proves little")
	}
	t.Logf("at most %d files had left the disk; %v", left, did)
}

// newLocal returns a store with files whose data have left the disk, and the sum of its IDs.
func newLocal(t *testing.T, cache int64, rows int) (s *Store, folder, sum string) {
	t.Helper()
	useCommitter(t)
	folder = t.TempDir()
	s, sum = newLocalIn(t, filepath.Join(folder, "store"), localConfig(folder), cache, rows)
	return s, folder, sum
}

func newLocalIn(t *testing.T, folder string, config TableConfig, cache int64, rows int) (s *Store, sum string) {
	t.Helper()
	s, err := Open(folder, Options{LakeCache: cache, SegmentBytes: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	p := take(t, openTable(t, s, config))
	appendDocs(t, p, 0, lakeDocs(testseed.New(t), 0, rows)...)
	seal(t, s)
	settle(t, s)
	remote, here := remoteFiles(s)
	if len(remote) < 3 || here > 0 {
		t.Fatalf("%d files have left the disk, and %d of them are there", len(remote), here)
	}
	return s, fmt.Sprint(rows * (rows - 1) / 2)
}

const sumIDs = "SELECT CAST(sum(id) AS VARCHAR) FROM events"

// TestLakeLocalTogether lets several queries need the same files at once.
func TestLakeLocalTogether(t *testing.T) {
	s, _, want := newLocal(t, 0, 3000)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if got := ask(t, s, sumIDs); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
	group.Wait()
	if remote, here := remoteFiles(s); here != len(remote) {
		t.Errorf("%d of %d files are on disk", here, len(remote))
	}
}

// expectFault checks that a query fails with an error that has some words, and says what to do.
func expectFault(t *testing.T, s *Store, sql string, words ...string) {
	t.Helper()
	rows, err := s.Execute(t.Context(), Statement{SQL: sql, Format: FormatCSV})
	if err == nil {
		rows.Close()
		t.Errorf("%s is answered, and not refused with %q", sql, words)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %v, want %q", sql, err, w)
		}
	}
	if event.HintOf(err) == "" {
		t.Errorf("%s: %v has no hint", sql, err)
	}
}

// TestLakeLocalTooLarge checks a cache that is smaller than what a query needs.
func TestLakeLocalTooLarge(t *testing.T) {
	s, _, want := newLocal(t, 0, 3000)
	remote, _ := remoteFiles(s)
	largest := int64(0)
	for _, f := range remote {
		largest = max(largest, f.Bytes)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := Open(s.folder, Options{LakeCache: largest})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	expectFault(t, s, sumIDs, "needs", "fit on this disk at once")
	var group sync.WaitGroup
	for i := range 12 { // each needs one file, and they take turns
		group.Go(func() {
			day := 22 + i%3
			ask(t, s, fmt.Sprintf("SELECT count(*), sum(id) FROM events WHERE moment >= TIMESTAMP '2026-11-%d' AND moment < TIMESTAMP '2026-11-%d'", day, day+1))
			if bytes, _ := s.lakes.cache.Size(); bytes > largest {
				t.Errorf("the cache has %d bytes, and may have %d", bytes, largest)
			}
		})
	}
	group.Wait()
	if got := ask(t, s, "SELECT count(*) FROM (DESCRIBE events)"); got == "0" {
		t.Errorf("DESCRIBE: got %s columns, want some", got)
	}
	d, err := s.Delete(t.Context(), "events", "id = 0")
	if err == nil {
		err = s.WaitDeleted(t.Context(), d)
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = want
}

// TestLakeLocalNeedless asks what needs no rows that have left the disk: no file is fetched.
func TestLakeLocalNeedless(t *testing.T) {
	s, folder, want := newLocal(t, 0, 3000)
	p := take(t, openTable(t, s, localConfig(folder)))
	var docs []string
	for i := range 25_000 { // more than the first step of a search for the newest rows reads
		docs = append(docs, fmt.Sprintf(`{"id":%d,"moment":%d,"kind":"new"}`, 3000+i, time.Now().UnixNano()))
	}
	appendDocs(t, p, 3000, docs...)
	needless := func(sql, words string) {
		t.Helper()
		rows, err := s.Execute(t.Context(), Statement{SQL: sql, Format: FormatCSV})
		if err == nil {
			rows.Close()
		}
		if (err == nil) != (words == "") || err != nil && !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, want %q", sql, err, words)
		}
		if remote, here := remoteFiles(s); here > 0 {
			t.Errorf("%s: %d of %d files are on disk", sql, here, len(remote))
		}
		s.lakes.cache.Adopt(lakecache.File{Path: filepath.Join(folder, "none"), Bytes: 1 << 40}) // all others leave the cache
	}
	for _, test := range []struct{ sql, words string }{
		{"SELECT nosuch FROM events", "nosuch"},
		{"SELECT id + flag FROM events WHERE id < 3000", "No function matches"},
		{"SELECT sum(id) FROM nosuch, events", "nosuch does not exist"},
		{"SELECT nosuch FROM events WHERE moment BETWEEN TIMESTAMP '2026-11-22' AND TIMESTAMP '2026-11-25' ORDER BY moment DESC LIMIT 1", "nosuch"},
		{"SELECT sum(id) FROM events WHERE id < ?", "1 parameters"},
		{"EXPLAIN " + sumIDs, ""},
		{"EXPLAIN (FORMAT json) SELECT sum(id) FROM events GROUP BY kind", ""},
		{"EXPLAIN SELECT * FROM events ORDER BY moment DESC LIMIT 1", ""},
		{"EXPLAIN SELECT nosuch FROM events", "nosuch"},
		{"SELECT id FROM events ORDER BY moment DESC LIMIT 10", ""},
	} {
		needless(test.sql, test.words)
	}
	for _, sql := range []string{"EXPLAIN ANALYZE " + sumIDs, "explain (format json, analyze) " + sumIDs, sumIDs + " WHERE id < 3000"} {
		if got := ask(t, s, sql); strings.HasSuffix(sql, "3000") && got != want {
			t.Errorf("%s: got %s, want %s", sql, got, want)
		}
		if remote, here := remoteFiles(s); here != len(remote) {
			t.Errorf("%s: %d of %d files are on disk", sql, here, len(remote))
		}
		s.lakes.cache.Adopt(lakecache.File{Path: filepath.Join(folder, "none"), Bytes: 1 << 40})
	}
}

// TestLakeLocalObjects spoils objects: the error names the object, and other files are read.
func TestLakeLocalObjects(t *testing.T) {
	s, _, want := newLocal(t, 0, 3000)
	remote, _ := remoteFiles(s)
	file := remote[len(remote)-1]
	object := file.Remote.Address
	whole, err := os.ReadFile(object)
	if err != nil {
		t.Fatal(err)
	}
	others := fmt.Sprintf("SELECT count(*) > 0 FROM events WHERE moment < TIMESTAMP '%s'", file.Day)
	spoiled := slices.Clone(whole)
	spoiled[len(spoiled)/2] ^= 1
	for name, test := range map[string]struct {
		content []byte
		words   string
	}{"changed": {spoiled, "checksum mismatch"}, "cut": {whole[:100], "checksum mismatch"}, "missing": {nil, "does not exist"}} {
		err := os.Remove(object)
		if test.content != nil {
			err = os.WriteFile(object, test.content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		expectFault(t, s, sumIDs, object, test.words)
		if state := s.LakeStates()[0]; !strings.Contains(state.Error, test.words) {
			t.Errorf("%s: the state of the lake has the error %q, want %q", name, state.Error, test.words)
		}
		if got := ask(t, s, others); got != "true" {
			t.Errorf("%s: other files: %s", name, got)
		}
	}
	if err := os.WriteFile(object, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, s, sumIDs); got != want {
		t.Errorf("with the object back: got %s, want %s", got, want)
	}
	if state := s.LakeStates()[0]; state.Error != "" {
		t.Errorf("with the object back, the state of the lake has the error %q", state.Error)
	}
}

// TestLakeLocalAway takes the catalog away: rows on disk are read, others are refused, and a
// query that waits can be canceled.
func TestLakeLocalAway(t *testing.T) {
	s, folder, want := newLocal(t, 0, 3000)
	p := take(t, openTable(t, s, localConfig(folder)))
	appendDocs(t, p, 3000, fmt.Sprintf(`{"id":3000,"moment":%d,"kind":"new"}`, time.Now().UnixNano()))
	away := filepath.Join(folder, "away")
	catalogs := filepath.Join(folder, "catalog.db")
	if err := errors.Join(os.Rename(catalogs, away), os.Mkdir(catalogs, 0o700)); err != nil {
		t.Fatal(err)
	}
	s.lakes.looked = map[uint32]time.Time{}
	begun := time.Now()
	expectFault(t, s, sumIDs, "cannot be reached")
	if took := time.Since(begun); took > 2*lookTime {
		t.Errorf("it took %v", took)
	}
	if got := ask(t, s, "SELECT sum(id) FROM events WHERE moment > TIMESTAMP '"+time.Now().UTC().Add(-time.Hour).Format(time.DateTime)+"'"); got != "3000" {
		t.Errorf("rows on disk: %s", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	begun = time.Now()
	if _, err := s.Query(ctx, sumIDs); err == nil || time.Since(begun) > 10*time.Second {
		t.Errorf("canceled after %v: %v", time.Since(begun), err)
	}
	if err := errors.Join(os.Remove(catalogs), os.Rename(away, catalogs)); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, s, sumIDs+" WHERE id < 3000"); got != want {
		t.Errorf("with the catalog back: got %s, want %s", got, want)
	}
}

// TestLakeLocalVerifies checks that data stay on disk if the object in the lake has others.
func TestLakeLocalVerifies(t *testing.T) {
	useCommitter(t)
	folder := t.TempDir()
	s := openStore(t, filepath.Join(folder, "store"))
	p := take(t, openTable(t, s, localConfig(folder)))
	appendDocs(t, p, 0, lakeDocs(testseed.New(t), 0, 900)...)
	seal(t, s)
	if err := s.publish(t.Context(), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	entry := s.current().Table("events")
	object := lake.Address(entry.Lake.Location, strings.TrimSuffix(entry.Files[1].Name, ".parquet")+"-"+s.current().Incarnations[0].ID+".parquet")
	whole, err := os.ReadFile(object)
	if err != nil {
		t.Fatal(err)
	}
	spoiled := slices.Clone(whole)
	spoiled[50] ^= 1
	for _, content := range [][]byte{spoiled, whole[:200], append(slices.Clone(whole), 0), {}} {
		if err := errors.Join(os.Remove(object), os.WriteFile(object, content, 0o600)); err != nil {
			t.Fatal(err)
		}
		err := s.leave(t.Context(), time.Now())
		remote, _ := remoteFiles(s)
		if err == nil || !strings.Contains(err.Error(), object) || slices.ContainsFunc(remote, func(f *manifest.File) bool { return f.Remote.Address == object }) {
			t.Errorf("with an object of %d bytes, %d files have left: %v", len(content), len(remote), err)
		}
	}
	if err := os.WriteFile(object, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.leave(t.Context(), time.Now()); err != nil {
		t.Error(err)
	}
	if remote, _ := remoteFiles(s); len(remote) != len(entry.Files) {
		t.Errorf("%d of %d files have left", len(remote), len(entry.Files))
	}
}

// leaveFolder is the environment variable that makes the test's process run leaveAndReturn.
const leaveFolder = "EVENTSTORE_LEAVE"

// leaveAndReturn appends rows, lets them leave the disk, fetches and deletes some, until it is
// killed. It prints the number of rows that are durable.
func leaveAndReturn(folder string) error {
	s, err := Open(filepath.Join(folder, "store"), Options{LakeCache: 120 << 10})
	if err != nil {
		return err
	}
	ctx := context.Background()
	table, err := s.Table("events", localConfig(folder))
	if err != nil {
		return err
	}
	p, have, err := table.TakeOver(ctx, "pipe", "part")
	if err != nil {
		return err
	}
	next := 0
	for _, r := range have {
		next = int(r.First + r.Count)
	}
	random := rand.New(rand.NewPCG(rand.Uint64(), 1))
	for {
		if err := p.Append(ctx, outputOf(uint64(next), lakeDocs(random, next, 200)...)); err != nil {
			return err
		}
		next += 200
		fmt.Println("rows", next)
		if err := s.log.Rotate(ctx); err != nil {
			return err
		}
		wake(s.sealer)
		if err := s.awaitChange(ctx, func() bool { return len(s.log.Ends()) < 3 }); err != nil {
			return err
		}
		if random.IntN(3) == 0 {
			if err := settleStore(ctx, s); err != nil {
				return fmt.Errorf("settle: %w", err)
			}
			fmt.Println("settled")
		}
		for day := range 3 {
			rows, err := s.Query(ctx, fmt.Sprintf("SELECT sum(small), sum(length(text)) FROM events WHERE moment >= TIMESTAMP '2026-11-%d' AND moment < TIMESTAMP '2026-11-%d'", 22+day, 23+day))
			if err != nil && !strings.Contains(err.Error(), "fit on this disk") {
				return fmt.Errorf("query: %w", err)
			} else if err == nil {
				rows.Close()
			}
		}
		if random.IntN(4) == 0 {
			if _, err := s.Delete(ctx, "events", "id % 10 = 3 AND id % 7 = "+fmt.Sprint(random.IntN(7))); err != nil {
				return err
			}
		}
	}
}

// TestLakeLocalCrash kills a process that lets data leave the disk and fetches them: nothing may
// be lost or repeated.
func TestLakeLocalCrash(t *testing.T) {
	useCommitter(t)
	r := testseed.New(t)
	folder := t.TempDir()
	for kill := range countFrom(t, "PERIGEE_LAKE_KILLS", 6) {
		said := workAndKill(t, leaveFolder, folder, 3+r.IntN(8), time.Duration(r.IntN(700))*time.Millisecond)
		durable := 0
		for _, line := range said {
			_, _ = fmt.Sscanf(line, "rows %d", &durable)
		}
		s := openStore(t, filepath.Join(folder, "store"))
		want := 0
		for id := range durable {
			if id%10 != 3 {
				want++
			}
		}
		if got := ask(t, s, fmt.Sprintf("SELECT count(*), count(DISTINCT id) FROM events WHERE id %% 10 <> 3 AND id < %d", durable)); got != fmt.Sprintf("%d,%[1]d", want) {
			t.Fatalf("after kill %d: rows and different rows are %s, want %d", kill+1, got, want)
		}
		if got := ask(t, s, "SELECT count(*) - count(DISTINCT id) FROM events"); got != "0" {
			t.Errorf("after kill %d: %s rows are repeated", kill+1, got)
		}
		remote, here := remoteFiles(s)
		t.Logf("%d rows; %d files have left the disk, %d of them are there", durable, len(remote), here)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestLakeLocalFullDisk fetches files to a full disk.
func TestLakeLocalFullDisk(t *testing.T) {
	useCommitter(t)
	disk := powercut.SmallDisk(t, 16<<20)
	if disk == "" {
		return // the other process has reported the failure
	}
	s, want := newLocalIn(t, filepath.Join(disk, "store"), localConfig(t.TempDir()), 0, 20_000)
	ballast := filepath.Join(disk, "ballast")
	fillDisk(t, ballast, 64<<10)
	expectFault(t, s, sumIDs, "the disk is full")
	if got := ask(t, s, "SELECT count(*) FROM events WHERE moment > TIMESTAMP '2026-12-31'"); got != "0" {
		t.Errorf("rows on disk: %s", got)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, s, sumIDs); got != want {
		t.Errorf("with room on the disk: got %s, want %s", got, want)
	}
}

// TestLakeLocalChanged lets another engine delete rows in the lake: queries that need files which
// are only there are refused.
func TestLakeLocalChanged(t *testing.T) {
	python := os.Getenv("PERIGEE_LAKE_PYTHON")
	if python == "" {
		t.Skip("needs PERIGEE_LAKE_PYTHON, a Python with pyiceberg: make test-lake")
	}
	server, _ := startS3(t)
	folder := t.TempDir()
	config := localConfig(folder)
	config.Lake.Warehouse, config.Lake.Catalog = "s3://tables", server.Catalog()
	s, want := newLocalIn(t, filepath.Join(folder, "store"), config, 0, 3000)
	if got := ask(t, s, sumIDs); got != want { // they are on disk now
		t.Fatalf("got %s, want %s", got, want)
	}
	deleteElsewhere := func(id string) {
		script := fmt.Sprintf(`from pyiceberg.catalog.rest import RestCatalog
RestCatalog("perigee", uri="%s", warehouse="s3://tables", credential="%s:%s", **{"s3.endpoint": "%s", "s3.access-key-id": "%[2]s", "s3.secret-access-key": "%[3]s", "s3.region": "us-east-1"}).load_table("test.events").delete("id = %[5]s")`,
			server.Catalog(), testserver.S3AccessKey, testserver.S3SecretKey, server.Endpoint(), id)
		if out, err := exec.Command(python, "-c", script).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		s.lakes.mu.Lock()
		clear(s.lakes.looked) // as after a minute
		s.lakes.mu.Unlock()
	}
	const rowsOf = "SELECT count(*) FROM events WHERE moment >= TIMESTAMP '2026-11-%[1]d' AND moment < TIMESTAMP '2026-11-%[1]d' + INTERVAL 1 DAY"
	day := func(d int) string { return fmt.Sprintf(rowsOf, d) }
	ids := map[int][]string{} // two of each day
	for d := 22; d < 25; d++ {
		ids[d] = strings.Fields(ask(t, s, strings.Replace(day(d), "count(*)", "min(id)::VARCHAR || ' ' || max(id)", 1)))
	}

	// A delete of the store does not wait for rows that are no longer its own, and does not show them again.
	deleteElsewhere(ids[22][0])
	d, err := s.Delete(t.Context(), "events", "id = "+ids[22][1])
	if err == nil {
		err = s.WaitDeleted(t.Context(), d)
	}
	if err != nil {
		t.Error(err)
	}
	expectFault(t, s, day(22), "another engine has rewritten file")

	// An order that runs meanwhile hides nothing.
	deleteElsewhere(ids[23][0])
	end := s.lakes.begin()
	expectFault(t, s, day(23), "another engine has rewritten file")
	end()
	if got := ask(t, s, day(24)); got == "0" {
		t.Errorf("a day without rewritten files has %s rows", got)
	}

	// What delete files may have deleted stays refused.
	if err := s.change(func(next *manifest.Manifest) error { // what the committer reports of delete files
		entry := next.Table("events")
		known := *entry.Lake
		known.Deletes, entry.Lake = 3, &known
		return nil
	}, nil); err != nil {
		t.Fatal(err)
	}
	expectFault(t, s, day(24), "another engine has deleted rows", "3 delete files")
	if _, err := s.Delete(t.Context(), "events", "id = "+ids[24][1]); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, s, func() bool {
		tables, err := s.Tables()
		return err == nil && slices.ContainsFunc(tables[0].Deletes, func(d catalog.Delete) bool { return strings.Contains(d.Error, "3 delete files") })
	})
	expectFault(t, s, day(24), "another engine has deleted rows")
	if err := s.DropColumn(t.Context(), "events", "amount"); err == nil || !strings.Contains(err.Error(), "3 delete files") {
		t.Errorf("a column is dropped beside a delete that waits: %v", err)
	}
}

// TestLakeSlow has a lake that does not answer: what does not need it goes on.
func TestLakeSlow(t *testing.T) {
	s, folder, _ := newLocal(t, 0, 3000)
	config := lakeConfig(folder)
	config.Lake.Table = "test.other"
	other, err := s.Table("other", config)
	if err != nil {
		t.Fatal(err)
	}
	appendDocs(t, take(t, other), 0, `{"id":1,"moment":1764200000000000000,"kind":"a"}`)
	s.lakes.looking <- struct{}{} // as a committer that waits for an answer
	s.lakes.mu.Lock()
	clear(s.lakes.looked)
	s.lakes.mu.Unlock()
	if _, err := s.Delete(t.Context(), "events", "id = 9"); err != nil {
		t.Fatal(err)
	}
	var queries sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for range 2 * cap(s.slots) {
		queries.Go(func() {
			if _, err := s.Query(ctx, sumIDs); err == nil || ctx.Err() == nil {
				t.Errorf("a query of the lake ended with %v before it was canceled", err)
			}
		})
	}
	waitUntil(t, s, func() bool { return t.Failed() || len(s.fetching) == 2*cap(s.slots) })
	begun := time.Now()
	if got := ask(t, s, "SELECT sum(id) FROM other"); got != "1" {
		t.Errorf("rows on disk: %s", got)
	}
	if err := s.RenameTable(t.Context(), "other", "another", true); err != nil {
		t.Error(err)
	}
	cancel()
	queries.Wait()
	if took := time.Since(begun); took > lookTime/2 {
		t.Errorf("a query of rows on disk, a new name, and canceling took %v", took)
	}
	<-s.lakes.looking
	waitUntil(t, s, func() bool { return len(s.current().Table("events").Deletes) == 0 })
}

// TestLakeDropFetched drops a table whose files were fetched.
func TestLakeDropFetched(t *testing.T) {
	s, folder, want := newLocal(t, 0, 3000)
	if got := ask(t, s, sumIDs); got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
	if err := s.DropTable(t.Context(), "events"); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, s, func() bool { return !s.hasGarbage(0, s.current().Version) })
	err := filepath.WalkDir(filepath.Join(folder, "store", "tables"), func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			t.Errorf("%s is left", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestLakeLocalLost loses the catalog: the store takes its data back and publishes them again.
func TestLakeLocalLost(t *testing.T) {
	s, folder, want := newLocal(t, 0, 3000)
	if err := os.Remove(filepath.Join(folder, "catalog.db")); err != nil {
		t.Fatal(err)
	}
	p := take(t, openTable(t, s, localConfig(folder)))
	appendDocs(t, p, 3000, `{"id":0,"moment":0,"kind":"new"}`)
	seal(t, s)
	for range 3 {
		if err := s.publish(t.Context(), time.Now().Add(48*time.Hour)); err != nil {
			t.Fatal(err)
		}
		wake(s.compactor)
		waitUntil(t, s, func() bool {
			entry := s.current().Table("events")
			return !slices.ContainsFunc(entry.Files, entry.MustReturn)
		})
	}
	if got := ask(t, s, sumIDs); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	settle(t, s)
	if entry := s.current().Table("events"); entry.Lake.Error != "" || !slices.ContainsFunc(entry.Files, func(f *manifest.File) bool { return f.Step > 1 }) {
		t.Errorf("it was not published again: %+v", entry.Lake)
	}
	if remote, _ := remoteFiles(s); len(remote) < 3 {
		t.Errorf("%d files have left again", len(remote))
	}
	if got := ask(t, s, sumIDs); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// startS3 starts an S3 service, which the environment of the test names.
func startS3(t *testing.T) (*testserver.S3Server, *s3client.Client) {
	t.Helper()
	useCommitter(t)
	if os.Getenv("PERIGEE_SEAWEEDFS") == "" {
		t.Skip("needs PERIGEE_SEAWEEDFS, the command weed: make test-lake")
	}
	server, _ := startLakeServer(t, t.TempDir())
	client, err := s3client.FromEnvironment(10 * time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return server, client
}

// TestLakeLocalS3 lets data leave the disk for S3, and takes the service away.
func TestLakeLocalS3(t *testing.T) {
	server, client := startS3(t)
	folder := t.TempDir()
	if err := client.Client.MakeBucket(t.Context(), "lake", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	config := localConfig(folder)
	config.Lake.Warehouse = "s3://lake/warehouse"
	s, want := newLocalIn(t, filepath.Join(folder, "store"), config, 0, 3000)
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	expectFault(t, s, sumIDs, "s3://lake/warehouse/")
	s.lakes.mu.Lock()
	clear(s.lakes.looked)
	s.lakes.mu.Unlock()
	expectFault(t, s, sumIDs, "cannot be reached")
	if took := time.Since(begun); took > 4*lookTime {
		t.Errorf("two errors took %v", took)
	}
	if got := ask(t, s, "SELECT count(*) FROM events WHERE moment > TIMESTAMP '2026-12-31'"); got != "0" {
		t.Errorf("rows on disk: %s", got)
	}
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Second) {
		rows, err := s.Query(t.Context(), sumIDs)
		if err == nil {
			rows.Close()
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	if got := ask(t, s, sumIDs); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	remote, _ := remoteFiles(s)
	_, key, _ := strings.Cut(strings.TrimPrefix(remote[0].Remote.Address, "s3://"), "/")
	content := strings.NewReader(strings.Repeat("x", int(remote[0].Remote.Size)))
	if _, err := client.Client.PutObject(t.Context(), "lake", key, content, remote[0].Remote.Size, minio.PutObjectOptions{}); err != nil {
		t.Fatal(err)
	}
	s.lakes.cache.Adopt(lakecache.File{Path: filepath.Join(folder, "none"), Bytes: 1 << 40}) // all others leave the cache
	if _, here := remoteFiles(s); here > 0 {
		t.Errorf("%d files are still there", here)
	}
	expectFault(t, s, sumIDs, remote[0].Remote.Address, "checksum mismatch")
}

// TestLakeLeavesTwice moves a table to another lake while a reader keeps the files of the first one:
// they leave the disk again only when nobody needs their former footers.
func TestLakeLeavesTwice(t *testing.T) {
	s, folder, want := newLocal(t, 0, 3000)
	reader := s.snapshot()
	config := localConfig(folder)
	config.Lake.Table = "test.other"
	openTable(t, s, config)
	wake(s.compactor)
	waitUntil(t, s, func() bool {
		entry := s.current().Table("events")
		return !slices.ContainsFunc(entry.Files, entry.MustReturn)
	})
	settle(t, s)
	if remote, _ := remoteFiles(s); len(remote) != 0 {
		t.Errorf("%d files have left beside a reader of the first lake, want 0", len(remote))
	}
	reader.release()
	settle(t, s) // removes the footers
	settle(t, s)
	remote, _ := remoteFiles(s)
	if len(remote) < 3 {
		t.Errorf("%d files have left, want at least 3", len(remote))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, openStore(t, filepath.Join(folder, "store")), sumIDs); got != want {
		t.Errorf("the sum is %s, want %s", got, want)
	}
}

// TestLakeDropWhileLeaving drops a table between two of its files that leave the disk.
func TestLakeDropWhileLeaving(t *testing.T) {
	s, _ := newLeaving(t)
	m := s.current()
	entry := m.Table("events")
	files := s.leavingFiles(entry, time.Now())
	if len(files) < 2 {
		t.Fatalf("%d files can leave, want at least 2", len(files))
	}
	err := errors.Join(s.leaveFile(t.Context(), m, entry, files[0]), s.DropTable(t.Context(), "events"), s.leaveFile(t.Context(), m, entry, files[1]))
	if err != nil {
		t.Fatal(err)
	}
}

// newLeaving returns a store whose published files can leave the disk.
func newLeaving(t *testing.T) (s *Store, folder string) {
	t.Helper()
	useCommitter(t)
	folder = t.TempDir()
	s, err := Open(filepath.Join(folder, "store"), Options{SegmentBytes: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	p := take(t, openTable(t, s, localConfig(folder)))
	appendDocs(t, p, 0, lakeDocs(testseed.New(t), 0, 3000)...)
	seal(t, s)
	if err := errors.Join(mergeQuiet(t.Context(), s), s.publish(t.Context(), time.Now().Add(48*time.Hour))); err != nil {
		t.Fatal(err)
	}
	return s, folder
}

// TestLakeOthersLeave has one file that cannot leave, and a table whose catalog is away: the other
// files leave all the same.
func TestLakeOthersLeave(t *testing.T) {
	s, folder := newLeaving(t)
	away := lakeConfig(folder)
	away.Lake.Catalog = "http://127.0.0.1:1"
	other, err := s.Table("away", away)
	if err != nil {
		t.Fatal(err)
	}
	appendDocs(t, take(t, other), 0, `{"id":1,"moment":1764200000000000000,"kind":"a"}`)
	seal(t, s)
	m := s.current()
	entry := m.Table("events")
	files := s.leavingFiles(entry, time.Now())
	if len(files) < 3 {
		t.Fatalf("%d files can leave, want at least 3", len(files))
	}
	if err := os.Truncate(lake.Address(entry.Lake.Location, strings.TrimSuffix(files[0].Name, ".parquet")+"-"+m.Incarnations[0].ID+".parquet"), 100); err != nil {
		t.Fatal(err)
	}
	published := s.publish(t.Context(), time.Now().Add(48*time.Hour))
	wake(s.publisher)
	waitUntil(t, s, func() bool { wake(s.publisher); remote, _ := remoteFiles(s); return len(remote) == len(files)-1 })
	if published == nil || !strings.Contains(published.Error(), "127.0.0.1:1") {
		t.Errorf("publishing ended with %v, want an error of the other table's catalog", published)
	}
}

// TestLakeGoneStaysGone changes rows of a table whose files another engine has rewritten in the lake:
// the store does not show what that engine may have deleted.
func TestLakeGoneStaysGone(t *testing.T) {
	for name, change := range map[string]func(s *Store) error{
		"a delete": func(s *Store) error {
			d, err := s.Delete(t.Context(), "events", "id % 50 = 0")
			return errors.Join(err, s.WaitDeleted(t.Context(), d))
		},
		"another time column": func(s *Store) error {
			err := s.SetTime(t.Context(), "events", TimeColumn{Name: "id", Unit: event.Seconds})
			return errors.Join(err, s.WaitDivided(t.Context(), "events"))
		},
		"no lake any more": func(s *Store) error {
			config := localConfig(filepath.Dir(s.folder))
			config.Lake = nil
			_, err := s.Table("events", config)
			wake(s.compactor)
			return err
		},
		"another time column, without the objects": func(s *Store) error {
			if err := os.RemoveAll(lake.Address(s.current().Table("events").Lake.Location, "")); err != nil {
				return err
			}
			err := s.SetTime(t.Context(), "events", TimeColumn{Name: "id", Unit: event.Seconds})
			return errors.Join(err, s.WaitDivided(t.Context(), "events"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, _ := newLocal(t, 0, 3000)
			if err := s.change(func(next *manifest.Manifest) error { // as a report does
				entry := next.Table("events")
				for i, f := range entry.Files {
					gone := *f
					gone.Gone = f.Remote != nil
					entry.Files[i] = &gone
				}
				return nil
			}, nil); err != nil {
				t.Fatal(err)
			}
			if err := change(s); err != nil {
				t.Fatal(err)
			}
			expectFault(t, s, "SELECT max(id) FROM events", "another engine has rewritten file")
		})
	}
}
