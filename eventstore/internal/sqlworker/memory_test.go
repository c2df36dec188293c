//go:build linux && cgo

package sqlworker

import (
	"errors"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/sqlclient"
	"github.com/perigeedb/perigee/eventstore/internal/storetest"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
)

// peaks measures the peak memory of the workers that write files.
type peaks struct {
	client *sqlclient.Client
	ended  chan struct{}
	done   sync.WaitGroup
	most   [2]atomic.Int64 // of sealing and merging
}

func watchPeaks(c *sqlclient.Client) *peaks {
	p := &peaks{client: c, ended: make(chan struct{})}
	p.done.Go(func() {
		for {
			select {
			case <-p.ended:
				return
			case <-time.After(2 * time.Millisecond):
				for i, r := range []protocol.Role{protocol.SealRole, protocol.MergeRole} {
					p.most[i].Store(max(p.most[i].Load(), p.read(r)))
				}
			}
		}
	})
	return p
}

func (p *peaks) read(r protocol.Role) int64 {
	workers := p.client.Workers()
	i := slices.IndexFunc(workers, func(w sqlclient.WorkerInfo) bool { return w.Role == string(r) && !w.Retired })
	if i < 0 {
		return 0
	}
	statm, err := os.Open("/proc/" + strconv.Itoa(workers[i].PID) + "/statm")
	if err != nil {
		return 0
	}
	defer statm.Close()
	return (&memoryWatch{statm: statm}).resident()
}

func (p *peaks) check(t *testing.T) {
	t.Helper()
	close(p.ended)
	p.done.Wait()
	seal, merge := p.most[0].Load(), p.most[1].Load()
	t.Logf("sealing needed %d MiB, merging %d MiB", seal>>20, merge>>20)
	const limit = 128 << 20 // of each writer
	if seal > limit || merge > limit {
		t.Errorf("a writer needed more than %d MiB", limit>>20)
	}
}

// words returns text that compresses moderately.
func words(r *rand.Rand, bytes int) string {
	text := make([]byte, bytes)
	for i := 0; i < bytes; i += 12 {
		word := r.Uint64()
		for j := i; j < min(i+11, bytes); j++ {
			text[j] = "0123456789abcdef"[word&15]
			word >>= 4
		}
		if i+11 < bytes {
			text[i+11] = ' '
		}
	}
	return string(text)
}

// wideRow fills rows with texts of about the given size.
func wideRow(first, bytes int) func(c manifest.Column, v *event.Vector, row int) {
	r := rand.New(rand.NewPCG(1, uint64(first)))
	narrow := storetest.Row(first)
	return func(c manifest.Column, v *event.Vector, row int) {
		if c.Type == event.JSON {
			storetest.AddText(v, `"`+words(r, bytes)+`"`)
			return
		}
		if c.Name == "text" {
			storetest.AddText(v, words(r, bytes))
			return
		}
		narrow(c, v, row)
	}
}

// TestWideRow writes rows that need more memory than a writer has. The answer reports that,
// and a process with a higher limit writes them, and rewrites one after a delete.
func TestWideRow(t *testing.T) {
	f := newFolder(t, sqlclient.Options{})
	table := f.AddTable("events", storetest.Column(5, "text", event.String))
	text := strings.Repeat("0123456789abcdef", 60<<20/16)
	f.AppendFrame(1, storetest.FrameOf(table, 2, func(c manifest.Column, v *event.Vector, row int) {
		if c.Name == "text" {
			storetest.AddText(v, text[row:])
			return
		}
		storetest.Row(0)(c, v, row)
	}))
	f.Ends[0].Closed = true
	segment := protocol.Segment{Version: f.M.Version, Log: f.Ends[0], Number: f.M.NextSegment}
	if _, err := f.client.WriteSegment(t.Context(), segment); !errors.Is(err, protocol.ErrMemory) || strings.Contains(err.Error(), "query") {
		t.Errorf("got %v, want that memory is short", err)
	}
	segment.Number, segment.LowMemory = segment.Number+1, true
	written, err := f.client.WriteSegment(t.Context(), segment)
	if err != nil || len(written) != 1 || written[0].File.Rows != 2 {
		t.Fatalf("got %+v, %v", written, err)
	}
	file := written[0].File
	table.Files, f.M.LogStart, f.M.NextSegment = []*manifest.File{&file}, 2, segment.Number+1
	table.Deletes, f.M.NextDelete = []*manifest.Delete{{Number: 1, Predicate: "id = 1", Before: wal.Position{File: 2, Offset: 1}}}, 2
	f.Save()
	merge := protocol.Merge{Version: f.M.Version, Table: table.ID, Groups: [][]string{{file.Name}}, Number: f.M.NextSegment, LowMemory: true}
	if merged, err := f.client.Merge(t.Context(), merge); err != nil || len(merged) != 1 || merged[0].File.Rows != 1 {
		t.Errorf("got %+v, %v", merged, err)
	}
}

