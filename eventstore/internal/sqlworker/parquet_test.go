//go:build linux && cgo

package sqlworker

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/sqlclient"
)

// TestParquetIsGuarded requests Parquet files of queries that are forbidden or fail. Only the
// query fails, not the worker.
func TestParquetIsGuarded(t *testing.T) {
	f := newFolder(t, sqlclient.Options{})
	f.Want(`SELECT 1`, "1")
	pid := f.worker(protocol.QueryRole).PID
	for _, sql := range []string{`SELECT nothing`, `SELECT * FROM '/etc/passwd'`, `SELECT`, `SELECT 1; SELECT 2`, `SET threads = 1`, `SELECT $1`} {
		rows, err := f.client.Query(t.Context(), sqlclient.Query{Version: f.M.Version, SQL: sql, Parquet: true})
		if err == nil {
			err = rows.WriteStream(io.Discard)
			rows.Close()
		}
		if _, ok := errors.AsType[*event.Fault](err); !ok || errors.Is(err, sqlclient.ErrCrashed) {
			t.Errorf("%s: %v, want an *event.Fault", sql, err)
		}
	}
	var file bytes.Buffer
	rows, err := f.client.Query(t.Context(), sqlclient.Query{Version: f.M.Version, SQL: `SELECT 1; -- all`, Parquet: true})
	if err == nil {
		err = rows.WriteStream(&file)
		rows.Close()
	}
	if err != nil || !strings.HasPrefix(file.String(), "PAR1") {
		t.Errorf("the query gets a file %.20q, %v", file.String(), err)
	}
	if now := f.worker(protocol.QueryRole).PID; now != pid {
		t.Error("a query has ended the worker")
	}
}
