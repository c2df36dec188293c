package manifest

import (
	"fmt"
	"reflect"
	"slices"
)

// An edit is the difference between two versions of a manifest. Its size depends on what
// changed. It relies on the rule that an object which two versions share is the same in both:
// see Clone.
type edit struct {
	Manifest // of the new version, without tables
	// Edits has the new version's tables, in order; nil if no table changed.
	Edits []tableEdit `json:"edits,omitzero"`
}

// A tableEdit is the difference between two versions of a table. A list is nil if it did not
// change.
type tableEdit struct {
	ID uint32 `json:"id"`
	// Table is the new version without its lists; nil if neither it nor a list changed.
	Table        *Table                  `json:"table,omitempty"`
	Schemas      []run[Schema]           `json:"schemas,omitempty"`
	Files        []run[File]             `json:"files,omitempty"`
	Deletes      []run[Delete]           `json:"deletes,omitempty"`
	Recomputes   []run[Recompute]        `json:"recomputes,omitempty"`
	Partitions   []run[Partition]        `json:"partitions,omitempty"`
	Fingerprints []run[FingerprintsFile] `json:"prints,omitempty"`
	Keys         []run[KeysFile]         `json:"keys,omitempty"`
}

// A run is a part of a new list: the elements of the old list from Keep[0] to before Keep[1],
// then new elements.
type run[T any] struct {
	Keep [2]int `json:"keep"`
	Add  []*T   `json:"add,omitempty"`
}

// diff returns the edit that turns m into next.
func (m *Manifest) diff(next *Manifest) *edit {
	e := &edit{Manifest: *next, Edits: []tableEdit{}}
	e.Tables = nil
	changed := len(m.Tables) != len(next.Tables)
	for i, t := range next.Tables {
		d := t.diff(m.TableByID(t.ID))
		changed = changed || d.Table != nil || t.ID != m.Tables[i].ID
		e.Edits = append(e.Edits, d)
	}
	if !changed {
		e.Edits = nil
	}
	return e
}

// diff returns the edit that turns before, which may be nil, into t.
func (t *Table) diff(before *Table) tableEdit {
	d := tableEdit{ID: t.ID}
	if before == nil {
		before = new(Table)
	}
	d.Schemas = diffList(before.Schemas, t.Schemas)
	d.Files = diffList(before.Files, t.Files)
	d.Deletes = diffList(before.Deletes, t.Deletes)
	d.Recomputes = diffList(before.Recomputes, t.Recomputes)
	d.Partitions = diffList(before.Partitions, t.Partitions)
	d.Fingerprints = diffList(before.Fingerprints, t.Fingerprints)
	d.Keys = diffList(before.Keys, t.Keys)
	head, headBefore := t.withoutLists(), before.withoutLists()
	if !reflect.DeepEqual(head, headBefore) || !reflect.DeepEqual(d, tableEdit{ID: t.ID}) {
		d.Table = head
	}
	return d
}

func (t *Table) withoutLists() *Table {
	head := *t
	head.Schemas, head.Files, head.Deletes, head.Recomputes, head.Partitions, head.Fingerprints, head.Keys = nil, nil, nil, nil, nil, nil, nil
	return &head
}

// diffList returns the runs that turn before into next, or nil if they are equal.
func diffList[T any](before, next []*T) (runs []run[T]) {
	if slices.Equal(before, next) {
		return nil
	}
	// Equal elements at both ends need no index.
	begin, end := 0, 0
	for begin < min(len(before), len(next)) && before[begin] == next[begin] {
		begin++
	}
	for end < min(len(before), len(next))-begin && before[len(before)-1-end] == next[len(next)-1-end] {
		end++
	}
	index := map[*T]int{}
	for i, one := range before[begin : len(before)-end] {
		index[one] = begin + i
	}
	current := run[T]{Keep: [2]int{0, begin}}
	keep := func(from, to int) {
		if current.Add != nil || current.Keep[1] != from {
			runs = append(runs, current)
			current = run[T]{Keep: [2]int{from, from}}
		}
		current.Keep[1] = to
	}
	for _, one := range next[begin : len(next)-end] {
		if i, found := index[one]; found {
			keep(i, i+1)
		} else {
			current.Add = append(current.Add, one)
		}
	}
	if end > 0 {
		keep(len(before)-end, len(before))
	}
	return append(runs, current)
}

