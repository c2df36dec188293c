//go:build linux && cgo

package eventstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
)

// TestBackupUnderLoad backs up again and again while several partitions append, files are
// sealed and merged and rows are deleted, and restores every backup: it has each row that
// was acknowledged before it began, none twice, and the position behind them.
func TestBackupUnderLoad(t *testing.T) {
	const writers, batch = 3, 50
	folder := t.TempDir()
	s, err := Open(filepath.Join(folder, "store"), Options{SegmentBytes: 256 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	table := openTable(t, s, TableConfig{Time: "time"})
	day := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)

	var mu sync.Mutex
	var acknowledged [writers]int
	stop := make(chan struct{})
	var writing sync.WaitGroup
	for w := range writers {
		p, _, err := table.TakeOver(t.Context(), "pipe", fmt.Sprint(w))
		if err != nil {
			t.Fatal(err)
		}
		writing.Go(func() {
			for n := 0; ; n += batch {
				select {
				case <-stop:
					return
				default:
				}
				docs := numbered(n, batch, day, fmt.Sprintf(`,"writer":%d`, w))
				if err := p.Append(context.Background(), output(uint64(n), docs...)); err != nil {
					t.Errorf("writer %d: %v", w, err)
					return
				}
				mu.Lock()
				acknowledged[w] = n + batch
				mu.Unlock()
			}
		})
	}
	for i := range 5 {
		time.Sleep(100 * time.Millisecond)
		if i == 2 {
			if _, err := s.Delete(t.Context(), "events", "writer = 9"); err != nil {
				t.Fatal(err)
			}
		}
		mu.Lock()
		before := acknowledged
		mu.Unlock()
		var archive bytes.Buffer
		if err := s.Backup(t.Context(), &archive); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		after := acknowledged
		mu.Unlock()
		if after == before {
			t.Logf("nothing was appended during backup %d", i)
		}
		checkBackup(t, filepath.Join(folder, fmt.Sprint(i)), &archive, before[:])
	}
	close(stop)
	writing.Wait()
}

func checkBackup(t *testing.T, folder string, archive *bytes.Buffer, least []int) {
	t.Helper()
	if err := Restore(folder, archive); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, folder)
	defer s.Close()
	for w, n := range least {
		var rows, distinct, greatest int
		fmt.Sscanf(ask(t, s, fmt.Sprintf("SELECT count(*), count(DISTINCT id), max(id) FROM events WHERE writer = %d", w)), "%d,%d,%d", &rows, &distinct, &greatest)
		if rows < n || rows != distinct || greatest != rows-1 {
			t.Errorf("writer %d: %d rows, %d distinct, greatest %d; %d had been acknowledged", w, rows, distinct, greatest, n)
		}
		p, done, err := s.tableNamed("events").TakeOver(t.Context(), "pipe", fmt.Sprint(w))
		if err != nil {
			t.Fatal(err)
		}
		if next := done[len(done)-1].End(); next != uint64(rows) {
			t.Errorf("writer %d: %d rows, but the next position is %d", w, rows, next)
		}
		// The restored store goes on where the backup ends.
		appendDocs(t, p, uint64(rows), fmt.Sprintf(`{"time":"2026-11-23T00:00:00Z","id":%d,"writer":%d}`, rows, w))
		if got := ask(t, s, fmt.Sprintf("SELECT count(*) FROM events WHERE writer = %d", w)); got != fmt.Sprint(rows+1) {
			t.Errorf("after another row: %s", got)
		}
	}
}

// TestRestoreRefuses restores what is no whole backup, and where there is a store.
func TestRestoreRefuses(t *testing.T) {
	s := openStore(t, t.TempDir())
	p := take(t, openTable(t, s, TableConfig{}))
	appendDocs(t, p, 0, `{"a":1}`)
	seal(t, s)
	appendDocs(t, p, 1, `{"a":2}`)
	var archive bytes.Buffer
	if err := s.Backup(t.Context(), &archive); err != nil {
		t.Fatal(err)
	}
	whole := archive.Bytes()
	restore := func(data []byte) (string, error) {
		folder := filepath.Join(t.TempDir(), "events")
		err := Restore(folder, bytes.NewReader(data))
		left, _ := filepath.Glob(folder + "*")
		if err != nil && len(left) > 0 {
			t.Errorf("after %v there is %v", err, left)
		}
		return folder, err
	}
	folder, err := restore(whole)
	if err != nil {
		t.Fatal(err)
	}
	if err := Restore(folder, bytes.NewReader(whole)); !isPermanent(err) || !strings.Contains(err.Error(), "holds an event store already") {
		t.Errorf("over a store: %v", err)
	}
	if got := ask(t, openStore(t, folder), "SELECT sum(a) FROM events"); got != "3" {
		t.Errorf("restored: %s", got)
	}
	for n := 0; n < len(whole)-1536; n += 512 { // the archive's own end has 1,024 bytes
		if _, err := restore(whole[:n]); !isPermanent(err) {
			t.Fatalf("the first %d of %d bytes: %v", n, len(whole), err)
		}
	}
	for n := 0; n < len(whole)-1536; n += 701 {
		damaged := bytes.Clone(whole)
		damaged[n] ^= 0x40
		if folder, err := restore(damaged); err == nil {
			// A bit that means nothing, as in the padding between files.
			if got := ask(t, openStore(t, folder), "SELECT sum(a) FROM events"); got != "3" {
				t.Fatalf("byte %d: %s", n, got)
			}
		} else if !isPermanent(err) {
			t.Fatalf("byte %d: %v", n, err)
		}
	}
}

// TestBackupOfDamage refuses to pass damage on.
func TestBackupOfDamage(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	p := take(t, openTable(t, s, TableConfig{}))
	appendDocs(t, p, 0, `{"a":1}`)
	seal(t, s)
	name := filepath.Join(folder, "tables/events", filesOf(s)[0].Name)
	s.Close()
	if err := os.Truncate(name, 10); err != nil {
		t.Fatal(err)
	}
	s, err := Open(folder, Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Backup(t.Context(), new(bytes.Buffer)); err == nil || !strings.Contains(err.Error(), "is damaged") {
		t.Errorf("backup of a damaged store: %v", err)
	}
}

func isPermanent(err error) bool {
	_, ok := errors.AsType[*event.PermanentError](err)
	return ok
}

func TestStats(t *testing.T) {
	s := openStore(t, t.TempDir())
	p := take(t, openTable(t, s, TableConfig{Time: "time", Retention: 100 * 365 * 24 * time.Hour}))
	day := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	appendDocs(t, p, 0, numbered(0, 100, day, "")...)
	seal(t, s)
	appendDocs(t, p, 100, numbered(100, 20, day.Add(48*time.Hour), "")...)
	all, err := s.Stats()
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	got := all[0]
	if got.Name != "events" || got.LogRows != 20 || len(got.Files) != 1 || got.Files[0].Rows != 100 || got.Files[0].Bytes == 0 ||
		!got.MinTime.Equal(day) || got.MaxTime.Before(day.Add(48*time.Hour)) || !got.Files[0].MinTime.Equal(day) {
		t.Errorf("got %+v", got)
	}
}
