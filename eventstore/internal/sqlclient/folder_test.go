//go:build linux && cgo

package sqlclient

import (
	"context"
	"os"
	"testing"

	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/sqlworker"
	"github.com/perigeedb/perigee/eventstore/internal/storetest"
)

// TestMain is also the worker that the tests start.
func TestMain(m *testing.M) {
	sqlworker.Run()
	os.Exit(m.Run())
}

// A folder is a store with a client of its workers.
type folder struct {
	*storetest.Folder
	client *Client
}

func newFolder(t testing.TB, o Options) *folder {
	t.Helper()
	f := &folder{Folder: storetest.New(t)}
	o.Folder = f.Path
	f.client = New(o)
	t.Cleanup(func() { f.client.Close() })
	f.Writer = f.client
	f.Query = func(ctx context.Context, sql string, params ...protocol.Param) (storetest.Rows, error) {
		return f.client.Query(ctx, Query{Version: f.M.Version, Ends: f.Ends, SQL: sql, Params: params})
	}
	return f
}

// worker returns the worker that gets the requests of a role, or nil.
func (f *folder) worker(r protocol.Role) *process {
	f.client.mu.Lock()
	defer f.client.mu.Unlock()
	return f.client.shared[r]
}
