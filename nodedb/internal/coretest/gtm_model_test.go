//go:build cgo && lmdb

package coretest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/internal/testseed"
	"github.com/perigeedb/perigee/nodedb"
)

// TestOperationsAgainstM runs random operations, also in nested transactions, here and in M, and
// compares all results and the final nodes.
func TestOperationsAgainstM(t *testing.T) {
	count := pairsForM(t) / 5
	operations := randomOperations(testseed.New(t), count)
	var input bytes.Buffer
	for _, o := range operations {
		o.write(&input)
	}
	lines := strings.Split(strings.TrimSuffix(string(runM(t, "model", input.Bytes())), "\n"), "\n")
	if len(lines) < len(operations) {
		t.Fatalf("M answered %d of %d operations; the last answers are %q", len(lines), len(operations), lines[max(0, len(lines)-3):])
	}

	store, err := nodedb.Open(t.TempDir(), nodedb.Options{NoWait: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	session, err := store.Session()
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	run := runOfBoth{operations: operations, want: lines}
	if err := run.all(t, session); err != nil {
		t.Fatal(err)
	}
	var dump bytes.Buffer
	if err := store.Dump(t.Context(), &dump, nil); err != nil {
		t.Fatal(err)
	}
	comparePrints(t, dump.String(), lines[len(operations):])
	t.Logf("%d operations, %d nodes at the end", len(operations), len(lines)-len(operations))
}

// comparePrints compares dumped nodes with nodes as M prints them: the paths exactly, the values as
// text.
func comparePrints(t *testing.T, ours string, fromM []string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(ours, "\n"), "\n")
	if len(lines) != len(fromM) {
		t.Errorf("%d nodes at the end; M has %d", len(lines), len(fromM))
	}
	for i := range min(len(lines), len(fromM)) {
		key, value := parseNode(t, lines[i])
		keyM, valueM := parseNode(t, fromM[i])
		if key != keyM || value != valueM {
			t.Fatalf("node %d is %s; M has %s", i, lines[i], fromM[i])
		}
	}
}

func parseNode(t *testing.T, line string) (key, value string) {
	t.Helper()
	encoded, at, err := coreParseKey(line)
	if err != nil || line[at] != '=' {
		t.Fatalf("read %q: %v", line, err)
	}
	return string(encoded), parseScalar(t, line[at+1:])
}

// parseScalar returns the text of a value in ZWRITE format.
func parseScalar(t *testing.T, text string) string {
	t.Helper()
	scalar, _, err := coreParseScalar(text)
	if err != nil {
		t.Fatalf("read %q: %v", text, err)
	}
	if scalar.kind == coreNumber || scalar.kind == coreDigits {
		number, err := coreNumberText(scalar)
		if err != nil {
			t.Fatal(err)
		}
		return number
	}
	return scalar.text
}

// An operation is one line of the list. The labels of model.m are its kinds.
type operation struct {
	kind       string
	path, from []string // a name and subscripts
	value      string
}

func (o operation) write(b *bytes.Buffer) {
	b.WriteString(o.kind + "\n")
	if o.path != nil {
		o.writePath(b, o.path)
	}
	switch o.kind {
	case "set", "increment":
		b.WriteString(formatSubscript(o.value) + "\n")
	case "merge":
		o.writePath(b, o.from)
	}
}

func (operation) writePath(b *bytes.Buffer, path []string) {
	b.WriteString(path[0] + "\n")
	for _, subscript := range path[1:] {
		b.WriteString(formatSubscript(subscript) + "\n")
	}
	b.WriteString("\n")
}

func (o operation) String() string {
	return fmt.Sprintf("%s %q %q %q", o.kind, o.path, o.from, o.value)
}

var subscriptsOfBoth = []string{"", "-1", "-.5", "0", "1", "2", "10", ".5", "1.0", "01", "a", "ab", "b", "\x00", "\xff", "a\x00", "1E3", "1000"}

func randomOperations(r *rand.Rand, count int) []operation {
	kinds := []string{"set", "set", "set", "set", "get", "data", "increment", "kill", "killValue", "next", "previous", "merge", "begin", "commit", "rollback"}
	level := 0
	var operations []operation
	for len(operations) < count {
		o := operation{kind: kinds[r.IntN(len(kinds))]}
		switch o.kind {
		case "begin":
			if level == 3 {
				continue
			}
			level++
		case "commit", "rollback":
			if level == 0 {
				continue
			}
			level--
		default:
			o.path = randomPathOfBoth(r)
		}
		switch o.kind {
		case "set":
			o.value = randomOperand(r)
		case "increment":
			o.value = []string{"1", "-1", ".1", "2 pears", "1E20"}[r.IntN(5)]
		case "merge":
			o.from = randomPathOfBoth(r)
			if len(o.from) < len(o.path) {
				continue // otherwise the tree grows by a level each time
			}
		case "kill":
			if len(o.path) == 1 && r.IntN(10) > 0 {
				continue // otherwise the trees stay empty
			}
		case "next", "previous":
			if len(o.path) == 1 {
				continue
			}
			// M starts at "" in both directions, and never returns it.
			if o.path[len(o.path)-1] == "" {
				continue
			}
		}
		operations = append(operations, o)
	}
	for ; level > 0; level-- {
		operations = append(operations, operation{kind: "commit"})
	}
	return operations
}

func randomPathOfBoth(r *rand.Rand) []string {
	path := []string{[]string{"^x", "^y"}[r.IntN(2)]}
	for range r.IntN(5) {
		path = append(path, subscriptsOfBoth[r.IntN(len(subscriptsOfBoth))])
	}
	return path
}

// A runOfBoth runs operations and compares their results.
type runOfBoth struct {
	operations []operation
	want       []string
	at         int // the next operation
}

// nodesOfBoth are the operations common to sessions and transactions.
type nodesOfBoth interface {
	Get(nodedb.Path) (nodedb.Value, error)
	Set(nodedb.Path, any) error
	Data(nodedb.Path) (value, descendants bool, err error)
	Increment(nodedb.Path, any) (nodedb.Value, error)
	Kill(nodedb.Path) error
	KillValue(nodedb.Path) error
	Next(nodedb.Path) (nodedb.Path, error)
	Previous(nodedb.Path) (nodedb.Path, error)
	Merge(ctx context.Context, to, from nodedb.Path) error
	Update(ctx context.Context, f func(*nodedb.Tx) error) error
}

// all runs operations up to the end of the transaction nodes, or all operations.
func (m *runOfBoth) all(t *testing.T, nodes nodesOfBoth) error {
	rolledBack := errors.New("rolled back")
	for m.at < len(m.operations) {
		o, want := m.operations[m.at], m.want[m.at]
		m.at++
		switch o.kind {
		case "commit":
			return nil
		case "rollback":
			return rolledBack
		case "begin":
			err := nodes.Update(t.Context(), func(tx *nodedb.Tx) error { return m.all(t, tx) })
			if err != nil && err.Error() != rolledBack.Error() {
				return err
			}
			continue
		}
		got, err := o.run(t, nodes)
		if err != nil {
			return fmt.Errorf("operation %d, %v: %w", m.at, o, err)
		}
		if text := parseScalar(t, want); got != text {
			return fmt.Errorf("operation %d, %v: %q; M has %q", m.at, o, got, text)
		}
	}
	return nil
}

func (o operation) run(t *testing.T, nodes nodesOfBoth) (result string, err error) {
	p := pathOf(o.path)
	switch o.kind {
	case "set":
		return "", nodes.Set(p, o.value)
	case "get":
		v, err := nodes.Get(p)
		return formatNumber(v), err
	case "data":
		value, descendants, err := nodes.Data(p)
		return strings.TrimLeft(map[bool]string{true: "1"}[descendants]+map[bool]string{true: "1", false: "0"}[value], " "), err
	case "increment":
		v, err := nodes.Increment(p, o.value)
		if errors.Is(err, nodedb.ErrNumberRange) {
			return "overflow", nil
		}
		return formatNumber(v), err
	case "kill":
		return "", nodes.Kill(p)
	case "killValue":
		return "", nodes.KillValue(p)
	case "next", "previous":
		next := nodes.Next
		if o.kind == "previous" {
			next = nodes.Previous
		}
		found, err := next(p)
		if err != nil || found.IsZero() {
			return "", err
		}
		subscripts := found.Subscripts()
		return formatNumber(subscripts[len(subscripts)-1]), nil
	case "merge":
		err := nodes.Merge(t.Context(), p, pathOf(o.from))
		if !errors.Is(err, nodedb.ErrMerge) {
			return "", err
		}
		// In M, merging a node without a tree has no effect.
		value, descendants, err := nodes.Data(pathOf(o.from))
		if value || descendants {
			return "overlap", err
		}
		return "", err
	}
	return "", fmt.Errorf("unknown operation %q", o.kind)
}

// formatNumber formats a value as M does: without a 0 before the point.
func formatNumber(v nodedb.Value) string {
	text := v.String()
	if v.Kind() != nodedb.Number {
		return text
	}
	if rest, found := strings.CutPrefix(text, "-0."); found {
		return "-." + rest
	}
	if strings.HasPrefix(text, "0.") {
		return text[1:]
	}
	return text
}

func pathOf(path []string) nodedb.Path {
	p := nodedb.Name(path[0])
	for _, subscript := range path[1:] {
		p = p.At(subscript)
	}
	return p
}
