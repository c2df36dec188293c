package lake

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A State is what a lake table has.
type State struct {
	UUID       string
	Location   string
	Properties map[string]string
	// Files are the names of its data files, below the folder data of its location. A file
	// that is elsewhere has its whole address.
	Files []string
}

// A Plan is what one commit must do to carry out an order.
type Plan struct {
	Add    []File
	Remove []string
	Gone   []string // see TableReport
	// Foreign is the number of files that the store does not own.
	Foreign int
	Lost    []string // see TableReport; then there is nothing else to do
	// Properties are those to set with the commit; nil if the table needs no commit.
	Properties map[string]string
}

// PropertyPrefix is the prefix of the property in which an incarnation records the last step
// that the table covers. Snapshots and their summaries expire; properties do not.
const PropertyPrefix = "perigee.step."

// A record is the value of such a property.
type record struct {
	Step  uint64    `json:"step"`
	After string    `json:"after,omitempty"` // the incarnation before
	Begun time.Time `json:"begun"`
	Table uint32    `json:"table,omitempty"` // TableOrder.ID
	// Opening is the ID of the opening that assigned the step.
	Opening string `json:"opening,omitempty"`
}

// ErrOtherTable reports that another table of the store publishes into the table, or has data only
// there that must come back first. Each would remove the files of the other one.
var ErrOtherTable = errors.New("another table of this store publishes into it, or has rows only there that are yet to come back: set another lake.table for one of them, or wait")

// ErrDropped reports rows in the lake of a table that the store has dropped. The table that is published
// there now must not remove them unasked.
var ErrDropped = errors.New("it has rows of a table that this store has dropped, or made after the backup that it was restored from")

// ErrRolledBack reports an order with a step that the table already covers: the store's folder
// was set back to an earlier state without a new incarnation.
var ErrRolledBack = errors.New("the store has assigned a step again: its folder was set back to an earlier state")

// ErrSuperseded reports that a younger incarnation publishes into the table: the store was
// restored or copied elsewhere.
var ErrSuperseded = errors.New("a younger copy of this store publishes into the table")

// ErrRewritten reports that a restored store cannot tell which of its files other engines have
// rewritten.
var ErrRewritten = errors.New("other engines have rewritten files of this table, and the restored store cannot tell which")

// Reconcile compares a table with an order. Files that the store does not own are left alone.
func Reconcile(o *TableOrder, s State) (*Plan, error) {
	current := o.Incarnations[len(o.Incarnations)-1]
	records, err := readRecords(s.Properties)
	if err != nil {
		return nil, err
	}
	owned, err := ownedBy(o, records)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(o.Others, func(other Other) bool {
		return other.ID == records[current.ID].Table && other.publishesInto(s.UUID)
	}) || slices.Contains(o.Returning, Address(s.Location, "")) {
		return nil, ErrOtherTable
	}
	if !o.Look && isOfDropped(o, records, owned) && slices.ContainsFunc(s.Files, func(name string) bool { return owned[IncarnationOf(name)] }) {
		return nil, ErrDropped
	}
	forgetOthers(o, records)
	covered := records[current.ID].Step
	if covered > o.Step && !o.Look { // a report-only order may be out of date
		return nil, fmt.Errorf("%w: the table covers step %d of incarnation %s, and the order is step %d", ErrRolledBack, covered, current.ID, o.Step)
	}
	if by, known := records[current.ID].Opening, o.opening(covered); !o.Look && by != known && by != "" && known != "" {
		return nil, fmt.Errorf("%w: the table covers step %d of opening %s of incarnation %s, and the order is of opening %s", ErrRolledBack, covered, by, current.ID, known)
	}
	present, foreign := map[string]bool{}, 0
	for _, name := range s.Files {
		if owned[IncarnationOf(name)] {
			present[name] = true
		} else {
			foreign++
		}
	}
	r := reconciling{order: o, records: records, present: present, foreign: foreign}
	p := &Plan{Foreign: foreign}
	wanted := map[string]bool{}
	for _, f := range o.Files {
		isGone, err := r.isGone(f)
		switch {
		case err != nil:
			return nil, err
		case isGone:
			p.Gone = append(p.Gone, f.Name)
			f.each(func(replaced File) { wanted[replaced.Name] = true })
		case present[f.Name]:
		case f.Path == "":
			p.Lost = append(p.Lost, f.Name)
		default:
			p.Add = append(p.Add, f)
		}
		wanted[f.Name] = true
	}
	if len(p.Lost) > 0 {
		return &Plan{Foreign: foreign, Lost: p.Lost}, nil
	}
	for _, name := range s.Files {
		if present[name] && !wanted[name] {
			p.Remove = append(p.Remove, name)
		}
	}
	if covered < o.Step || len(p.Remove) > 0 {
		value := record{Step: o.Step, Begun: current.Begun, Table: o.ID, Opening: o.opening(o.Step)}
		if n := len(o.Incarnations); n > 1 {
			value.After = o.Incarnations[n-2].ID
		}
		text, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		p.Properties = map[string]string{PropertyPrefix + current.ID: string(text)}
	}
	return p, nil
}

