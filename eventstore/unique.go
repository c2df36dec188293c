//go:build linux && cgo

package eventstore

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/internal/keyset"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
)

const uniqueMemoryDefault = 256 << 20

// A uniqueKeys holds the keys that a table has seen. It is safe for concurrent use.
//
// A key counts once its row is durable. An append waits while another running append holds
// one of its keys. The log has the rows of the newest keys and key files hold the older keys;
// opening the store rebuilds the set from both.
type uniqueKeys struct {
	table    string
	columns  []int32       // IDs of the key columns
	window   atomic.Uint32 // in seconds
	repeated atomic.Uint64 // rows dropped since the store was opened

	mu       sync.Mutex
	set      *keyset.Set
	appended chan struct{} // closed and replaced when an append ends
}

func newUniqueKeys(table string, columns []int32, c *catalog.Unique) *uniqueKeys {
	u := &uniqueKeys{table: table, columns: columns, set: keyset.New(c.Memory), appended: make(chan struct{})}
	u.window.Store(windowOf(c))
	return u
}

// windowOf returns the window of a table in seconds.
func windowOf(c *catalog.Unique) uint32 { return uint32(time.Duration(c.Window) / time.Second) }

// keyColumns returns the IDs of the columns of a key.
func keyColumns(s *manifest.Schema, key []string) (ids []int32, err error) {
	for _, name := range key {
		i := slices.IndexFunc(s.Columns, func(c manifest.Column) bool { return strings.EqualFold(c.Name, name) })
		if i < 0 || !s.Columns[i].Declared {
			return nil, configError("declare its type below columns", "the key of unique names column %s, which is not declared", name)
		}
		switch c := &s.Columns[i]; c.Type {
		case event.Float64, event.Decimal, event.JSON:
			return nil, configError("use columns of type bool, int32, int64, string, bytes, timestamp or timestamp_ns",
				"the key of unique names column %s of type %s, in which equal values may be spelled differently", name, c.Type)
		default:
			ids = append(ids, c.ID)
		}
	}
	return ids, nil
}

// checkWindow returns an error if a window is invalid.
func checkWindow(window time.Duration) error {
	if window < time.Second || window%time.Second != 0 || window > uniqueWindowMax {
		return configError(fmt.Sprintf("use whole seconds, up to %d days", uniqueWindowMax/(24*time.Hour)), "invalid window %v of unique", window)
	}
	return nil
}

const uniqueWindowMax = 366 * 24 * time.Hour

// unique returns the key settings with their defaults, or nil without a key.
func (c *TableConfig) unique() *catalog.Unique {
	if len(c.Unique.Key) == 0 {
		return nil
	}
	u := c.Unique
	u.Memory = cmp.Or(u.Memory, uniqueMemoryDefault)
	return &u
}

// A keyHasher computes key hashes of rows.
type keyHasher struct {
	ids     []int32
	vectors []*event.Vector // nil for a missing column: all its values are null
	text    []byte
}

func newKeyHasher(key []int32, ids []int32, columns *event.Columns) *keyHasher {
	h := &keyHasher{ids: key}
	for _, id := range key {
		var v *event.Vector
		if i := slices.Index(ids, id); i >= 0 && i < len(columns.Vectors) {
			v = &columns.Vectors[i]
		}
		h.vectors = append(h.vectors, v)
	}
	return h
}

// hash returns the hash of a row's key. ok is false if a key column is null.
func (h *keyHasher) hash(row int) (hash manifest.KeyHash, ok bool) {
	h.text = h.text[:0]
	for i, v := range h.vectors {
		if v == nil || len(v.Null) > 0 && v.Null[row] == 1 {
			return hash, false
		}
		h.text = binary.LittleEndian.AppendUint32(h.text, uint32(h.ids[i]))
		if len(v.Ends) > 0 {
			text := v.Text(row)
			h.text = binary.LittleEndian.AppendUint32(h.text, uint32(len(text)))
			h.text = append(h.text, text...)
		} else {
			h.text = binary.LittleEndian.AppendUint64(h.text, uint64(v.Ints[row]))
		}
	}
	sum := sha256.Sum256(h.text)
	for i := range hash {
		hash[i] = binary.LittleEndian.Uint32(sum[4*i:])
	}
	return hash, true
}

