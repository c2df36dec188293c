package state

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/nodedb"
	"github.com/perigeedb/perigee/nodedb/lua"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/sink"
)

// A Migration converts the units of a state to another version or scope, while no engine runs. Its
// function main gets each node of the old units, and returns where it belongs:
//
//	{"unit": "events", "path": ["^users", "ada", "visits"], "value": 2}
//	{"unit": "events", "timer": "cart 7", "due": 1767225600}
//
// The new units are written to the home as those of the version of the configuration, which becomes
// valid at once, by a mark, when all are complete. A migration that was interrupted begins again:
// it first empties the units that it left.
type Migration struct {
	// To is the state as it is configured.
	To *Config
	// HomeSink is the sink whose notes To.Home keeps.
	HomeSink sink.Sink
	// FolderOf returns the folder of the copies of a version.
	FolderOf func(version int) string
	// Partition returns the partition of changes without events, such as that of a unit's timers.
	Partition func(unit string) string
	Map       script.Script
	// KeySets are what the source has now.
	KeySets map[string]int
	// DryRun runs the function, and writes nothing.
	DryRun bool

	units map[string]*newUnit
	seen  map[string]map[string]bool // in a dry run: paths by unit
}

// A MigrationCount says what of a unit a migration read or wrote.
type MigrationCount struct {
	Unit   string `json:"unit"`
	Nodes  uint64 `json:"nodes"`
	Timers uint64 `json:"timers"`
}

// A MigrationReport says what a migration did, or would do.
type MigrationReport struct {
	From    int              `json:"from_version"`
	To      int              `json:"to_version"`
	Old     []MigrationCount `json:"old"`
	New     []MigrationCount `json:"new"`
	Dropped uint64           `json:"dropped"` // nodes and timers that the function returned nothing for
}

// A newUnit is a unit that a migration writes.
type newUnit struct {
	count  MigrationCount
	editor *Editor
	open   *Delivery // what is not written yet; nil for nothing
}

const (
	migrationBytes = 4 << 20 // of changes in a note
	migrationOpen  = 64      // units that are open at the same time
)

// Run migrates. Its report is complete unless it returns an error.
func (m *Migration) Run(ctx context.Context) (report *MigrationReport, err error) {
	m.units, m.seen = map[string]*newUnit{}, map[string]map[string]bool{}
	from, err := m.plan(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.closeAll()) }()
	report = &MigrationReport{From: from.version(), To: m.To.version()}
	units, err := from.Units(ctx)
	if err != nil {
		return nil, err
	}
	if !m.DryRun {
		if err := m.emptyLeftovers(ctx); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(units)) {
		count, dropped, err := m.migrateUnit(ctx, from, name)
		if err != nil {
			return nil, fmt.Errorf("unit %s: %w", name, err)
		}
		report.Old, report.Dropped = append(report.Old, count), report.Dropped+dropped
	}
	for _, name := range slices.Sorted(maps.Keys(m.units)) {
		report.New = append(report.New, m.units[name].count)
	}
	if m.DryRun {
		return report, nil
	}
	if err := m.closeAll(); err != nil {
		return nil, err
	}
	for _, set := range slices.Sorted(maps.Keys(m.KeySets)) {
		if m.To.Shared {
			break
		}
		if err := m.To.mark(ctx, fmt.Sprintf("keys=%s:%d", set, m.KeySets[set])); err != nil {
			return nil, err
		}
	}
	return report, m.To.markScope(ctx) // from here on the new units are the state
}

// plan returns the state as the home has it.
func (m *Migration) plan(ctx context.Context) (*Config, error) {
	states, err := readKept(ctx, Home{m.To.HomeName, m.To.Home})
	if err != nil {
		return nil, err
	}
	last := latestKept(states[m.To.Name])
	switch {
	case last == nil || len(last.units) == 0:
		return nil, event.WithHint(fmt.Errorf("sink %s has no unit of state %s", m.To.HomeName, m.To.Name), "there is nothing to migrate: start the engine")
	case last.version >= m.To.version():
		return nil, event.WithHint(fmt.Errorf("state %s has version %d in sink %s, and version: %d in the configuration", m.To.Name, last.version, m.To.HomeName, m.To.version()),
			fmt.Sprintf("set version: %d, and the scope that the state is to have", last.version+1))
	}
	from := *m.To
	from.Version, from.Shared = last.version, last.scopeOr(m.To) == scopePipeline
	from.Folder = m.FolderOf(last.version)
	return &from, nil
}