// opening returns the ID of the opening that assigned a step, or "" if the order has it no longer.
func (o *TableOrder) opening(step uint64) (id string) {
	for _, one := range o.Openings {
		if one.Step <= step {
			id = one.ID
		}
	}
	return id
}

func readRecords(properties map[string]string) (map[string]record, error) {
	records := map[string]record{}
	for key, value := range properties {
		id, found := strings.CutPrefix(key, PropertyPrefix)
		if !found {
			continue
		}
		var r record
		if err := json.Unmarshal([]byte(value), &r); err != nil {
			return nil, fmt.Errorf("the table's property %s is %q: %w", key, value, err)
		}
		records[id] = r
	}
	return records, nil
}

// isOfDropped reports whether only tables that the store no longer has published into the lake table.
func isOfDropped(o *TableOrder, records map[string]record, owned map[string]bool) bool {
	dropped := false
	for id, r := range records {
		switch {
		case !owned[id] || r.Table == 0: // it was recorded before tables had IDs there
		case slices.Contains(o.Tables, r.Table):
			return false
		default:
			dropped = true
		}
	}
	return dropped
}

// forgetOthers removes the steps that another table of the store has recorded, which published into
// the lake table before. They say nothing of the files of this one.
func forgetOthers(o *TableOrder, records map[string]record) {
	for id, r := range records {
		if r.Table != 0 && r.Table != o.ID {
			r.Step, r.Opening = 0, ""
			records[id] = r
		}
	}
}

// ownedBy returns the incarnations whose files belong to the store of an order: its own, and
// those that began from them in a folder that this store has replaced.
func ownedBy(o *TableOrder, records map[string]record) (map[string]bool, error) {
	owned := map[string]bool{}
	for _, one := range o.Incarnations {
		owned[one.ID] = true
	}
	current := o.Incarnations[len(o.Incarnations)-1]
	for grown := true; grown; {
		grown = false
		for id, r := range records {
			if owned[id] || !owned[r.After] {
				continue
			}
			if r.After == current.ID || r.Begun.After(current.Begun) { // clocks differ
				return nil, fmt.Errorf("%w: incarnation %s of %s, and this one is of %s", ErrSuperseded, id, r.Begun.Format(time.RFC3339), current.Begun.Format(time.RFC3339))
			}
			owned[id], grown = true, true
		}
	}
	return owned, nil
}

// each calls f for the files that a file replaces, and for those that they replace.
func (f *File) each(do func(File)) {
	for _, replaced := range f.Replaces {
		do(replaced)
		replaced.each(do)
	}
}

// A reconciling tells which files somebody else has removed from a table.
type reconciling struct {
	order   *TableOrder
	records map[string]record
	present map[string]bool // files of the store
	foreign int             // number of files of others
}

// isGone reports whether somebody else has removed a file, or a file that it replaces. A file
// that the table covers has replaced its own already.
func (r *reconciling) isGone(f File) (bool, error) {
	if r.present[f.Name] {
		return false, nil
	}
	covered, err := r.isCovered(f)
	if covered || err != nil {
		return covered, err
	}
	for _, replaced := range f.Replaces {
		if isGone, err := r.isGone(replaced); isGone || err != nil {
			return isGone, err
		}
	}
	return false, nil
}

// isCovered reports whether the table had a file that it no longer has, and that neither this
// incarnation of the store nor an earlier one has removed.
func (r *reconciling) isCovered(f File) (bool, error) {
	incarnations := r.order.Incarnations
	i := len(incarnations) - 1
	for i > 0 && incarnations[i].Step > f.Step {
		i--
	}
	recorded, found := r.records[incarnations[i].ID]
	if !found || recorded.Step < f.Step {
		return false, nil
	}
	if i == len(incarnations)-1 || recorded.Step < incarnations[i+1].Step {
		return true, nil
	}
	// The earlier incarnation went on after the backup, so it may have removed the file itself.
	if r.foreign > 0 {
		return false, fmt.Errorf("%w: file %s", ErrRewritten, f.Name)
	}
	return false, nil
}