// apply returns the version that results from applying e to m. It changes neither, but the
// result shares objects with both.
func (m *Manifest) apply(e *edit) (*Manifest, error) {
	if e.Version <= m.Version {
		return nil, fmt.Errorf("version %d follows version %d", e.Version, m.Version)
	}
	next := e.Manifest
	next.Tables = m.Tables
	if e.Edits == nil {
		return &next, nil
	}
	next.Tables = nil
	for i := range e.Edits {
		d := &e.Edits[i]
		before := m.TableByID(d.ID)
		switch {
		case d.Table == nil && before == nil:
			return nil, fmt.Errorf("version %d keeps table number %d, which version %d does not have", e.Version, d.ID, m.Version)
		case d.Table == nil:
			next.Tables = append(next.Tables, before)
			continue
		case before == nil:
			before = new(Table)
		}
		t, err := before.apply(d)
		if err != nil {
			return nil, fmt.Errorf("version %d: table %s: %w", e.Version, d.Table.Name, err)
		}
		next.Tables = append(next.Tables, t)
	}
	return &next, nil
}

func (t *Table) apply(d *tableEdit) (*Table, error) {
	next := *d.Table
	var errs [7]error
	next.Schemas, errs[0] = applyRuns(t.Schemas, d.Schemas)
	next.Files, errs[1] = applyRuns(t.Files, d.Files)
	next.Deletes, errs[2] = applyRuns(t.Deletes, d.Deletes)
	next.Recomputes, errs[3] = applyRuns(t.Recomputes, d.Recomputes)
	next.Partitions, errs[4] = applyRuns(t.Partitions, d.Partitions)
	next.Fingerprints, errs[5] = applyRuns(t.Fingerprints, d.Fingerprints)
	next.Keys, errs[6] = applyRuns(t.Keys, d.Keys)
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return &next, nil
}

func applyRuns[T any](before []*T, runs []run[T]) (next []*T, err error) {
	if runs == nil {
		return before, nil
	}
	for _, r := range runs {
		if r.Keep[0] < 0 || r.Keep[0] > r.Keep[1] || r.Keep[1] > len(before) {
			return nil, fmt.Errorf("it keeps elements %d to %d of %d", r.Keep[0], r.Keep[1], len(before))
		}
		next = append(append(next, before[r.Keep[0]:r.Keep[1]]...), r.Add...)
	}
	return next, nil
}

// check returns an error if next, the version that results from e, is inconsistent, given that
// the one before is not. It checks only what changed.
func (e *edit) check(next *Manifest) error {
	if err := next.checkTables(); err != nil {
		return err
	}
	for i := range e.Edits {
		d := &e.Edits[i]
		if d.Table == nil {
			continue
		}
		if err := d.check(next, next.Tables[i]); err != nil {
			return fmt.Errorf("table %s: %w", d.Table.Name, err)
		}
	}
	return nil
}

func (d *tableEdit) check(m *Manifest, t *Table) error {
	if d.Schemas != nil { // files may have lost theirs
		if err := m.checkFiles(t, t.Files); err != nil {
			return err
		}
	}
	added := addedBy(d.Files)
	if err := m.checkFiles(t, added); err != nil {
		return err
	}
	for _, f := range added {
		if slices.ContainsFunc(t.Files, func(other *File) bool { return other != f && other.Name == f.Name }) {
			return errFileName(f)
		}
	}
	return checkPartitions(addedBy(d.Partitions))
}

func addedBy[T any](runs []run[T]) (added []*T) {
	for _, r := range runs {
		added = append(added, r.Add...)
	}
	return added
}