// A keyClaim holds the keys of a running append. The caller must call end. A nil keyClaim
// belongs to a table without a key.
type keyClaim struct {
	keys     *uniqueKeys
	hashes   []manifest.KeyHash
	now      uint32
	repeated uint64
}

// claim returns the rows whose keys were not seen within the window. It waits while another
// append holds one of the keys.
func (u *uniqueKeys) claim(ctx context.Context, b *buffer, rows rowRuns, now time.Time) (rowRuns, *keyClaim, error) {
	hasher := newKeyHasher(u.columns, b.ids, &b.columns)
	hashes, known := make([]manifest.KeyHash, 0, rows.count()), make([]bool, 0, rows.count())
	for _, run := range rows {
		for row := run.first; row < run.end; row++ {
			hash, ok := hasher.hash(row)
			hashes, known = append(hashes, hash), append(known, ok)
		}
	}
	if err := u.lockKeys(ctx, hashes, known); err != nil {
		return nil, nil, err
	}
	defer u.mu.Unlock()
	c := &keyClaim{keys: u, now: uint32(now.Unix())}
	oldest := c.now - u.window.Load()
	var fresh rowRuns
	i := 0
	for _, run := range rows {
		for row := run.first; row < run.end; row, i = row+1, i+1 {
			if known[i] {
				e := u.set.Add(&hashes[i], oldest, c.now)
				if e == nil {
					c.setTime(keyset.Released)
					return nil, nil, u.errFull()
				}
				if e.Counts(oldest) {
					c.repeated++
					continue
				}
				e.Time = keyset.Appending
				c.hashes = append(c.hashes, hashes[i])
			}
			fresh = fresh.add(row)
		}
	}
	return fresh, c, nil
}

