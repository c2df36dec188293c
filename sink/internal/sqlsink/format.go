package sqlsink

import (
	"errors"
	"fmt"
	"slices"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
)

// An Encoder appends the value of a row, which is not null.
type Encoder func(to []byte, v *event.Vector, row int) ([]byte, error)

// A Format is how rows are written into a statement or a stream.
type Format struct {
	Encoders  []Encoder // of the columns
	Separator string    // between values
	Value     string    // before a value that is not null
	Null      string    // in place of a value
}

// AppendRow appends the values of a row. A value that cannot be sent is a *Misfit.
func (f *Format) AppendRow(to []byte, columns *event.Columns, row int) ([]byte, error) {
	var err error
	for c, encode := range f.Encoders {
		if c > 0 {
			to = append(to, f.Separator...)
		}
		v := &columns.Vectors[c]
		if v.Null[row] != 0 {
			to = append(to, f.Null...)
			continue
		}
		to = append(to, f.Value...)
		if to, err = encode(to, v, row); err != nil {
			return to, &Misfit{Row: row, Column: c, Err: err}
		}
	}
	return to, nil
}

// A Misfit is a row that the sink itself does not send, because of a value or of its
// size.
type Misfit struct {
	Row    int // of the columns
	Column int // -1: the whole row
	Err    error
}

func (m *Misfit) Error() string { return m.Err.Error() }
func (m *Misfit) Unwrap() error { return m.Err }

// Scaled rejects decimals that a column with the scale would round silently. A
// negative scale keeps all.
func Scaled(encode Encoder, scale int) Encoder {
	if scale < 0 {
		return encode
	}
	return func(to []byte, v *event.Vector, row int) ([]byte, error) {
		if err := CheckScale(v.Text(row), scale); err != nil {
			return to, err
		}
		return encode(to, v, row)
	}
}

// A Cause is why a server rejects a row.
type Cause struct {
	Message string
	Column  string // that the message is about; may be empty
	Misfit  bool   // the column's type or size does not take the value
}

// RejectedRow returns the error of a row that was rejected with err: by the sink, or
// by the server for the cause that err states.
func RejectedRow(err error, columns *event.Columns, row int, cause func(error) Cause) sink.RowError {
	rejected := sink.RowError{Row: row, Err: err}
	if own, ok := errors.AsType[*Misfit](err); ok {
		if own.Column >= 0 {
			rejected.Stage, rejected.Err = sink.StageColumn, describeValue(err, columns, own.Column, row)
		}
		return rejected
	}
	c := cause(err)
	rejected.Err = errors.New(c.Message)
	if i := slices.IndexFunc(columns.Spec, func(spec event.Column) bool { return spec.Name == c.Column }); i >= 0 {
		rejected.Err = describeValue(rejected.Err, columns, i, row)
		if c.Misfit {
			rejected.Stage = sink.StageColumn
		}
	}
	return rejected
}

var errAllAccepted = errors.New("the server now accepts every row of a rejected batch")

// AllAccepted is the error of a batch that was rejected with cause, and none of whose
// rows is. Something changed meanwhile, or the statement about the ranges failed:
// its outcome is unknown, so that the writer reads again what is committed.
func AllAccepted(cause error) error {
	return fmt.Errorf("%w: %s", errAllAccepted, cause.Error())
}
