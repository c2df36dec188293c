package eventservice

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/url"
	"strconv"
	"strings"

	"github.com/perigeedb/perigee/admin"
	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/fileimport"
)

// A folderStore is the event store of a data folder in which no engine runs.
type folderStore interface {
	perform(ctx context.Context, path string, request []byte) (answer []byte, err error)
	answer(ctx context.Context, q Request, out io.Writer) error
	readIDs(ctx context.Context, table, column string, each func(id uint64)) error
	backup(ctx context.Context, out io.Writer) error
	beginImport(ctx context.Context, file ImportFile) (importBegun, error)
	importRows(ctx context.Context, file ImportFile, rows *fileimport.Batch) ([]catalog.RejectedRow, error)
}

// perform performs an operation in the engine that runs in a data folder or, without one, on
// the folder.
func perform[Out any](ctx context.Context, data, path string, in any) (Out, error) {
	return admin.Perform[Out](ctx, data, path, in, func(request []byte) (answer []byte, err error) {
		err = withStore(data, func(s folderStore) (err error) {
			answer, err = s.perform(ctx, path, request)
			return err
		})
		return answer, err
	})
}

// The routes of the operations.
const (
	listPath            = "/tables"
	deletePath          = "/tables/delete"
	waitDeletedPath     = "/tables/deleted"
	cancelDeletePath    = "/tables/delete/cancel"
	recomputePath       = "/tables/recompute"
	recomputedPath      = "/tables/recomputed"
	cancelRecomputePath = "/tables/recompute/cancel"
	widenPath           = "/tables/lake/widen"
	cancelWidenPath     = "/tables/lake/widen/cancel"
	dropPath            = "/tables/drop"
	renamePath          = "/tables/rename"
	setTimePath         = "/tables/set-time"
	waitDividedPath     = "/tables/divided"
	dropColumnPath      = "/tables/drop-column"
)

// Tables describes the tables of the event store in a data folder, sorted by name.
func Tables(ctx context.Context, data string) ([]catalog.Table, error) {
	return perform[[]catalog.Table](ctx, data, listPath, struct{}{})
}

// DeleteRows deletes the present rows of a table for which where, an SQL expression over the
// table's columns, is true. When it returns, they are removed from queries. WaitDeleted
// waits until they are removed from files.
func DeleteRows(ctx context.Context, data, table, where string) (catalog.Delete, error) {
	d, err := perform[catalog.Delete](ctx, data, deletePath, catalog.Delete{Table: table, Where: where})
	return d, explainWhere(where, err)
}

// WaitDeleted returns once no file contains the rows of a delete.
func WaitDeleted(ctx context.Context, data string, d catalog.Delete) error {
	_, err := perform[struct{}](ctx, data, waitDeletedPath, d)
	return err
}

// CancelDelete ends an unfinished delete. Rows that files or the log still contain become
// visible again. It returns the number of files that were already rewritten without its rows.
func CancelDelete(ctx context.Context, data, table string, number uint64) (without int, err error) {
	return perform[int](ctx, data, cancelDeletePath, catalog.Delete{Table: table, Number: number})
}

// RecomputeColumn starts to compute a column of the stored rows of a table, with the function
// in the configuration of the running engine. The engine continues in the background, and
// so does the next one.
func RecomputeColumn(ctx context.Context, data, table, column string) (catalog.Recompute, error) {
	return perform[catalog.Recompute](ctx, data, recomputePath, catalog.Recompute{Table: table, Column: column})
}

// CancelRecompute ends the running recompute of a column. Finished files keep their new values;
// a later recompute computes all files.
func CancelRecompute(ctx context.Context, data, table, column string) (catalog.Recompute, error) {
	return perform[catalog.Recompute](ctx, data, cancelRecomputePath, catalog.Recompute{Table: table, Column: column})
}

// RecomputeState returns the state of the last recompute of a column, which may be a later one
// than r.
func RecomputeState(ctx context.Context, data string, r catalog.Recompute) (catalog.Recompute, error) {
	return perform[catalog.Recompute](ctx, data, recomputedPath, r)
}

// WidenInLake begins to give a column the type in the table's lake that it has in the table. The
// engine continues in the background, and so does the next one.
func WidenInLake(ctx context.Context, data, table, column string) (catalog.LakeState, error) {
	return perform[catalog.LakeState](ctx, data, widenPath, TableChange{Table: table, Column: column})
}