// lockKeys locks u once no running append holds any of the keys.
func (u *uniqueKeys) lockKeys(ctx context.Context, hashes []manifest.KeyHash, known []bool) error {
	for {
		u.mu.Lock()
		if !u.isAppending(hashes, known) {
			return nil
		}
		appended := u.appended
		u.mu.Unlock()
		select {
		case <-appended:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// isAppending reports whether a running append holds any of the keys. The caller holds u.mu.
func (u *uniqueKeys) isAppending(hashes []manifest.KeyHash, known []bool) bool {
	for i := range hashes {
		if known[i] {
			if e := u.set.Find(&hashes[i]); e != nil && e.Time == keyset.Appending {
				return true
			}
		}
	}
	return false
}

func (u *uniqueKeys) errFull() error {
	keys, memory := u.set.Size()
	return event.WithHint(fmt.Errorf("eventstore: table %s has seen %d keys within the window of unique, which take %d MiB", u.table, keys, memory>>20),
		"raise memory below unique, or shorten the window; rows are stored again when keys leave the window")
}

// end releases the claim. durable reports whether the rows of the append are durable.
func (c *keyClaim) end(durable bool) {
	if c == nil {
		return
	}
	c.keys.mu.Lock()
	defer c.keys.mu.Unlock()
	if durable {
		c.keys.repeated.Add(c.repeated)
		c.setTime(c.now)
	} else {
		c.setTime(keyset.Released)
	}
}

// setTime sets the time of the claimed entries. The caller holds keys.mu.
func (c *keyClaim) setTime(time uint32) {
	if len(c.hashes) == 0 {
		return
	}
	for i := range c.hashes {
		c.keys.set.Find(&c.hashes[i]).Time = time
	}
	close(c.keys.appended)
	c.keys.appended = make(chan struct{})
}

// load adds a durable key to a set that no append uses yet.
func (u *uniqueKeys) load(k manifest.Key, now uint32) {
	if oldest := now - u.window.Load(); k.Arrived > oldest {
		e := u.set.Add(&k.Hash, oldest, now)
		e.Time = max(e.Time, k.Arrived)
	}
}

// claimKeys returns the rows that the table stores, which are all rows if it has no key.
func (t *Table) claimKeys(ctx context.Context, b *buffer, rows rowRuns, now time.Time) (rowRuns, *keyClaim, error) {
	u := t.unique.Load()
	if u == nil {
		return rows, nil, nil
	}
	return u.claim(ctx, b, rows, now)
}

// setUnique applies the key settings in the manifest entry to the table.
func (t *Table) setUnique(entry *manifest.Table) error {
	c := entry.Unique
	if c == nil {
		t.unique.Store(nil)
		return nil
	}
	columns, err := keyColumns(entry.Current(), c.Key)
	if err != nil {
		return err
	}
	if u := t.unique.Load(); u != nil && slices.Equal(u.columns, columns) {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.window.Store(windowOf(c))
		u.set.SetLimit(c.Memory)
		return nil
	}
	u := newUniqueKeys(t.Name(), columns, c)
	if err := t.store.loadKeys(entry, u); err != nil {
		return fmt.Errorf("eventstore: read the keys of table %s: %w", t.Name(), err)
	}
	t.unique.Store(u)
	return nil
}

// loadKeys reads the keys of a table's rows from key files and from the log. It loads every
// key, even beyond the memory limit.
func (s *Store) loadKeys(entry *manifest.Table, u *uniqueKeys) error {
	snapshot := s.snapshot()
	defer snapshot.release()
	defer u.set.LiftLimit()()
	now := uint32(time.Now().Unix())
	load := func(k manifest.Key) { u.load(k, now) }
	if known := snapshot.manifest.TableByID(entry.ID); known != nil {
		for _, f := range known.Keys {
			if err := manifest.ReadKeys(s.folder, known, f.Number, load); err != nil {
				return err
			}
		}
	}
	for _, end := range snapshot.ends {
		if end.Number < snapshot.manifest.LogStart {
			continue
		}
		if err := readKeysOfLog(s.folder, end, entry.ID, u.columns, load); err != nil {
			return err
		}
	}
	return nil
}

// readKeysOfLog calls each for every key of a table's rows in a log file.
func readKeysOfLog(folder string, end wal.FileEnd, table uint32, columns []int32, each func(manifest.Key)) error {
	return wal.ReadFile(manifest.LogFolder(folder), end, func(e *wal.Entry, _ int64) {
		if e.Table != table || e.Kind != wal.Rows || e.Columns == nil {
			return
		}
		hasher := newKeyHasher(columns, e.IDs, e.Columns)
		for row := range e.Columns.Rows {
			if hash, ok := hasher.hash(row); ok {
				each(manifest.Key{Hash: hash, Arrived: uint32(e.Appended / 1e6)})
			}
		}
	})
}

// writeKeys writes the keys of the rows in a log file, for each table that has a key.
func (s *Store) writeKeys(m *manifest.Manifest, end wal.FileEnd, number uint64) (map[uint32][]*manifest.KeysFile, error) {
	files := map[uint32][]*manifest.KeysFile{}
	for _, entry := range m.Tables {
		u := s.tableByID(entry.ID).unique.Load()
		if u == nil {
			continue
		}
		var keys []manifest.Key
		if err := readKeysOfLog(s.folder, end, entry.ID, u.columns, func(k manifest.Key) { keys = append(keys, k) }); err != nil {
			return nil, err
		}
		if len(keys) == 0 {
			continue
		}
		file, err := manifest.WriteKeys(s.folder, entry, number, keys)
		if err != nil {
			return nil, err
		}
		files[entry.ID] = []*manifest.KeysFile{file}
	}
	return files, nil
}

// dropOldKeys removes key files that have left the window from t, and returns their names.
func dropOldKeys(t *manifest.Table, now time.Time) (gone []string) {
	kept := keep(t.Keys, func(f *manifest.KeysFile) bool {
		return t.Unique != nil && now.Sub(f.Newest) < time.Duration(t.Unique.Window)
	})
	for _, f := range t.Keys {
		if !slices.Contains(kept, f) {
			gone = append(gone, manifest.KeysName(f.Number))
		}
	}
	t.Keys = kept
	return gone
}
