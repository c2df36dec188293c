package nodedb_test

import (
	"context"
	"errors"
	"testing"

	"github.com/perigeedb/perigee/nodedb"
)

// open opens a store for a test. It skips the test in a build without the database.
func open(t testing.TB, o nodedb.Options) *nodedb.Store {
	t.Helper()
	return openFolder(t, t.TempDir(), o)
}

func openFolder(t testing.TB, folder string, o nodedb.Options) *nodedb.Store {
	t.Helper()
	s, err := nodedb.Open(folder, o)
	if errors.Is(err, nodedb.ErrUnavailable) {
		t.Skip("needs cgo and the build tag lmdb")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, nodedb.ErrClosed) {
			t.Error(err)
		}
	})
	return s
}

func session(t testing.TB, s *nodedb.Store) *nodedb.Session {
	t.Helper()
	one, err := s.Session()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(one.Close)
	return one
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// must returns v if err is nil.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// getter is a Session or a Tx.
type getter interface {
	Get(p nodedb.Path) (nodedb.Value, error)
}

func want(t testing.TB, from getter, p nodedb.Path, want any) {
	t.Helper()
	v, err := from.Get(p)
	if err != nil {
		t.Fatal(err)
	}
	if v != must(nodedb.ValueOf(want)) {
		t.Errorf("%v is %v %q, want %v", p, v.Kind(), v, want)
	}
}

func wantError(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error %v, want one that is %v", err, want)
	}
}

var ctx = context.Background()
