package sqlsink

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/perigeedb/perigee/sink"
)

// A Bisection finds the rows that made a server reject a batch. It inserts the
// batch again in pieces, in a transaction that is rolled back: the accepted rows stay
// in it, so that two rows with the same key are told apart. A piece that is rejected
// is split, unless the server names the row. With b bad rows among n that takes about
// 2·b·log(n/b) statements.
type Bisection struct {
	// Insert inserts the first n of rows, all or none. A *Misfit names the row that it
	// cannot send.
	Insert func(ctx context.Context, rows []int) (n int, err error)

	// IsRejection reports whether Insert failed because of its rows.
	IsRejection func(err error) bool

	// Blame returns which of the n rows that were inserted the server's error names, or
	// -1. It is nil for a server that names none.
	Blame func(err error, n int) int

	// Explain describes why a row is rejected.
	Explain func(err error, row int) sink.RowError

	rejected []sink.RowError
}

// Run returns the rejected ones of rows, ascending.
func (b *Bisection) Run(ctx context.Context, rows []int) ([]sink.RowError, error) {
	if err := b.search(ctx, rows); err != nil {
		return nil, err
	}
	slices.SortFunc(b.rejected, func(a, c sink.RowError) int { return cmp.Compare(a.Row, c.Row) })
	return b.rejected, nil
}

// search inserts rows in pieces, which get smaller where many rows are rejected.
func (b *Bisection) search(ctx context.Context, rows []int) error {
	for size := len(rows); len(rows) > 0; {
		piece := rows[:min(size, len(rows))]
		n, accepted, err := b.insertPiece(ctx, piece)
		if err != nil {
			return err
		}
		if size = n * 2; !accepted {
			size = max(1, len(piece)/2)
		}
		rows = rows[n:]
	}
	return nil
}

// insertPiece deals with the first n of rows: it inserts them all or, when some are
// rejected, those that are not, up to a rejected row that the server names.
func (b *Bisection) insertPiece(ctx context.Context, rows []int) (n int, accepted bool, err error) {
	n, err = b.Insert(ctx, rows)
	if err == nil {
		return n, true, nil
	}
	if !b.IsRejection(err) {
		return 0, false, err
	}
	at := -1
	if own, ok := errors.AsType[*Misfit](err); ok {
		at = slices.Index(rows, own.Row)
	} else if b.Blame != nil {
		at = b.Blame(err, n)
	}
	if at < 0 && n > 1 {
		if err := b.search(ctx, rows[:n/2]); err != nil {
			return 0, false, err
		}
		return n, false, b.search(ctx, rows[n/2:n])
	}
	at = max(at, 0)
	if err := b.search(ctx, rows[:at]); err != nil {
		return 0, false, err
	}
	b.rejected = append(b.rejected, b.Explain(err, rows[at]))
	return at + 1, false, nil
}
