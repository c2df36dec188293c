package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/nearest"
	"github.com/perigeedb/perigee/nodedb"
	"github.com/perigeedb/perigee/pipeline/state"
)

// A StateFilter selects the units of a state; of all states if it is empty.
type StateFilter struct {
	State string `json:"state,omitempty"`
}

// A StateUnit is one unit of a pipeline's state.
type StateUnit struct {
	State    string `json:"state"`
	Pipeline string `json:"pipeline"`
	Unit     string `json:"unit"`
	Home     string `json:"home"`  // sink that keeps the notes
	Owner    string `json:"owner"` // process that took the unit over last
	// First and Last are the numbers of the notes that the home keeps, which have Bytes bytes.
	First uint64 `json:"first_note"`
	Last  uint64 `json:"last_note"`
	Bytes uint64 `json:"note_bytes"`
	// Copy is what this machine has of the unit; nil if it has nothing.
	Copy *state.CopyStatus `json:"copy,omitempty"`
	// Archive says how far the archive is; nil without one, and while no engine has the unit.
	Archive *state.ArchiveStatus `json:"archive,omitempty"`
}

// States describes the units of all states.
func (a *Admin) States(ctx context.Context, f StateFilter) (all []StateUnit, err error) {
	if a.remote != nil {
		return call[[]StateUnit](ctx, a.remote, "states", f)
	}
	all = []StateUnit{}
	for _, p := range a.pipelines() {
		if p.State == nil || f.State != "" && p.State.Name != f.State {
			continue
		}
		some, err := p.stateUnits(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	if len(all) == 0 && f.State != "" {
		if _, err := a.findState(f.State); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (p *Pipeline) stateUnits(ctx context.Context) (all []StateUnit, err error) {
	names, err := p.State.Copies()
	if err != nil {
		return nil, err
	}
	atHome, err := p.State.Units(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask sink %s: %w", p.State.HomeName, err)
	}
	for name := range atHome {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		home := atHome[name]
		one := StateUnit{
			State: p.State.Name, Pipeline: p.Name, Unit: name, Home: p.State.HomeName,
			Owner: home.Owner, First: home.First, Last: home.Last, Bytes: home.Bytes,
		}
		if p.Running != nil {
			one.Copy, err = p.Running.StateStatus(name)
			one.Archive = p.Running.ArchiveStatus(name)
		} else {
			one.Copy, err = p.State.CopyStatus(name)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// A TimerQuery selects the timers of a unit that are due first.
type TimerQuery struct {
	State string `json:"state"`
	Unit  string `json:"unit"`
	Limit int    `json:"limit"`
}

// A StateTimer is a timer that waits.
type StateTimer = state.DueTimer

// StateTimers returns timers of a unit, the first first.
func (a *Admin) StateTimers(ctx context.Context, q TimerQuery) (next []StateTimer, err error) {
	if a.remote != nil {
		return call[[]StateTimer](ctx, a.remote, "state-timers", q)
	}
	p, err := a.findState(q.State)
	if err != nil {
		return nil, err
	}
	err = p.viewState(ctx, q.Unit, func(tx *nodedb.Tx) (err error) {
		next, err = state.NextTimers(ctx, tx, q.Limit)
		return err
	})
	return next, err
}

// A NodeQuery selects nodes of a state.
type NodeQuery struct {
	State string `json:"state"`
	// Unit may be empty if the state has one only.
	Unit string `json:"unit,omitempty"`
	// Path is the root of the nodes, as in ^users(7); empty for all of them.
	Path string `json:"path,omitempty"`
	// One asks only for the node itself.
	One      bool   `json:"one,omitempty"`
	Children bool   `json:"children,omitempty"` // only the children of the node, also those without a value
	From     string `json:"from,omitempty"`     // with Children: first subscript
	To       string `json:"to,omitempty"`       // with Children: last subscript
	Reverse  bool   `json:"reverse,omitempty"`
	Limit    int    `json:"limit,omitempty"` // 0 means no limit
	Lines    bool   `json:"lines,omitempty"` // return lines instead of values
}

// A StateNode is a node of a state.
type StateNode struct {
	Path  string          `json:"path,omitempty"`
	Type  string          `json:"type,omitempty"`
	Value json.RawMessage `json:"value,omitempty"` // a string, a number, true or false; null for a child without one
	// Line is the node in M's ZWRITE format, which "perigee node load" reads; with NodeQuery.Lines.
	Line string `json:"line,omitempty"`
}

// nodesMax is how many nodes one view reads: a view that lasts keeps the file from being reused.
const nodesMax = 10_000

// StateNodes yields nodes of the committed state, in order. A list longer than 10,000 nodes is read
// in parts, between which the state may change.
func (a *Admin) StateNodes(ctx context.Context, q NodeQuery) iter.Seq2[StateNode, error] {
	if a.remote != nil {
		return stream[StateNode](ctx, a.remote, "state-nodes", q)
	}
	return func(yield func(StateNode, error) bool) {
		if err := a.eachNode(ctx, q, func(n StateNode) bool { return yield(n, nil) }); err != nil {
			yield(StateNode{}, err)
		}
	}
}

func (a *Admin) eachNode(ctx context.Context, q NodeQuery, use func(StateNode) bool) error {
	p, err := a.findState(q.State)
	if err != nil {
		return err
	}
	if q.Unit, err = p.findUnit(ctx, q.Unit); err != nil {
		return err
	}
	var root nodedb.Path
	if q.Path != "" {
		if root, err = nodedb.ParsePath(q.Path); err != nil {
			return &event.PermanentError{Err: err, Hint: `a path looks like ^users(7,"name")`}
		}
	}
	page := page{root: root, limit: nodesMax}
	for left := q.Limit; ; {
		if q.Limit > 0 {
			page.limit = min(nodesMax, left)
		}
		nodes, err := p.readNodes(ctx, q, page)
		if err != nil {
			return err
		}
		for _, n := range nodes {
			described, err := q.describe(n)
			if err != nil {
				return err
			}
			if !use(described) {
				return nil
			}
		}
		if left -= len(nodes); len(nodes) < page.limit || left == 0 || q.One {
			return nil
		}
		page.after = nodes[len(nodes)-1].Path
	}
}

// A page is a part of a list of nodes.
type page struct {
	root, after nodedb.Path // after is the last node of the page before; zero for the first page
	limit       int
}

func (q *NodeQuery) describe(n nodedb.Node) (StateNode, error) {
	if q.Lines {
		return StateNode{Line: n.String()}, nil
	}
	value, err := json.Marshal(n.Value)
	return StateNode{Path: n.Path.String(), Type: n.Value.Kind().String(), Value: value}, err
}

// Text returns the value as text.
func (n *StateNode) Text() string {
	var text string
	if n.Type == nodedb.String.String() && json.Unmarshal(n.Value, &text) == nil {
		return text
	}
	if n.Type == nodedb.Absent.String() {
		return ""
	}
	return string(n.Value)
}

// viewState calls f with the committed state of a unit, as far as this machine has it.
func (p *Pipeline) viewState(ctx context.Context, unit string, f func(*nodedb.Tx) error) error {
	if p.Running != nil {
		return p.Running.ViewState(ctx, unit, f)
	}
	return p.State.View(ctx, unit, f)
}

// readNodes reads one page of nodes in a view.
func (p *Pipeline) readNodes(ctx context.Context, q NodeQuery, page page) (nodes []nodedb.Node, err error) {
	err = p.viewState(ctx, q.Unit, func(tx *nodedb.Tx) (err error) {
		nodes, err = page.read(ctx, tx, q)
		return err
	})
	return nodes, err
}

func (p page) read(ctx context.Context, tx *nodedb.Tx, q NodeQuery) (nodes []nodedb.Node, err error) {
	if q.One {
		value, err := tx.Get(p.root)
		if err != nil || !value.Exists() {
			return nil, err
		}
		return []nodedb.Node{{Path: p.root, Value: value}}, nil
	}
	for node, err := range p.nodes(ctx, tx, q) {
		if err != nil {
			return nil, err
		}
		if node.Path == p.after {
			continue
		}
		if nodes = append(nodes, node); len(nodes) == p.limit {
			break
		}
	}
	return nodes, nil
}

// nodes yields the nodes from the last one of the page before on.
func (p page) nodes(ctx context.Context, tx *nodedb.Tx, q NodeQuery) iter.Seq2[nodedb.Node, error] {
	r := nodedb.Range{Reverse: q.Reverse}
	if !q.Children {
		if !p.after.IsZero() {
			r.From = p.after
		}
		return tx.Walk(ctx, p.root, r)
	}
	if q.From != "" {
		r.From = q.From
	}
	if q.To != "" {
		r.To = q.To
	}
	if !p.after.IsZero() {
		subscripts := p.after.Subscripts()
		r.From = subscripts[len(subscripts)-1]
	}
	return func(yield func(nodedb.Node, error) bool) {
		for child, err := range tx.Children(ctx, p.root, r) {
			at := p.root.At(child.Subscript)
			if p.root.IsZero() {
				at = nodedb.Name(child.Subscript.String())
			}
			if !yield(nodedb.Node{Path: at, Value: child.Value}, err) {
				return
			}
		}
	}
}

// findState returns the pipeline that has a state.
func (a *Admin) findState(name string) (Pipeline, error) {
	var names []string
	for _, p := range a.pipelines() {
		if p.State == nil {
			continue
		}
		if p.State.Name == name {
			return p, nil
		}
		names = append(names, p.State.Name)
	}
	if len(names) == 0 {
		return Pipeline{}, event.WithHint(errors.New("no pipeline has a state"), "give one the key state: {name: …}")
	}
	return Pipeline{}, event.WithHint(fmt.Errorf("no pipeline has a state %q", name), suggest(name, names))
}

// findUnit returns the name of a unit, which may be empty if there is one only.
func (p *Pipeline) findUnit(ctx context.Context, name string) (string, error) {
	units, err := p.stateUnits(ctx)
	if err != nil {
		return "", err
	}
	var names []string
	for _, u := range units {
		if u.Unit == name {
			return name, nil
		}
		names = append(names, u.Unit)
	}
	switch {
	case name == "" && len(names) == 1:
		return names[0], nil
	case len(names) == 0:
		return "", event.WithHint(fmt.Errorf("state %s has no unit yet", p.State.Name), "a unit begins with the first event of its partition")
	case name == "":
		return "", event.WithHint(fmt.Errorf("state %s has %d units", p.State.Name, len(names)), "name one with --unit: "+strings.Join(names[:min(len(names), 10)], ", "))
	}
	return "", event.WithHint(fmt.Errorf("state %s has no unit %q", p.State.Name, name), suggest(name, names))
}

// suggest returns a hint with the nearest name, or all.
func suggest(name string, known []string) string {
	if near := nearest.Name(name, known); near != "" {
		return "did you mean " + near + "?"
	}
	return "there are " + strings.Join(known[:min(len(known), 10)], ", ")
}
