package nodedb_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/nodedb"
)

func TestDeleteAndExists(t *testing.T) {
	s := session(t, open(t, nodedb.Options{NoSync: true}))
	for _, name := range []string{"^d", "d"} {
		p := nodedb.Name(name)
		exists := func(p nodedb.Path, want bool) {
			t.Helper()
			if got := must(s.Exists(p)); got != want {
				t.Errorf("%v exists: %t, want %t", p, got, want)
			}
		}
		exists(p, false)
		check(t, s.Set(p.At(1), 1))
		check(t, s.Set(p.At(1, 2), 1))
		exists(p, true)
		exists(p.At(1), true)
		exists(p.At(2), false)
		check(t, s.DeleteValue(p.At(1)))
		exists(p.At(1), true)
		want(t, s, p.At(1), nil)
		check(t, s.Delete(p.At(1)))
		exists(p, false)
	}
}

func TestExpireAt(t *testing.T) {
	store := open(t, nodedb.Options{NoSync: true})
	s := session(t, store)
	for _, name := range []string{"^e", "e"} {
		p := nodedb.Name(name)
		if must(s.ExpireAt(p, time.Now().Add(time.Hour))) || must(s.Persist(p)) || must(s.Expire(p, 0)) {
			t.Error("a missing node was found")
		}
		check(t, s.Set(p, 1))
		at := time.Now().Add(2 * time.Hour)
		if !must(s.ExpireAt(p, at)) {
			t.Error("a node was not found")
		}
		if ttl, limited, err := s.TTL(p); !limited || err != nil || ttl > 2*time.Hour || ttl < 2*time.Hour-time.Minute {
			t.Errorf("%v: TTL %v, %t, %v", p, ttl, limited, err)
		}
		must(s.Persist(p))
		if _, limited, err := s.TTL(p); limited || err != nil {
			t.Errorf("%v has a limit after Persist: %v", p, err)
		}
		for what, end := range map[string]func() (bool, error){
			"a ttl of 0":      func() (bool, error) { return s.Expire(p, 0) },
			"a time past":     func() (bool, error) { return s.ExpireAt(p, time.Now().Add(-time.Second)) },
			"a time in 1960":  func() (bool, error) { return s.ExpireAt(p, time.Date(1960, 1, 1, 0, 0, 0, 0, time.UTC)) },
			"the zero time":   func() (bool, error) { return s.ExpireAt(p, time.Time{}) },
			"the present one": func() (bool, error) { return s.ExpireAt(p, time.Now()) },
		} {
			check(t, s.Set(p, 1))
			must(end())
			want(t, s, p, nil)
			if must(s.Exists(p)) {
				t.Errorf("%v exists after %s", p, what)
			}
		}
		check(t, s.Set(p, "new"))
		want(t, s, p, "new")
	}
}

// TestTimeStandsInTransaction reads a node in a transaction until after its expiry.
func TestTimeStandsInTransaction(t *testing.T) {
	store := open(t, nodedb.Options{NoSync: true, NoWait: true})
	s := session(t, store)
	p, q, mine := nodedb.Name("^e").At(1), nodedb.Name("^e").At(2), nodedb.Name("mine")
	for _, end := range []time.Duration{20 * time.Millisecond, 0} {
		for _, path := range []nodedb.Path{p, q, mine} {
			check(t, s.Set(path, 1))
		}
		check(t, store.Sync())
		must(s.Expire(p, 20*time.Millisecond))
		must(s.Expire(mine, 20*time.Millisecond))
		check(t, s.Update(ctx, func(tx *nodedb.Tx) error {
			want(t, tx, p, 1)
			want(t, tx, mine, 1)
			if end > 0 {
				must(tx.Expire(q, end))
			}
			time.Sleep(40 * time.Millisecond)
			want(t, tx, p, 1)
			want(t, tx, mine, 1)
			want(t, tx, q, 1)
			if n := must(tx.Count(ctx, nodedb.Name("^e"))); n != 2 {
				t.Errorf("%d nodes are counted, want 2", n)
			}
			var walked []string
			for node, err := range tx.Walk(ctx, nodedb.Name("^e"), nodedb.Range{}) {
				check(t, err)
				walked = append(walked, node.Path.String())
			}
			if !slices.Equal(walked, []string{"^e(1)", "^e(2)"}) {
				t.Errorf("walked %v", walked)
			}
			if end == 0 {
				must(tx.Expire(q, 0))
				want(t, tx, q, nil)
			}
			return tx.Set(nodedb.Name("^done"), 1)
		}))
		for _, path := range []nodedb.Path{p, q, mine} {
			want(t, s, path, nil)
		}
	}
}

func TestGetAllAndSetAll(t *testing.T) {
	store := open(t, nodedb.Options{NoSync: true, TransactionBytes: 1 << 20})
	s := session(t, store)
	p, mine := nodedb.Name("^m"), nodedb.Name("mine")
	big := strings.Repeat("x", 700<<10)
	set := func(to interface {
		SetAll(...nodedb.Assignment) error
	}, values ...any) error {
		return to.SetAll(nodedb.Assignment{p.At(1), values[0]}, nodedb.Assignment{mine, values[1]}, nodedb.Assignment{p.At(2), values[2]})
	}
	all := func(from interface {
		GetAll(...nodedb.Path) ([]nodedb.Value, error)
	}, want ...any) {
		t.Helper()
		got := must(from.GetAll(p.At(1), mine, p.At(2), p.At(3)))
		for i, v := range append(want, nil) {
			if got[i] != must(nodedb.ValueOf(v)) {
				t.Errorf("value %d is %v, want %v", i, got[i], v)
			}
		}
	}
	check(t, set(s, 1, "two", true))
	all(s, 1, "two", true)
	wantError(t, set(s, big, 3, big), nodedb.ErrTransactionTooLarge)
	all(s, 1, "two", true)
	wantError(t, set(s, 2, 3, nil), nodedb.ErrArgument)
	wantError(t, s.SetAll(nodedb.Assignment{p.At(1), 7}, nodedb.Assignment{nodedb.Path{}, 1}), nodedb.ErrPathTooLong)
	wantError(t, s.SetAll(nodedb.Assignment{p.At(1), 7}, nodedb.Assignment{p.At(true), 1}), nodedb.ErrArgument)
	all(s, 1, "two", true)
	check(t, s.SetAll())
	if got := must(s.GetAll()); len(got) != 0 {
		t.Errorf("no paths have the values %v", got)
	}
	check(t, s.Update(ctx, func(tx *nodedb.Tx) error {
		check(t, set(tx, 4, 5, 6))
		all(tx, 4, 5, 6)
		wantError(t, set(tx, big, 7, big), nodedb.ErrTransactionTooLarge)
		all(tx, 4, 5, 6)
		return nil
	}))
	all(s, 4, 5, 6)
	check(t, store.View(ctx, func(tx *nodedb.Tx) error {
		wantError(t, tx.SetAll(nodedb.Assignment{p, 1}), nodedb.ErrReadOnly)
		return nil
	}))
}