// emptyLeftovers empties the units of a migration that was interrupted.
func (m *Migration) emptyLeftovers(ctx context.Context) error {
	left, err := m.To.Units(ctx)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		e, err := Edit(ctx, m.To, m.HomeSink, name, m.Partition(name))
		if err == nil {
			err = errors.Join(e.Empty(ctx), e.Close())
		}
		if err != nil {
			return fmt.Errorf("empty unit %s, which an interrupted migration has left: %w", name, err)
		}
	}
	return nil
}

// migrateUnit passes the nodes and timers of a unit through the function.
func (m *Migration) migrateUnit(ctx context.Context, from *Config, name string) (count MigrationCount, dropped uint64, err error) {
	count.Unit = name
	view, clock, shown := from.viewOf(name), time.Time{}, time.Time{}
	if !m.DryRun { // completes the copy
		u, failed := Open(ctx, from, name)
		if failed != nil {
			return count, 0, failed
		}
		defer func() { err = errors.Join(err, u.Close()) }()
		first, err := u.firstUndelivered(ctx)
		if err == nil && first > 0 {
			err = event.WithHint(fmt.Errorf(undelivered, name, first), fmt.Sprintf("set version: %d, start the engine until it has written them, and stop it", from.version()))
		}
		if err != nil {
			return count, 0, err
		}
		status, err := u.Status()
		if err != nil {
			return count, 0, err
		}
		view, clock, shown = u.View, u.clock, status.Clock
	}
	reader := nodeReader{view: view, clock: func() (time.Time, error) { return shown, nil }}
	for !reader.done {
		page, err := reader.readPage(ctx)
		if err != nil {
			return count, dropped, err
		}
		nodes := oldNodes(page)
		n, err := m.mapNodes(ctx, name, nodes, clock)
		if err != nil {
			return count, dropped, err
		}
		dropped += n
		for i := range nodes {
			if nodes[i].timer != nil {
				count.Timers++
			} else {
				count.Nodes++
			}
		}
	}
	return count, dropped, nil
}

// viewOf returns View of a unit that no process has open.
func (c *Config) viewOf(unit string) func(context.Context, func(*nodedb.Tx) error) error {
	return func(ctx context.Context, f func(*nodedb.Tx) error) error { return c.View(ctx, unit, f) }
}

// undelivered says that sinks other than the home are behind.
const undelivered = "a sink may lack rows of the notes of unit %s from %d on"