// CancelWidenInLake ends what WidenInLake began.
func CancelWidenInLake(ctx context.Context, data, table, column string) (catalog.LakeState, error) {
	return perform[catalog.LakeState](ctx, data, cancelWidenPath, TableChange{Table: table, Column: column})
}

// A TableChange describes a change of a table.
type TableChange struct {
	Table   string `json:"table"`
	To      string `json:"to,omitempty"`      // new name
	Release bool   `json:"release,omitempty"` // free the old name
	Column  string `json:"column,omitempty"`  // column to drop or to widen, or new time column; empty for no time column
	Unit    string `json:"unit,omitempty"`    // unit of numbers in the time column
	Type    string `json:"type,omitempty"`    // type of the time column
}

// DropTable removes a table with its rows, settings and positions. If the configuration of a
// running engine declares the table, the engine creates it again, without rows.
func DropTable(ctx context.Context, data, table string) (createdAgain bool, err error) {
	return perform[bool](ctx, data, dropPath, TableChange{Table: table})
}

// RenameTable renames a table, which keeps its positions. Unless c.Release, the old name stays
// reserved: no new table can have it.
func RenameTable(ctx context.Context, data string, c TableChange) error {
	_, err := perform[struct{}](ctx, data, renamePath, c)
	return err
}

// SetTableTime sets or removes the time column of a table. When it returns, queries and events
// use the column. WaitDivided waits until each file holds one day.
func SetTableTime(ctx context.Context, data string, c TableChange) error {
	_, err := perform[struct{}](ctx, data, setTimePath, c)
	return err
}

// WaitDivided returns once each file of a table holds the rows of one day.
func WaitDivided(ctx context.Context, data, table string) error {
	_, err := perform[struct{}](ctx, data, waitDividedPath, TableChange{Table: table})
	return err
}

// DropColumn removes a column of a table with its values.
func DropColumn(ctx context.Context, data, table, column string) error {
	_, err := perform[struct{}](ctx, data, dropColumnPath, TableChange{Table: table, Column: column})
	return err
}

// Query runs one SQL statement that reads, and writes its rows to out. A running engine in the
// data folder answers it. A fault in the SQL is a *config.Error with its place.
func Query(ctx context.Context, data string, q Request, out io.Writer) error {
	err := admin.Post(ctx, data, "/query", q.address(), strings.NewReader(q.SQL), out, func() error {
		return withStore(data, func(s folderStore) error { return s.answer(ctx, q, out) })
	})
	return q.explain(err)
}

// address returns the settings of a request as URL parameters.
func (q *Request) address() url.Values {
	v := url.Values{"format": {q.Format}}
	if q.Rows > 0 {
		v.Set("rows", strconv.FormatInt(q.Rows, 10))
	}
	if q.Shown > 0 {
		v.Set("shown", strconv.Itoa(q.Shown))
	}
	if q.Time > 0 {
		v.Set("time", q.Time.String())
	}
	if q.Memory > 0 {
		v.Set("memory", strconv.FormatInt(q.Memory, 10))
	}
	for _, p := range q.Params {
		name, text, _ := strings.Cut(p, "=")
		v.Set("param."+name, text)
	}
	return v
}

// explain adds the line of the SQL to an error with a place in it.
func (q *Request) explain(err error) error {
	f, ok := errors.AsType[*event.Fault](err)
	if !ok || f.Line == 0 {
		return err
	}
	text, line, column := q.SQL, f.Line, f.Column
	if q.Text != "" {
		if text = q.Text; line == 1 {
			column += q.Column - 1
		}
		line += q.Line - 1
	}
	return &config.Error{File: cmp.Or(q.File, "SQL"), Line: line, Column: column, Message: f.Message, Hint: f.Hint, Source: config.LineOf(text, line)}
}

// explainWhere adds the line of a condition to an error with a place in it.
func explainWhere(where string, err error) error {
	q := Request{SQL: where}
	return q.explain(err)
}

// ReadIDs calls each with the value of an integer column of every row of a table. No engine
// may run in the data folder.
func ReadIDs(ctx context.Context, data, table, column string, each func(id uint64)) error {
	return withStore(data, func(s folderStore) error { return s.readIDs(ctx, table, column, each) })
}

// Backup writes the event store in a data folder, as it is now, to out. A running engine
// continues meanwhile.
func Backup(ctx context.Context, data string, out io.Writer) error {
	return admin.Post(ctx, data, "/backup", nil, nil, out, func() error {
		return withStore(data, func(s folderStore) error { return s.backup(ctx, out) })
	})
}