// TestRemovedFilesAreForgotten queries a store while its files are repeatedly replaced, as by
// sealing, merging and retention. The idle memory of the worker must not grow with the
// removed files.
func TestRemovedFilesAreForgotten(t *testing.T) {
	const columns, window, windows, growthMax = 50, 2 * removedFilesMax, 4, 4 << 20
	var more []manifest.Column
	for i := range int32(columns) {
		more = append(more, storetest.Column(5+i, "column_"+strconv.Itoa(int(i)), event.String))
	}
	f := newFolder(t, sqlclient.Options{Threads: 1})
	table := f.AddTable("events", more...)
	f.AppendFrame(1, storetest.FrameOf(table, 10, storetest.Row(0)))
	f.Seal(1)
	written := table.Files[0]
	content, err := os.ReadFile(table.Path(f.Path, written.Name))
	if err != nil {
		t.Fatal(err)
	}
	atRest := func() int64 { return f.worker(protocol.QueryRole).Memory }
	least := make([]int64, windows) // in each window of rounds; memory drops when footers are freed
	for round := range windows * window {
		next := *written
		next.Name, next.Bloom = manifest.FileName(written.Day, 0, round), ""
		if err := os.WriteFile(table.Path(f.Path, next.Name), content, 0o600); err != nil {
			t.Fatal(err)
		}
		table.Files = []*manifest.File{&next}
		f.Save()
		f.Want(`SELECT count(*), sum(id), max(column_7) FROM (SELECT * FROM events)`, "10,45,text 9")
		if err := os.Remove(table.Path(f.Path, next.Name)); err != nil {
			t.Fatal(err)
		}
		if now := &least[round/window]; round%window == 0 || atRest() < *now {
			*now = atRest()
		}
	}
	t.Logf("at least %d bytes in each %d files", least, window)
	if grown := least[windows-1] - least[1]; grown > growthMax {
		t.Errorf("the worker took %d bytes more after %d files that are gone, want at most %d", grown, (windows-2)*window, growthMax)
	}
}

// TestEvictOldest checks which request ends when the process exceeds its limit: the oldest
// one during which it has grown by much.
func TestEvictOldest(t *testing.T) {
	m := newMemoryWatch(1)
	now := m.resident()
	if now < 1<<20 {
		t.Skip("the memory of the process is not known")
	}
	var ended []string
	add := func(name string, age time.Duration, before int64) {
		w := &watched{started: time.Now().Add(-age), before: before}
		w.cancel = func(err error) {
			if !errors.Is(err, protocol.ErrQueryMemory) {
				t.Errorf("%s: %v", name, err)
			}
			ended = append(ended, name)
		}
		m.running[w] = true
	}
	if m.evictOldest() {
		t.Error("a request ended, and none runs")
	}
	add("did not grow", time.Hour, 100*now)
	add("second", time.Minute, 0)
	add("third", time.Second, 0)
	add("first", 2*time.Minute, 0)
	for range 5 {
		m.evictOldest()
	}
	if got := strings.Join(ended, ", "); got != "first, second, third" {
		t.Errorf("ended: %s", got)
	}
	m = newMemoryWatch(100 * now)
	add("below the limit", time.Hour, 0)
	if m.evictOldest() {
		t.Error("a request ended below the limit")
	}
}

// TestTrimAfterGrowth checks that memory is returned after requests during which the process
// has grown, one at a time.
func TestTrimAfterGrowth(t *testing.T) {
	m := newMemoryWatch(1)
	now := m.resident()
	if now == 0 {
		t.Skip("the memory of the process is not known")
	}
	grown, same := &watched{before: now - 4*trimFrom}, &watched{before: now + 1<<40}
	m.trimAfter(grown)
	m.trimming.Lock() // waits for the end of the trim
	for range 100 {
		m.trimAfter(grown)
		m.trimAfter(same)
		runtime.Gosched()
		if m.trimming.TryLock() {
			t.Fatal("memory is returned twice at a time")
		}
	}
	m.trimming.Unlock()
	m.trimAfter(same)
	if !m.trimming.TryLock() {
		t.Error("memory is returned after a request without growth")
	}
}
