//go:build linux && cgo

package eventstore

import (
	"errors"
	"fmt"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/sqlworker"
)

// ErrFenced says that another owner has taken over the partition. This Partition will
// never commit again.
var ErrFenced = errors.New("eventstore: the partition has been taken over")

// ErrDropped says that the table was dropped. Another may have its name.
var ErrDropped = errors.New("eventstore: the table has been dropped")

// ErrClosed says that the store or the partition is closed.
var ErrClosed = protocol.ErrClosed

// RejectedRows names the rows of an output that can never be stored. Nothing of the
// output was stored.
type RejectedRows struct{ Rows []RejectedRow }

// A RejectedRow is a row that is not a JSON object, or does not fit a declared column.
type RejectedRow struct {
	Row    int    // index in the output
	Column string // that the row does not fit; empty when it is not an object
	Reason string
}

func (e *RejectedRows) Error() string {
	return fmt.Sprintf("eventstore: %d rows rejected, the first is row %d: %s", len(e.Rows), e.Rows[0].Row, e.Rows[0].Reason)
}

// configError says that a table or the store does not fit its configuration.
func configError(hint, format string, args ...any) error {
	return &event.PermanentError{Err: fmt.Errorf("eventstore: "+format, args...), Hint: hint}
}

// A QueryError is SQL that cannot be answered.
type QueryError = protocol.QueryError

// ErrCrashed says that a query ended the process that answered it. The next one gets a
// new process.
var ErrCrashed = sqlworker.ErrCrashed

var errReadOnly = configError("open it without Options.ReadOnly", "the store is open to read only")
