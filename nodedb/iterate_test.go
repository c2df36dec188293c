package nodedb_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/perigeedb/perigee/nodedb"
)

// someTree has the nodes ^w, ^w(i) and ^w(i,"x") for i from 1 to 5, and ^w(2.5).
func someTree(t *testing.T, s *nodedb.Session, name string) nodedb.Path {
	t.Helper()
	p := nodedb.Name(name)
	check(t, s.Set(p, 0))
	for i := 1; i <= 5; i++ {
		check(t, s.Set(p.At(i), i))
		check(t, s.Set(p.At(i, "x"), i))
	}
	check(t, s.Set(p.At(2.5), 2.5))
	return p
}

func TestWalkBounds(t *testing.T) {
	s := session(t, open(t, nodedb.Options{NoSync: true}))
	p := someTree(t, s, "^w")
	for _, test := range []struct {
		r    nodedb.Range
		want []string
	}{
		{nodedb.Range{To: 1}, []string{`^w`, `^w(1)`, `^w(1,"x")`}},
		{nodedb.Range{From: 2, To: 2}, []string{`^w(2)`, `^w(2,"x")`}},
		{nodedb.Range{From: 2, To: 3}, []string{`^w(2)`, `^w(2,"x")`, `^w(2.5)`, `^w(3)`, `^w(3,"x")`}},
		{nodedb.Range{From: 2.1, To: 2.9}, []string{`^w(2.5)`}},
		{nodedb.Range{From: p.At(4, "x")}, []string{`^w(4,"x")`, `^w(5)`, `^w(5,"x")`}},
		{nodedb.Range{From: p.At(4), To: p.At(4, "a")}, []string{`^w(4)`}},
		{nodedb.Range{From: 5, Limit: 1}, []string{`^w(5)`}},
		{nodedb.Range{From: 2, To: 1, Reverse: true}, []string{`^w(2,"x")`, `^w(2)`, `^w(1,"x")`, `^w(1)`}},
		{nodedb.Range{From: 1, Reverse: true}, []string{`^w(1,"x")`, `^w(1)`, `^w`}},
		{nodedb.Range{From: p.At(1), To: p.At(1, "x"), Reverse: true}, []string{`^w(1,"x")`}},
		{nodedb.Range{From: 4, To: 2}, nil},
		{nodedb.Range{From: "a"}, nil},
	} {
		var got []string
		for node, err := range s.Walk(ctx, p, test.r) {
			check(t, err)
			got = append(got, node.Path.String())
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("walk from %v to %v, reverse %t: got %v, want %v", test.r.From, test.r.To, test.r.Reverse, got, test.want)
		}
	}
	for _, r := range []nodedb.Range{{From: nodedb.Name("^x")}, {To: nodedb.Path{}}, {From: true}, {From: struct{}{}}} {
		for _, err := range s.Walk(ctx, p, r) {
			wantError(t, err, nodedb.ErrArgument)
		}
	}
	for _, err := range s.Walk(ctx, nodedb.Path{}, nodedb.Range{From: 1}) {
		wantError(t, err, nodedb.ErrArgument)
	}
}

func TestKillRange(t *testing.T) {
	store := open(t, nodedb.Options{NoSync: true})
	s := session(t, store)
	for i, test := range []struct {
		from, to any
		left     uint64 // of the 12 nodes
	}{
		{nil, nil, 1}, {2, 3, 7}, {2, 2, 10}, {2.1, 2.9, 11}, {nil, 2, 8}, {4, nil, 8}, {3, 2, 12}, {"a", nil, 12}, {nil, "", 12},
	} {
		for _, name := range []string{"^w", "w"} {
			p := someTree(t, s, fmt.Sprint(name, i))
			check(t, s.KillRange(ctx, p, test.from, test.to))
			if got := must(s.Count(ctx, p)); got != test.left {
				t.Errorf("%v after a kill from %v to %v: %d nodes, want %d", p, test.from, test.to, got, test.left)
			}
			want(t, s, p, 0)
		}
	}
	p := someTree(t, s, "^undo")
	failed := errors.New("failed")
	wantError(t, store.Update(ctx, func(tx *nodedb.Tx) error {
		check(t, tx.KillRange(ctx, p, 1, 3))
		check(t, tx.Set(p.At(2), "again"))
		want(t, tx, p.At(1, "x"), nil)
		return failed
	}), failed)
	if got := must(s.Count(ctx, p)); got != 12 {
		t.Errorf("after a rollback: %d nodes, want 12", got)
	}
	wantError(t, s.KillRange(ctx, p, true, nil), nodedb.ErrArgument)
}

// TestKillRangeOfMany kills more nodes than fit one step, once while another session adds a node.
func TestKillRangeOfMany(t *testing.T) {
	store := open(t, nodedb.Options{NoSync: true, NoWait: true})
	s, other := session(t, store), session(t, store)
	p := nodedb.Name("^many")
	check(t, store.Update(ctx, func(tx *nodedb.Tx) error {
		for i := range 30_000 {
			check(t, tx.Set(p.At(i), i))
		}
		return nil
	}))
	runs := 0
	check(t, store.Update(ctx, func(tx *nodedb.Tx) error {
		check(t, tx.KillRange(ctx, p, 10, 29_989))
		if runs++; runs == 1 {
			check(t, other.Set(p.At(500, "new"), 1))
		}
		return nil
	}))
	if got := must(s.Count(ctx, p)); got != 20 || runs != 2 {
		t.Errorf("%d nodes after %d runs, want 20 after 2", got, runs)
	}
}

func TestExpireTree(t *testing.T) {
	s := session(t, open(t, nodedb.Options{NoSync: true}))
	for _, name := range []string{"^e", "e"} {
		p := someTree(t, s, name)
		check(t, s.ExpireTree(ctx, p.At(2), time.Hour))
		check(t, s.Set(p.At(2, "new"), 1))
		for path, limited := range map[nodedb.Path]bool{p.At(1): false, p.At(2): true, p.At(2, "x"): true, p.At(2, "new"): false, p.At(2.5): false} {
			if ttl, got, err := s.TTL(path); got != limited || err != nil || got && (ttl > time.Hour || ttl < time.Hour-time.Minute) {
				t.Errorf("%v has the time to live %v, %t, %v; limited: want %t", path, ttl, got, err, limited)
			}
		}
		check(t, s.ExpireTreeAt(ctx, p.At(2), time.Time{}))
		if _, limited, err := s.TTL(p.At(2, "x")); limited || err != nil {
			t.Errorf("%v: the limit is still there, %v", p.At(2, "x"), err)
		}
		check(t, s.ExpireTreeAt(ctx, p.At(2), time.Now().Add(-time.Hour)))
		if got := must(s.Count(ctx, p)); got != 10 {
			t.Errorf("%v has %d nodes after three have ended, want 10", p, got)
		}
		check(t, s.ExpireTree(ctx, p, 0))
		if got := must(s.Exists(p)); got {
			t.Errorf("%v exists after all of it has ended", p)
		}
		wantError(t, s.ExpireTree(ctx, p, -1), nodedb.ErrArgument)
	}
}
