// Package lakecache keeps a bounded part of the files on disk whose data have left it for a
// lake. A query pins the files that it reads; those that are missing are fetched, verified and
// put where they were before, so that readers find them under their usual names. When room is
// needed, the file that was pinned least recently leaves. A pinned file never does.
//
// The data of a file and of its object in the lake are equal up to their footers. Of a file that
// leaves, the store keeps the footer.
//
// A Cache is safe for concurrent use.
package lakecache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
)

// A File is a file whose data are in a lake.
type File struct {
	Path   string // where readers expect it
	Footer string // path of its footer
	Bytes  int64
	Remote *manifest.Remote
}

// Of returns the file of a table of the store in folder. It must have left the disk.
func Of(folder string, t *manifest.Table, f *manifest.File) File {
	return File{Path: t.Path(folder, f.Name), Footer: t.Path(folder, manifest.FooterName(f.Name)), Bytes: f.Bytes, Remote: f.Remote}
}

// A Cache holds files on disk. Close it to end its work.
type Cache struct {
	temp    string // folder for files that are being fetched
	limit   int64
	objects objects
	running sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	entries map[string]*entry // by path
	stays   map[string]bool   // paths of files that came back to stay: the cache does not own them
	failed  map[string]Failure
	clock   uint64
	changed chan struct{}            // closed and replaced when a file is unpinned
	slots   map[string]chan struct{} // limits concurrent fetches of a bucket; those of folders have the name ""
}

// An entry is a file that is on disk, or on its way.
type entry struct {
	File
	pins    int
	beyond  int    // of these, pins that may take more room than the cache has
	used    uint64 // clock of the last pin
	here    bool
	fetch   *fetch // nil if none is running
	leaving bool   // readers from before it left still use it: it takes no room of the cache
	dropped bool   // is removed with the last pin
}

// A Failure is a failed fetch of a file, because of its object.
type Failure struct {
	At  time.Time
	Err error
}

// Failures returns the last failure of each file that no fetch has brought since, by path.
func (c *Cache) Failures() map[string]Failure {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.failed)
}

// A fetch is a running fetch of a file.
type fetch struct {
	done   chan struct{}
	cancel context.CancelFunc
	err    error // once done is closed
}

// fetchesMax is the maximum number of files fetched at once from a bucket, so that a slow bucket does
// not delay others.
const fetchesMax = 4

// New returns a cache of up to limit bytes. temp is a folder on the file system of the store.
func New(temp string, limit int64) *Cache {
	return &Cache{temp: temp, limit: limit, slots: map[string]chan struct{}{}, entries: map[string]*entry{}, stays: map[string]bool{}, failed: map[string]Failure{}, changed: make(chan struct{})}
}

// Close ends running fetches. Nothing may be pinned any more.
func (c *Cache) Close() {
	c.mu.Lock()
	c.closed = true
	for _, e := range c.entries {
		if e.fetch != nil {
			e.fetch.cancel()
		}
	}
	c.mu.Unlock()
	c.running.Wait()
}

// Adopt takes over a whole file that an earlier process has left on disk. Files adopted earlier
// count as used less recently.
func (c *Cache) Adopt(f File) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clock++
	c.entries[f.Path] = &entry{File: f, here: true, used: c.clock}
	c.trim(c.limit)
}

// Leave records that the data of a file are about to be removed from disk. Call Left once a manifest
// says so and readers of earlier ones have ended, or Stay to keep them.
func (c *Cache) Leave(f File) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.stays, f.Path)
	c.entries[f.Path] = &entry{File: f, here: true, leaving: true}
}

// Left removes a file, unless a query has pinned it since it left.
func (c *Cache) Left(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[path]
	if e == nil || !e.leaving {
		return
	}
	if e.leaving = false; e.pins == 0 {
		c.remove(e)
	} else {
		e.dropped = true
	}
}

// Stay hands a file back to the store, which has it on disk again, or still has. Queries that have
// pinned it continue to read it.
func (c *Cache) Stay(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.entries, path)
	c.stays[path] = true
}

// slotsOf returns the slots for fetches of a bucket.
func (c *Cache) slotsOf(address string) chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	bucket, _, _ := keyOf(address)
	if c.slots[bucket] == nil {
		c.slots[bucket] = make(chan struct{}, fetchesMax)
	}
	return c.slots[bucket]
}

// Remove removes a file that no reader needs, and forgets it.
func (c *Cache) Remove(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.stays, path)
	delete(c.failed, path)
	switch e := c.entries[path]; {
	case e == nil: // such as one that was to leave and stayed
		_ = os.Remove(path)
	case e.pins == 0:
		c.remove(e)
	default:
		e.dropped, e.leaving = true, false
		if e.pins == e.beyond { // by maintenance, which has read it, and may keep the pin for long
			_ = os.Remove(path)
		}
	}
}

// remove removes a file. The caller holds mu.
func (c *Cache) remove(e *entry) {
	delete(c.entries, e.Path)
	if e.fetch != nil {
		e.fetch.cancel()
	}
	if e.here {
		_ = os.Remove(e.Path) // it is removed by the next start otherwise
	}
}

// trim removes the files that were pinned least recently, until the others fit into limit. The
// caller holds mu.
func (c *Cache) trim(limit int64) {
	var unpinned []*entry
	for _, e := range c.entries {
		if e.leaving {
			continue
		}
		if limit -= e.Bytes; e.pins == 0 {
			unpinned = append(unpinned, e)
		}
	}
	slices.SortFunc(unpinned, func(a, b *entry) int { return cmp.Compare(a.used, b.used) })
	for _, e := range unpinned {
		if limit >= 0 {
			return
		}
		c.remove(e)
		limit += e.Bytes
	}
}

