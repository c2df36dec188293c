package event

import (
	"errors"
	"fmt"
)

// A Fault is an error with a hint and, if it is in a text such as SQL, its place. It encodes
// as JSON: a process answers another one with it.
type Fault struct {
	Message string `json:"error"`
	Hint    string `json:"hint,omitempty"`   // how to fix it; may be empty
	Line    int    `json:"line,omitempty"`   // in the text, from 1; 0 if unknown
	Column  int    `json:"column,omitempty"` // in the line, in characters, from 1
}

// FaultOf returns the Fault in err or, without one, the message and the hint of err.
func FaultOf(err error) *Fault {
	if f, ok := errors.AsType[*Fault](err); ok {
		return f
	}
	return &Fault{Message: err.Error(), Hint: HintOf(err)}
}

func (f *Fault) Error() string {
	if f.Line == 0 {
		return f.Message
	}
	return fmt.Sprintf("line %d, column %d: %s", f.Line, f.Column, f.Message)
}

// ErrorHint implements Hinter.
func (f *Fault) ErrorHint() string { return f.Hint }
