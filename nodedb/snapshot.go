package nodedb

import (
	"time"
)

// A Snapshot records the deltas contained in the chunks of a walk over a unit: all up to Applied, and
// parts of those up to Begun. It is complete once the deltas in between were applied to it, in order.
type Snapshot struct {
	Applied, Begun uint64
	// AppliedMark and BegunMark are what these deltas were committed with.
	AppliedMark, BegunMark uint64
	// Clock is that of the delta Begun, or of a later one.
	Clock time.Time
}

// A Chunk is a part of the nodes that a unit has on disk, in the order of their keys.
type Chunk struct {
	// Snapshot describes the file as the chunk was read. For a whole walk, take Applied and
	// AppliedMark from the first chunk and the other fields from the last.
	Snapshot
	Nodes uint64
	Data  []byte // encoded, not compressed
	Next  []byte // where the next chunk begins; nil for the last one
}

// ReadChunk reads the nodes on disk from a key on, about bytes bytes of them: nil begins a walk,
// and Next of a chunk continues it. It takes at most about a second. It fails with ErrIncomplete as
// View does, and with ErrCorrupt if a node is damaged.
func (u *Unit) ReadChunk(from []byte, bytes int) (c Chunk, err error) {
	err = u.use("read a snapshot", func(core nativeUnit) (err error) {
		c, err = core.chunk(from, bytes)
		return err
	})
	return c, err
}

// A UnitLoader fills a new folder with the chunks of a snapshot. It is used by one goroutine at a
// time.
type UnitLoader struct {
	unit   *Unit
	loaded uint64
}

// LoadUnit begins to load a snapshot into a folder, or continues the load of the same one. Until
// Finish has returned, the folder cannot be used as a unit. It fails with ErrArgument if the folder
// has anything else.
func LoadUnit(folder string, o UnitOptions, s Snapshot) (*UnitLoader, error) {
	u, err := OpenUnit(folder, o)
	if err != nil {
		return nil, err
	}
	l := &UnitLoader{unit: u}
	err = u.use("load "+folder, func(core nativeUnit) (err error) {
		l.loaded, err = core.loadBegin(s)
		return err
	})
	if err != nil {
		_ = u.Close()
		return nil, err
	}
	return l, nil
}

// Loaded returns how many chunks are in the folder. Load the next one.
func (l *UnitLoader) Loaded() int { return int(l.loaded) }

// Load loads the Data of the next chunk, and returns once it is on disk.
func (l *UnitLoader) Load(chunk []byte) error {
	err := l.unit.use("load "+l.unit.folder, func(core nativeUnit) error { return core.load(chunk) })
	if err == nil {
		l.loaded++
	}
	return err
}

// Finish makes the folder a unit, which OpenUnit opens after Close. Its Positions are those of the
// snapshot.
func (l *UnitLoader) Finish() error {
	return l.unit.use("load "+l.unit.folder, nativeUnit.loadEnd)
}

// Close closes the folder.
func (l *UnitLoader) Close() error { return l.unit.Close() }

// IsLoading reports whether only LoadUnit can use the unit, since chunks of a snapshot are missing.
func (u *Unit) IsLoading() bool {
	loading := false
	_ = u.use("describe", func(core nativeUnit) (err error) { // a closed unit is not
		loading, err = core.isLoading()
		return err
	})
	return loading
}
