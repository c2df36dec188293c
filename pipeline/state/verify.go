package state

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/nodedb"
	"github.com/perigeedb/perigee/pipeline/state/archive"
	"github.com/perigeedb/perigee/sink"
)

// A Check is the result for one place that has a part of a unit.
type Check struct {
	Place  string   `json:"place"` // copy, home or archive
	Has    string   `json:"has"`   // what was found there
	Faults []string `json:"faults,omitempty"`
}

// faultsMax is how many faults of a place are listed.
const faultsMax = 20

func (c *Check) fault(format string, args ...any) {
	if len(c.Faults) < faultsMax {
		c.Faults = append(c.Faults, fmt.Sprintf(format, args...))
	}
}

// Verify reads all that there is of a unit, and checks it: the copy on this machine, the notes that the
// home keeps, and each object of the archive. It changes nothing. progress may be nil.
func (c *Config) Verify(ctx context.Context, unit string, progress func(Progress)) (checks []Check, err error) {
	v := &verification{config: c, unit: unit, progress: progress}
	if v.progress == nil {
		v.progress = func(Progress) {}
	}
	for _, check := range []func(context.Context) (*Check, error){v.checkCopy, v.checkHome, v.checkArchive} {
		result, err := check(ctx)
		if err != nil {
			return checks, err
		}
		if result != nil {
			checks = append(checks, *result)
		}
	}
	return checks, nil
}

// A verification is one run of Verify.
type verification struct {
	config   *Config
	unit     string
	progress func(Progress)
	end      *archive.Point // the note before the first that the home keeps; nil without notes
	last     uint64
	sums     map[uint64]uint64 // of the notes of the home
}

func (v *verification) checkCopy(context.Context) (*Check, error) {
	result := &Check{Place: "copy", Has: "nothing"}
	if !v.config.HasCopy(v.unit) {
		return result, nil
	}
	folder := v.config.folderOf(v.unit)
	store, err := nodedb.Open(folder, nodedb.Options{ReadOnly: true})
	if errors.Is(err, nodedb.ErrCorrupt) {
		result.Has = folder
		result.fault("%v", err)
		return result, nil
	}
	if err != nil {
		return nil, err
	}
	defer store.Close()
	stat, err := store.Stat()
	if err != nil {
		return nil, err
	}
	result.Has = fmt.Sprintf("%d nodes", stat.Nodes)
	_, err = store.Check(func(fault string) { result.fault("%s", fault) })
	if err != nil && !errors.Is(err, nodedb.ErrCorrupt) {
		return nil, err
	}
	if err != nil {
		result.fault("%v", err)
	}
	return result, nil
}

func (v *verification) checkHome(ctx context.Context) (*Check, error) {
	units, err := v.config.Units(ctx)
	if err != nil {
		return nil, err
	}
	result := &Check{Place: "home", Has: "no notes"}
	status, known := units[v.unit]
	if !known || status.Last == 0 {
		return result, nil
	}
	v.sums = map[uint64]uint64{}
	// The owner may remove notes meanwhile: then those that follow are read.
	for from := status.First; ; {
		err = v.config.Home.ReadNotes(ctx, v.config.homeName(v.unit), from, func(n *sink.Note) error {
			v.addNote(result, n)
			return nil
		})
		if !errors.Is(err, sink.ErrNotesTrimmed) {
			break
		}
		if units, err = v.config.Units(ctx); err != nil {
			return nil, err
		}
		from = max(units[v.unit].First, v.last+1)
		v.end, v.last, v.sums = nil, 0, map[uint64]uint64{}
	}
	if err != nil && !event.IsPermanent(err) {
		return nil, err
	}
	if err != nil {
		result.fault("%v", err)
	}
	if v.end != nil {
		result.Has = fmt.Sprintf("notes %d to %d", v.end.Number+1, v.last)
	}
	return result, nil
}

func (v *verification) addNote(result *Check, n *sink.Note) {
	if v.end == nil {
		v.end = &archive.Point{Number: n.Number - 1, Sum: previousOf(n)}
		v.last = n.Number - 1
		v.sums[v.last] = v.end.Sum
	}
	_, err := decodeNote(n)
	if err == nil {
		err = checkNote(n, archive.Point{Number: v.last, Sum: v.sums[v.last]})
	}
	if err != nil {
		result.fault("note %d: %v", n.Number, err)
	}
	v.last = n.Number
	v.sums[n.Number] = n.Sum
}

func (v *verification) checkArchive(ctx context.Context) (*Check, error) {
	store := v.config.archiveOf(v.unit)
	if store == nil {
		return nil, nil
	}
	history, err := store.List(ctx)
	if err != nil {
		return nil, err
	}
	result := &Check{Place: "archive", Has: fmt.Sprintf("%d snapshots, %d segments", len(history.Snapshots), len(history.Segments))}
	total := uint64(len(history.Segments) + len(history.Snapshots))
	for i, s := range history.Segments {
		if err := v.checkSegment(ctx, store, s, result); err != nil {
			return nil, err
		}
		v.progress(Progress{uint64(i + 1), total, "objects"})
	}
	for i, s := range history.Snapshots {
		if err := v.checkSnapshot(ctx, store, s, result); err != nil {
			return nil, err
		}
		v.progress(Progress{uint64(len(history.Segments) + i + 1), total, "objects"})
	}
	return result, v.checkJoin(ctx, store, history, result)
}

func (v *verification) checkSegment(ctx context.Context, store *archive.Unit, s archive.SegmentName, result *Check) error {
	notes, err := store.ReadSegment(ctx, s)
	if errors.Is(err, fs.ErrNotExist) { // it was removed meanwhile, since it is old
		return nil
	}
	if archive.IsUnreadable(err) {
		result.fault("%v", err)
		return nil
	}
	if err != nil {
		return err
	}
	at := s.Before
	for _, n := range notes {
		_, err := decodeNote(n)
		if err == nil {
			err = checkNote(n, at)
		}
		if err != nil {
			result.fault("%s: note %d: %v", s, n.Number, err)
			return nil
		}
		at = archive.Point{Number: n.Number, Sum: n.Sum}
	}
	return nil
}

func (v *verification) checkSnapshot(ctx context.Context, store *archive.Unit, s archive.SnapshotName, result *Check) error {
	m, err := store.ReadSnapshot(ctx, s)
	for i := 0; err == nil && i < len(m.Chunks); i++ {
		var data []byte
		if data, err = store.ReadChunk(ctx, s, m, i); err == nil {
			if _, bad := chunkDecoder().DecodeAll(data, nil); bad != nil {
				err = fmt.Errorf("chunk %d of %s: %w: %w", i, s, archive.ErrDamaged, bad)
			}
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		if _, gone := store.ReadSnapshot(ctx, s); errors.Is(gone, fs.ErrNotExist) { // meanwhile, before its chunks
			return nil
		}
	}
	if archive.IsUnreadable(err) {
		result.fault("%v", err)
		err = nil
	}
	return err
}

// checkJoin checks that a machine without a copy could take the unit over.
func (v *verification) checkJoin(ctx context.Context, store *archive.Unit, history *archive.History, result *Check) error {
	if v.end == nil || v.end.Number == 0 {
		return nil
	}
	sumAtHome := func(_ context.Context, number uint64) (uint64, error) { return v.sums[number], nil }
	b, err := findBase(ctx, store, history, &target{*v.end, v.last, sumAtHome}, nil)
	if err != nil {
		return err
	}
	if b == nil {
		result.fault("no snapshot and segments lead to note %d, which a restore needs", v.end.Number)
	}
	return nil
}
