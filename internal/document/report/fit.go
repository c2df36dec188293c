package report

import "github.com/perigeedb/perigee/event"

// Extract is the method of an extractor that fills columns from documents.
type Extract func(data []byte, ends []uint32, columns *event.Columns) (Report, error)

// Fit fills the columns of an output and takes out the rows that do not fit.
// Before it does, refuse hears of each of them: the input event, which of that
// event's outputs it is, and the first thing that is bad about it.
func Fit(extract Extract, out *event.Output, refuse func(event int, number uint32, bad Bad)) error {
	if out.Columns == nil {
		out.Columns = new(event.Columns)
	}
	found, err := extract(out.Data, out.Ends, out.Columns)
	if err != nil || len(found.Bad) == 0 {
		return err
	}
	var rows []int
	for _, bad := range found.Bad {
		if n := len(rows); n > 0 && rows[n-1] == bad.Row {
			continue // one reason is enough
		}
		rows = append(rows, bad.Row)
		refuse(int(out.From[bad.Row]), number(out.From, bad.Row), bad)
	}
	out.RemoveRows(rows)
	return nil
}

// number counts the rows of the same event before row. They stand together.
func number(from []uint32, row int) uint32 {
	first := row
	for first > 0 && from[first-1] == from[row] {
		first--
	}
	return uint32(row - first)
}
