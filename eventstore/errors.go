//go:build linux && cgo

package eventstore

import (
	"errors"
	"fmt"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/event/ledger"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/sqlclient"
)

// ErrFenced reports that another owner has taken over the partition. This Partition can no
// longer commit.
var ErrFenced = ledger.ErrFenced

// ErrDropped reports that the table was dropped. A new table may have the same name.
var ErrDropped = errors.New("eventstore: the table has been dropped")

// ErrClosed reports that the store or the partition is closed.
var ErrClosed = protocol.ErrClosed

// RejectedRows lists the rows of an output that can never be stored. Nothing of the output
// was stored.
type RejectedRows struct{ Rows []catalog.RejectedRow }

func (e *RejectedRows) Error() string {
	return fmt.Sprintf("eventstore: %d rows rejected, the first is row %d: %s", len(e.Rows), e.Rows[0].Row, e.Rows[0].Reason)
}

// configError returns an error for a table or store that does not match its configuration.
func configError(hint, format string, args ...any) error {
	return &event.PermanentError{Err: fmt.Errorf("eventstore: "+format, args...), Hint: hint}
}

// ErrCrashed reports that a query crashed its worker process. The next query starts a new
// one.
var ErrCrashed = sqlclient.ErrCrashed

var errReadOnly = configError("open it without Options.ReadOnly", "the store is open to read only")
