package main

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/catalog"
	"github.com/apache/iceberg-go/table"

	"github.com/perigeedb/perigee/eventstore/lake"
	"github.com/perigeedb/perigee/internal/testseed"
)

// A history is a random life of a table: committers of a store, some of which are late, crash or
// meet, another engine that writes into the table, and days that pass. It lives in the clock of
// package synctest.
type history struct {
	*testing.T
	settings lake.Settings
	folder   string // of the store
	location string // of the table
	uuid     string // that the store has recorded, as the location
	recorded string
	mu       sync.Mutex
	random   *rand.Rand
	step     int
	number   int // of the last file
	files    []lake.File
	purges   []lake.Purge
	orders   []*lake.TableOrder // the last ones
	crashed  int
}

func (h *history) intN(n int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.random.IntN(n)
}

// date gives all new files the time of the test's clock instead of the kernel's.
func (h *history) date() {
	now := time.Now()
	err := filepath.WalkDir(h.location, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		if info, err := d.Info(); err == nil && info.ModTime().Year() > 2020 {
			_ = os.Chtimes(path, now, now)
		}
		return nil
	})
	if err != nil {
		h.Error(err)
	}
}

// onPoint delays a committer by up to half an hour, or ends it.
func (h *history) onPoint(string) {
	h.date()
	switch n := h.intN(30); {
	case n < 10:
		time.Sleep(time.Duration(h.intN(29)) * time.Minute)
	case n == 10:
		panic(errCrashed)
	}
	h.date()
}

var errCrashed = errors.New("crashed")

// commit carries out an order as a process of its own.
func (h *history) commit(o *lake.TableOrder) (r lake.TableReport) {
	own := *o
	own.Columns = columns()
	h.mu.Lock()
	own.UUID, own.Location = h.uuid, h.recorded
	h.mu.Unlock()
	defer func() {
		if p := recover(); p == errCrashed {
			h.mu.Lock()
			h.crashed++
			h.mu.Unlock()
			r.Error = "crashed"
		} else if p != nil {
			panic(p)
		}
		h.date()
	}()
	r = publish(h.Context(), &own)
	if r.Error == "" {
		h.mu.Lock()
		h.uuid, h.recorded = r.UUID, r.Location
		h.mu.Unlock()
	}
	return r
}

// order returns an order for what the store has.
func (h *history) order() *lake.TableOrder {
	h.step++
	o := orderOf(h.settings, h.step, slices.Clone(h.files)...)
	h.files = slices.Clone(o.Files)
	o.Tidy = lake.DefaultTidy()
	o.Tidy.Purges = slices.Clone(h.purges)
	h.orders = append(h.orders, o)
	return o
}

func (h *history) write(replaces ...lake.File) {
	h.number++
	// The encoders of zstd are shared by all tests, which the clock of package synctest forbids.
	f := writeFileAs(h.T, h.folder, h.number, 10*h.number, 10*h.number+3, compress.Codecs.Uncompressed)
	f.Replaces = replaces
	for i := range f.Replaces {
		f.Replaces[i].Replaces = nil
	}
	h.files = append(h.files, f)
}

// writeForeign writes a file as another engine, which commits it hours later.
func (h *history) writeForeign(name string, wait time.Duration) error {
	path := filepath.Join(h.location, "data", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path, []byte("rows of another engine"), 0o600); err != nil {
		return err
	}
	h.date()
	time.Sleep(wait)
	c, t := load(h.T, orderOf(h.settings, 1))
	b, err := iceberg.NewDataFileBuilder(*iceberg.UnpartitionedSpec, iceberg.EntryContentData, t.Location()+"/data/"+name, iceberg.ParquetFile, nil, nil, nil, 1, 22)
	if err != nil {
		return err
	}
	transaction := t.NewTransaction()
	if err := transaction.AddDataFiles(h.Context(), []iceberg.DataFile{b.Build()}, nil); err != nil {
		return err
	}
	defer h.date()
	return commit(h.Context(), c, transaction)
}

// check fails unless everything is there that the table names, and returns it with all objects.
func (h *history) check() (*references, []lake.Object) {
	h.Helper()
	for {
		c, err := openCatalog(h.Context(), &h.settings, true)
		if err != nil {
			h.Fatal(err)
		}
		defer closeCatalog(c)
		load := func() *table.Table {
			t, err := c.LoadTable(h.Context(), catalog.ToIdentifier(strings.Split(h.settings.Table, ".")...))
			if err != nil && !errors.Is(err, catalog.ErrNoSuchTable) {
				h.Fatal(err)
			}
			return t
		}
		t := load()
		if t == nil {
			return nil, nil
		}
		r, failed := readReferences(h.Context(), t, nil)
		store, err := openObjects(t.Location())
		if err != nil {
			h.Fatal(err)
		}
		objects, err := listObjects(h.Context(), store)
		if err != nil {
			h.Fatal(err)
		}
		if load().MetadataLocation() != t.MetadataLocation() {
			continue // snapshots may have expired meanwhile
		}
		if failed != nil {
			h.Fatal("the table names what is gone: ", failed)
		}
		there := map[string]bool{}
		for _, object := range objects {
			there[object.Name] = true
		}
		for name := range r.named {
			if !there[name] {
				h.Errorf("at %v, the table names %s, which is gone", time.Now(), name)
			}
		}
		return r, objects
	}
}