// firstUndelivered returns the number of the first note whose rows a sink may lack; 0 for none.
func (u *Unit) firstUndelivered(ctx context.Context) (first uint64, err error) {
	err = u.Undelivered(ctx, func(n *Note) error {
		first = n.Number
		return errEnough
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return first, err
}

// An oldNode is a node or a timer of an old unit.
type oldNode struct {
	expiringNode
	timer *lua.Timer
}

// oldNodes returns the nodes and timers of a page. Each timer is in it once.
func oldNodes(page []expiringNode) (nodes []oldNode) {
	for _, n := range page {
		timer, isTimer := lua.TimerAt(n.Node)
		if isTimer && timer == nil {
			continue // the other node of a timer
		}
		nodes = append(nodes, oldNode{n, timer})
	}
	return nodes
}

// mapNodes runs the function on nodes of a unit, and writes what it returns. It returns how many it
// dropped.
func (m *Migration) mapNodes(ctx context.Context, unit string, nodes []oldNode, clock time.Time) (dropped uint64, err error) {
	batch := event.Batch{Partition: unit}
	docs := make([]mappedNode, len(nodes))
	for i := range nodes {
		docs[i] = describeOld(unit, &nodes[i])
		doc, err := json.Marshal(&docs[i])
		if err != nil {
			return 0, err
		}
		batch.Append(doc)
	}
	batch.Range.Count = uint64(batch.Len())
	if len(nodes) == 0 {
		return 0, nil
	}
	result := event.Result{Outputs: make([]event.Output, 1)}
	first := 0
	err = script.RunAll(ctx, m.Map, &batch, &result, 0, func(part *event.Batch, _ *script.LimitError) error {
		if len(result.Dead) > 0 {
			d := &result.Dead[0]
			return event.WithHint(fmt.Errorf("the function fails for %s: %s", d.Original, d.Error), "the migration has not changed the state: correct the function, and begin again")
		}
		out := &result.Outputs[0]
		written := map[uint32]bool{}
		for row := range out.Len() {
			at := first + int(out.From[row])
			written[out.From[row]] = true
			if err := m.place(ctx, &nodes[at], &docs[at], out.Doc(row), clock); err != nil {
				return fmt.Errorf("%v: %w", nodes[at].Path, err)
			}
		}
		dropped += uint64(part.Len() - len(written))
		first += part.Len()
		return nil
	})
	return dropped, err
}

// A mappedNode is the document of a node or a timer.
type mappedNode struct {
	Unit  string           `json:"unit"`
	Path  []any            `json:"path,omitempty"`
	Value *json.RawMessage `json:"value,omitempty"`
	Timer any              `json:"timer,omitempty"`
	Due   *float64         `json:"due,omitempty"`
}

func describeOld(unit string, n *oldNode) mappedNode {
	d := mappedNode{Unit: unit}
	if n.timer != nil {
		d.Timer, d.Due = n.timer.Key, &n.timer.Due
		return d
	}
	d.Path = []any{n.Path.Name()}
	for _, subscript := range n.Path.Subscripts() {
		d.Path = append(d.Path, subscript)
	}
	value, _ := json.Marshal(n.Value) // a scalar
	d.Value = (*json.RawMessage)(&value)
	return d
}

// place writes a node or a timer where a row of the function says.
func (m *Migration) place(ctx context.Context, n *oldNode, given *mappedNode, row []byte, clock time.Time) error {
	var to mappedNode
	decoder := json.NewDecoder(bytes.NewReader(row))
	decoder.UseNumber()
	if err := decoder.Decode(&to); err != nil {
		return fmt.Errorf("the function returned %.200s: %w", row, err)
	}
	if to.Unit == "" {
		return fmt.Errorf("the function returned no unit: %.200s", row)
	}
	if m.To.Shared && to.Unit != sharedUnit {
		return event.WithHint(fmt.Errorf("the function returned unit %q, and the only unit of a state with scope: pipeline is %q", to.Unit, sharedUnit), fmt.Sprintf("return unit = %q", sharedUnit))
	}
	if err := sink.CheckUnitName(m.To.homeName(to.Unit)); err != nil {
		return err
	}
	path, value := n.Path, n.Value
	if n.timer == nil {
		var err error
		if path, value, err = moved(n, given, &to); err != nil {
			return err
		}
	}
	u, err := m.unit(ctx, to.Unit, clock)
	if err != nil {
		return err
	}
	switch {
	case n.timer != nil:
		u.count.Timers++
	default:
		u.count.Nodes++
	}
	if m.DryRun {
		return m.checkTwice(to.Unit, n, path)
	}
	return u.write(ctx, n, path, value)
}

// moved returns path and value of a node as the function returned them: the old ones, unless it has
// changed them.
func moved(n *oldNode, given, to *mappedNode) (path nodedb.Path, value nodedb.Value, err error) {
	path, value = n.Path, n.Value
	if to.Path != nil && !sameJSON(to.Path, given.Path) {
		name, isText := to.Path[0].(string)
		if !isText || !strings.HasPrefix(name, "^") || strings.HasPrefix(name, "^%") {
			return path, value, fmt.Errorf("the path %v does not begin with the name of a stored tree", to.Path)
		}
		if path, err = pathOf(to.Path); err != nil {
			return path, value, err
		}
	}
	if to.Value != nil {
		v, err := decodeValue(*to.Value)
		if err != nil {
			return path, value, err
		}
		if before, err := decodeValue(*given.Value); err != nil || sameJSON(v, before) {
			return path, value, err
		}
		if value, err = nodedb.ValueOf(plain(v)); err != nil {
			return path, value, fmt.Errorf("the value %s: %w", *to.Value, err)
		}
	}
	return path, value, nil
}

func decodeValue(text []byte) (v any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	return v, decoder.Decode(&v)
}

func pathOf(parts []any) (nodedb.Path, error) {
	path := nodedb.Name(parts[0].(string))
	for _, subscript := range parts[1:] {
		path = path.At(plain(subscript))
	}
	return path, path.Err()
}

// plain returns a number of JSON as one of Go.
func plain(v any) any {
	number, ok := v.(json.Number)
	if !ok {
		return v
	}
	if i, err := number.Int64(); err == nil {
		return i
	}
	f, _ := number.Float64() // JSON that decoded
	return f
}

// sameJSON compares values as a reader of their JSON sees them.
func sameJSON(a, b any) bool {
	read := func(v any) (seen any) {
		text, err := json.Marshal(v)
		if err == nil {
			seen, err = decodeValue(text)
		}
		if err != nil {
			return err // equals nothing
		}
		return seen
	}
	return reflect.DeepEqual(read(a), read(b))
}

// checkTwice is what write finds when a dry run does not write.
func (m *Migration) checkTwice(unit string, n *oldNode, path nodedb.Path) error {
	key := path.String()
	if m.seen[unit] == nil {
		m.seen[unit] = map[string]bool{}
	}
	if n.timer != nil {
		key = "timer " + n.timer.Key.String()
	}
	if m.seen[unit][key] {
		return twice(unit, key)
	}
	m.seen[unit][key] = true
	return nil
}

func twice(unit, what string) error {
	return event.WithHint(fmt.Errorf("unit %s would get %s twice", unit, what), "return another path, or nothing, for one of the two")
}

// unit returns a unit to write to.
func (m *Migration) unit(ctx context.Context, name string, clock time.Time) (*newUnit, error) {
	u := m.units[name]
	if u == nil {
		u = &newUnit{count: MigrationCount{Unit: name}}
		m.units[name] = u
	}
	if m.DryRun {
		return u, nil
	}
	if u.editor == nil {
		if err := m.closeSome(ctx); err != nil {
			return nil, err
		}
		e, err := Edit(ctx, m.To, m.HomeSink, name, m.Partition(name))
		if err != nil {
			return nil, err
		}
		u.editor = e
	}
	u.editor.mu.Lock()
	u.editor.clock = latest(u.editor.clock, clock)
	u.editor.mu.Unlock()
	return u, nil
}

// closeSome closes the open units if they are as many as may be open.
func (m *Migration) closeSome(ctx context.Context) error {
	open := 0
	for _, u := range m.units {
		if u.editor != nil {
			open++
		}
	}
	if open < migrationOpen {
		return nil
	}
	return m.closeUnits(ctx)
}

func (m *Migration) closeUnits(ctx context.Context) error {
	for _, u := range m.units {
		if u.editor == nil {
			continue
		}
		if err := u.flush(ctx); err != nil {
			return err
		}
		err := u.editor.Close()
		u.editor = nil
		if err != nil {
			return err
		}
	}
	return nil
}

// closeAll closes the open units; after an error, without what was not written.
func (m *Migration) closeAll() (err error) {
	if !m.DryRun {
		err = m.closeUnits(context.Background())
	}
	for _, u := range m.units {
		if u.editor != nil {
			err = errors.Join(err, u.editor.Close())
			u.editor = nil
		}
	}
	return err
}

// write adds a node or a timer to the next note.
func (u *newUnit) write(ctx context.Context, n *oldNode, path nodedb.Path, value nodedb.Value) (err error) {
	if u.open == nil {
		if u.open, err = u.editor.Begin(); err != nil {
			return err
		}
	}
	tx := u.open.Tx()
	if n.timer != nil {
		if done, err := lua.AddTimer(tx, *n.timer); err != nil || !done {
			return cmp.Or(err, twice(u.count.Unit, "the timer "+n.timer.Key.String()))
		}
	} else {
		done, err := tx.SetNew(path, value)
		if err != nil || !done {
			return cmp.Or(err, twice(u.count.Unit, path.String()))
		}
		if !n.expiry.IsZero() {
			if _, err := tx.ExpireAt(path, n.expiry); err != nil {
				return err
			}
		}
	}
	if u.open.Bytes() >= migrationBytes {
		return u.flush(ctx)
	}
	return nil
}

// flush writes what is not written yet as a note.
func (u *newUnit) flush(ctx context.Context) error {
	if u.open == nil {
		return nil
	}
	d := u.open
	u.open = nil
	return u.editor.Commit(ctx, d)
}
