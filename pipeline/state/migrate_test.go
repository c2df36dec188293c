//go:build cgo && lmdb

package state

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/nodedb"
	"github.com/perigeedb/perigee/nodedb/lua"
)

// A mapping is the function of a migration in Go. It fails once it has run so many times.
type mapping struct {
	move  func(node map[string]any)
	calls int
}

func (m *mapping) Run(_ context.Context, in *event.Batch, res *event.Result) error {
	res.Reset()
	if m.calls--; m.calls < 0 {
		return errors.New("killed")
	}
	for i := range in.Len() {
		var node map[string]any
		if err := json.Unmarshal(in.Doc(i), &node); err != nil {
			return err
		}
		m.move(node)
		row, err := json.Marshal(node)
		if err != nil {
			return err
		}
		out := &res.Outputs[0]
		out.Data = append(out.Data, row...)
		out.Ends, out.From = append(out.Ends, uint32(len(out.Data))), append(out.From, uint32(i))
	}
	res.Ran = in.Len()
	return nil
}

func (*mapping) String() string { return "map.lua" }
func (*mapping) Close() error   { return nil }

// TestMigrationKilled migrates many nodes, timers and expiry times to another scope. The migration
// fails at each of its steps first, and the state stays what it was; then it begins again.
func TestMigrationKilled(t *testing.T) {
	folder := t.TempDir()
	b := newBed(t, filepath.Join(folder, "1"))
	expiry := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	const nodes = 1500
	for _, unit := range []string{"a", "b"} {
		e, err := Edit(t.Context(), b.config, b.home, unit, "timers@"+unit)
		if err != nil {
			t.Fatal(err)
		}
		d, err := e.Begin()
		if err != nil {
			t.Fatal(err)
		}
		for i := range nodes {
			at := nodedb.Name("^n").At(unit, i)
			err = errors.Join(err, d.Tx().Set(at, strings.Repeat("x", 2000)+fmt.Sprint(i)))
			if i == 7 {
				_, expires := d.Tx().ExpireAt(at, expiry)
				err = errors.Join(err, expires)
			}
		}
		err = errors.Join(err, d.Tx().Set(nodedb.Name("^bytes").At(unit, "\xff"), "\xfe"))
		_, added := lua.AddTimer(d.Tx(), lua.Timer{Key: valueOf(t, "later "+unit), Due: 4e9})
		if err = errors.Join(err, added, e.Commit(t.Context(), d), e.Close()); err != nil {
			t.Fatal(err)
		}
	}
	check := func(c *Config, err error) {
		t.Helper()
		if _, checked := c.Check(t.Context(), "p", nil); fmt.Sprint(checked) != fmt.Sprint(err) {
			t.Errorf("checking version %d returned %v, want %v", c.Version, checked, err)
		}
	}
	to := *b.config
	to.Version, to.Shared, to.Folder = 2, true, filepath.Join(folder, "2")
	m := &Migration{To: &to, HomeSink: b.home, Partition: func(unit string) string { return "timers@" + unit },
		FolderOf: func(version int) string { return filepath.Join(folder, fmt.Sprint(version)) }}
	move := func(node map[string]any) { node["unit"] = sharedUnit }
	refused := errors.New("state users has version 1 in sink changelog, and version: 2 in the configuration")
	for calls := range 4 {
		m.Map = &mapping{move, calls}
		if _, err := m.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Fatalf("the migration that is killed at step %d returned %v", calls, err)
		}
		check(&to, refused)
		check(b.config, nil)
	}
	m.Map, m.DryRun = &mapping{move, 100}, true
	dry, err := m.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m.Map, m.DryRun = &mapping{move, 100}, false
	report, err := m.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprint(MigrationReport{From: 1, To: 2, Old: []MigrationCount{{"a", nodes + 1, 1}, {"b", nodes + 1, 1}}, New: []MigrationCount{{sharedUnit, 2*nodes + 2, 2}}})
	if fmt.Sprint(*dry) != want || fmt.Sprint(*report) != want {
		t.Errorf("the reports are %v and %v, want %v", *dry, *report, want)
	}
	check(&to, nil)
	if _, err := b.config.Check(t.Context(), "p", nil); err == nil || !strings.Contains(err.Error(), "has version 2") {
		t.Errorf("checking the old version returned %v", err)
	}
	u, err := Open(t.Context(), &to, sharedUnit)
	if err != nil {
		t.Fatal(err)
	}
	defer b.close(u)
	if u.last < 2 {
		t.Errorf("%d notes have 6 MB, want several", u.last)
	}
	err = u.View(t.Context(), func(tx *nodedb.Tx) error {
		count := 0
		for node, err := range tx.Walk(t.Context(), nodedb.Name("^n"), nodedb.Range{}) {
			if err != nil {
				return err
			}
			if count++; !strings.HasSuffix(node.Value.String(), "x"+node.Path.Subscripts()[1].String()) {
				t.Fatalf("%v has another value", node.Path)
			}
		}
		if count != 2*nodes {
			t.Errorf("%d nodes, want %d", count, 2*nodes)
		}
		ttl, limited, err := tx.TTL(nodedb.Name("^n").At("b", 7))
		if left := time.Until(expiry); err != nil || !limited || ttl < left-time.Minute || ttl > left+time.Minute {
			t.Errorf("the node expires in %v (%t, %v), want %v", ttl, limited, err, left)
		}
		if v, err := tx.Get(nodedb.Name("^bytes").At("a", "\xff")); err != nil || v.String() != "\xfe" {
			t.Errorf("bytes became %q, %v", v.String(), err)
		}
		due, _, err := lua.DueTimers(t.Context(), tx, time.Unix(5e9, 0), 10)
		if got := fmt.Sprint(due); err != nil || got != "[{later a 4e+09} {later b 4e+09}]" {
			t.Errorf("the timers are %s, %v", got, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func valueOf(t *testing.T, v any) nodedb.Value {
	t.Helper()
	value, err := nodedb.ValueOf(v)
	if err != nil {
		t.Fatal(err)
	}
	return value
}