// Pinned are files that stay on disk until Release.
type Pinned struct {
	cache   *Cache
	entries []*entry
	beyond  bool
	once    sync.Once
}

// Release unpins the files.
func (p *Pinned) Release() {
	if p == nil {
		return
	}
	p.once.Do(func() {
		p.cache.mu.Lock()
		defer p.cache.mu.Unlock()
		p.cache.unpin(p.entries, p.beyond)
	})
}

// Pin pins files, and fetches those that are missing. It waits until other queries leave enough
// room. A caller that has pinned files must release them first: two that wait for each other
// would wait for ever. beyond lets the files take more room than the cache has: then neither this
// caller nor others wait for their room.
func (c *Cache) Pin(ctx context.Context, files []File, beyond bool) (*Pinned, error) {
	files = slices.CompactFunc(slices.SortedFunc(slices.Values(files), func(a, b File) int { return cmp.Compare(a.Path, b.Path) }), func(a, b File) bool { return a.Path == b.Path })
	p, err := c.reserve(ctx, files, beyond)
	if err != nil {
		return nil, err
	}
	for _, e := range p.entries {
		if err := c.await(ctx, e); err != nil {
			p.Release()
			return nil, err
		}
	}
	return p, nil
}

// reserve pins files once there is room for them, and starts to fetch those that are missing.
func (c *Cache) reserve(ctx context.Context, files []File, beyond bool) (*Pinned, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		if c.closed {
			return nil, errors.New("the cache is closed")
		}
		need, others := int64(0), int64(0)
		wanted := map[string]bool{}
		for _, f := range files {
			if e := c.entries[f.Path]; !c.stays[f.Path] && (e == nil || !e.leaving) {
				wanted[f.Path] = true
				need += f.Bytes
			}
		}
		for path, e := range c.entries {
			if e.pins > e.beyond && !e.leaving && !wanted[path] {
				others += e.Bytes
			}
		}
		if need > c.limit && !beyond {
			return nil, &event.Fault{
				Message: fmt.Sprintf("the query needs %s of files that are in the lake, and %s of them fit on this disk at once", size(need), size(c.limit)),
				Hint:    "narrow it by time or by a column with a bloom filter, or raise lake_cache below query in the engine's configuration",
			}
		}
		if beyond || need+others <= c.limit {
			return c.pin(files, beyond), nil
		}
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		c.mu.Lock()
	}
}

// pin pins files. The caller holds mu, and has found room for them.
func (c *Cache) pin(files []File, beyond bool) *Pinned {
	p := &Pinned{cache: c, beyond: beyond}
	c.clock++
	for _, f := range files {
		if c.stays[f.Path] {
			continue
		}
		e := c.entries[f.Path]
		if e == nil {
			e = &entry{File: f}
			c.entries[f.Path] = e
		}
		e.pins++
		if beyond {
			e.beyond++
		}
		e.used = c.clock
		p.entries = append(p.entries, e)
	}
	c.trim(c.limit) // before the fetches
	for _, e := range p.entries {
		if !e.here && e.fetch == nil {
			c.start(e)
		}
	}
	return p
}

// unpin releases pins of entries. The caller holds mu.
func (c *Cache) unpin(entries []*entry, beyond bool) {
	for _, e := range entries {
		if beyond {
			e.beyond--
		}
		if e.pins--; e.pins > 0 || c.entries[e.Path] != e {
			continue
		}
		if e.dropped || !e.here { // a fetch that nobody awaits ends
			c.remove(e)
		}
	}
	c.trim(c.limit)
	close(c.changed)
	c.changed = make(chan struct{})
}

// start fetches a file in the background. The caller holds mu.
func (c *Cache) start(e *entry) {
	ctx, cancel := context.WithCancel(context.Background())
	f := &fetch{done: make(chan struct{}), cancel: cancel}
	e.fetch = f
	c.running.Go(func() {
		defer cancel()
		err := c.fetchFile(ctx, &e.File)
		if errors.Is(err, errFull) && c.makeRoom() {
			err = c.fetchFile(ctx, &e.File)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		e.fetch, f.err = nil, err
		if err == nil {
			delete(c.failed, e.Path)
		}
		switch {
		case err != nil:
			if ctx.Err() == nil && !errors.Is(err, errFull) {
				c.failed[e.Path] = Failure{time.Now(), err}
			}
		case c.entries[e.Path] == e:
			e.here = true
		case c.entries[e.Path] == nil && !c.stays[e.Path]: // it was given up just before its end
			_ = os.Remove(e.Path)
		}
		close(f.done)
	})
}

// makeRoom removes all files that are not pinned. It reports whether there were any.
func (c *Cache) makeRoom() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := len(c.entries)
	c.trim(0)
	return len(c.entries) < before
}

// await waits for a pinned file.
func (c *Cache) await(ctx context.Context, e *entry) error {
	for {
		c.mu.Lock()
		f := e.fetch
		switch {
		case e.here:
			c.mu.Unlock()
			return nil
		case f == nil: // the fetch of another query has failed
			c.start(e)
			f = e.fetch
		}
		c.mu.Unlock()
		select {
		case <-f.done:
			if f.err != nil {
				return f.err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Size returns the bytes of the files that the cache holds or fetches, and how many they are.
func (c *Cache) Size() (bytes int64, files int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.entries {
		if !e.leaving {
			bytes, files = bytes+e.Bytes, files+1
		}
	}
	return bytes, files
}

// Has reports whether a file is whole on disk, for stores that are open to read only.
func Has(f File) bool {
	info, err := os.Stat(f.Path)
	return err == nil && info.Size() == f.Bytes
}

func size(n int64) string {
	if n < 10<<20 {
		return fmt.Sprintf("%d KiB", (n+1023)>>10)
	}
	return fmt.Sprintf("%d MiB", (n+1<<20-1)>>20)
}