func (h *history) run() {
	h.write()
	h.commit(h.order())
	var running sync.WaitGroup
	defer running.Wait()
	for range 30 {
		switch h.intN(9) {
		case 0, 1, 2:
			h.write()
		case 3, 4:
			if n := len(h.files); n > 2 { // merge
				of := slices.Clone(h.files[n-2:])
				h.files = h.files[:n-2]
				h.write(of...)
			}
		case 5:
			if len(h.files) > 1 { // retention
				h.files = slices.Clone(h.files[1:])
			}
		case 6: // a delete
			of := h.files
			h.files = nil
			h.purges = append(h.purges, lake.Purge{Number: uint64(h.number + 1), At: time.Now()})
			for _, f := range of {
				h.write(f)
			}
		case 7:
			name, wait := "2026-11-29/foreign-"+time.Now().Format("20060102150405")+".parquet", time.Duration(h.intN(47))*time.Hour
			running.Go(func() { _ = h.writeForeign(name, wait) }) // it may meet another commit
		case 8:
			if last := h.orders[max(0, len(h.orders)-1-h.intN(2))]; h.intN(2) == 0 { // a committer that is late
				running.Go(func() { h.commit(last) })
			}
		}
		o := h.order()
		running.Go(func() {
			for range 3 {
				if r := h.commit(o); r.Error == "" {
					return
				}
				time.Sleep(time.Minute)
			}
		})
		for range 1 + h.intN(3) {
			time.Sleep(time.Duration(h.intN(12)) * time.Minute)
			h.check()
		}
		if h.intN(6) == 0 {
			time.Sleep(time.Duration(h.intN(72)) * time.Hour)
			h.check()
		}
		if h.Failed() {
			return
		}
	}
	running.Wait()
	h.check()
}

// end publishes once more and lets all times pass. Then only what the table names may be there.
func (h *history) end() {
	onPoint = func(string) { h.date() }
	for i := range 5 {
		o := h.order()
		r := h.commit(o)
		if r.Error != "" || r.Tidied == nil || r.Tidied.Error != "" {
			h.Fatalf("%+v %+v", r, r.Tidied)
		}
		if i == 1 {
			h.checkPurged(o)
		}
		if time.Sleep(2 * time.Hour); i > 0 {
			time.Sleep(23 * time.Hour)
		}
	}
	r := h.commit(h.order())
	named, objects := h.check()
	o := h.orders[len(h.orders)-1]
	_, t := load(h.T, o)
	owner, err := lake.OwnerOf(o, t.Properties())
	if err != nil {
		h.Fatal(err)
	}
	for _, object := range objects {
		if !named.named[object.Name] && object.Name != "metadata/version-hint.text" {
			h.Errorf("%s is still there: %v, now %v", object.Name, object.Modified, time.Now())
		}
		for _, p := range h.purges {
			if owner.PurgedBy(strings.TrimPrefix(object.Name, "data/")).Includes(p) {
				h.Errorf("%s has deleted rows", object.Name)
			}
		}
	}
	for i, p := range h.purges {
		if r.Tidied.Purged[i].Waits != "" {
			h.Errorf("purge %+v waits: %+v", p, r.Tidied.Purged[i])
		}
		for _, m := range named.manifests {
			if m.purgedBy(owner).Includes(p) {
				h.Errorf("manifest %s knows of deleted rows", m.file.FilePath())
			}
		}
	}
}

// checkPurged fails if an object of the store has deleted rows, or a manifest knows of them, even
// one of a commit that failed.
func (h *history) checkPurged(o *lake.TableOrder) {
	h.Helper()
	_, t := load(h.T, o)
	owner, err := lake.OwnerOf(o, t.Properties())
	if err != nil {
		h.Fatal(err)
	}
	fs, err := t.FS(h.Context())
	if err != nil {
		h.Fatal(err)
	}
	_, objects := h.check()
	for _, object := range objects {
		m := &manifest{live: []string{object.Name}}
		if strings.HasSuffix(object.Name, ".avro") {
			if m, err = readOrphan(fs, t.Location()+"/"+object.Name, locationOf(t)); err != nil {
				h.Fatal(err)
			}
		}
		for _, p := range h.purges {
			if m != nil && m.purgedBy(owner).Includes(p) {
				h.Errorf("%s has deleted rows or knows of them", object.Name)
			}
		}
	}
}

// TestTidyHistories lives random histories. What a table names must be there at any time.
func TestTidyHistories(t *testing.T) {
	seed := testseed.Seed(t)
	defer func(real func(string)) { onPoint = real }(onPoint)
	crashed := 0
	for i := range 4 {
		folder := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			h := &history{T: t, settings: lake.Settings{Warehouse: filepath.Join(folder, "lake"), Table: "sales.mails"}, folder: folder,
				location: filepath.Join(folder, "lake", "sales", "mails"), random: rand.New(rand.NewPCG(seed, uint64(i)))}
			onPoint = h.onPoint
			if err := os.MkdirAll(h.location, 0o755); err != nil {
				t.Fatal(err)
			}
			h.run()
			if !t.Failed() {
				h.end()
			}
			crashed += h.crashed
		})
		if t.Failed() {
			t.Fatalf("history %d", i)
		}
	}
	t.Log("crashed", crashed)
}
