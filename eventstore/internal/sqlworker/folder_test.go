//go:build linux && cgo

package sqlworker

import (
	"context"
	"os"
	"testing"

	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/sqlclient"
	"github.com/perigeedb/perigee/eventstore/internal/storetest"
)

func TestMain(m *testing.M) {
	Run()
	if folder := os.Getenv(powercutFolder); folder != "" {
		sealAndMerge(folder)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A folder is a store with a client of its workers.
type folder struct {
	*storetest.Folder
	client *sqlclient.Client
}

func newFolder(t testing.TB, o sqlclient.Options) *folder {
	t.Helper()
	f := &folder{Folder: storetest.New(t)}
	o.Folder = f.Path
	f.client = sqlclient.New(o)
	t.Cleanup(func() { f.client.Close() })
	f.Writer = f.client
	f.Query = func(ctx context.Context, sql string, params ...protocol.Param) (storetest.Rows, error) {
		return f.client.Query(ctx, sqlclient.Query{Version: f.M.Version, Ends: f.Ends, SQL: sql, Params: params})
	}
	return f
}

// worker describes the worker that gets the requests of a role.
func (f *folder) worker(r protocol.Role) sqlclient.WorkerInfo {
	f.T.Helper()
	for _, w := range f.client.Workers() {
		if w.Role == string(r) && !w.Retired {
			return w
		}
	}
	f.T.Fatalf("no worker runs for role %s", r)
	return sqlclient.WorkerInfo{}
}
