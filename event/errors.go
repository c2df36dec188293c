package event

import "errors"

// A PermanentError is an error that retrying does not fix: a person must change
// something first. It is the only such error type; sources, sinks and stores return
// it, and the pipeline stops when it gets one. Any other error is retried, except
// the sentinels that a contract names.
type PermanentError struct {
	Err  error
	Hint string // what to do about it, as an instruction; may be empty
}

func (e *PermanentError) Error() string { return e.Err.Error() }
func (e *PermanentError) Unwrap() error { return e.Err }

// ErrorHint implements Hinter.
func (e *PermanentError) ErrorHint() string { return e.Hint }

// IsPermanent reports whether err is or wraps a *PermanentError.
func IsPermanent(err error) bool {
	_, ok := errors.AsType[*PermanentError](err)
	return ok
}

// A Hinter is an error that knows what its reader can do about it.
type Hinter interface {
	error
	ErrorHint() string
}

// HintOf returns the outermost hint that is not empty in err and the errors that it
// wraps, or "". Commands print it below the error.
func HintOf(err error) string {
	for err != nil {
		if h, ok := err.(Hinter); ok {
			if hint := h.ErrorHint(); hint != "" {
				return hint
			}
		}
		switch wrapper := err.(type) {
		case interface{ Unwrap() error }:
			err = wrapper.Unwrap()
		case interface{ Unwrap() []error }:
			for _, one := range wrapper.Unwrap() {
				if hint := HintOf(one); hint != "" {
					return hint
				}
			}
			return ""
		default:
			return ""
		}
	}
	return ""
}

// WithHint wraps err so that HintOf returns hint for it. It returns nil when err is nil.
func WithHint(err error, hint string) error {
	if err == nil {
		return nil
	}
	return &hintedError{err, hint}
}

type hintedError struct {
	error
	hint string
}

func (e *hintedError) Unwrap() error     { return e.error }
func (e *hintedError) ErrorHint() string { return e.hint }
