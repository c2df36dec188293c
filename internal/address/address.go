// Package address checks addresses in configurations, so that a misspelt one is found
// before anything connects to it.
package address

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// An addressError implements event.Hinter.
type addressError struct {
	error
	hint string
}

func (e *addressError) Unwrap() error     { return e.error }
func (e *addressError) ErrorHint() string { return e.hint }

func invalid(hint, format string, args ...any) error {
	return &addressError{fmt.Errorf(format, args...), hint}
}

// Validate returns an error unless s is host:port. The host may be empty, which means
// every interface to a listener. It looks nothing up.
func Validate(s string) error {
	if scheme, rest, found := strings.Cut(s, "://"); found {
		return invalid("use host:port, without "+scheme+"://: "+rest, "invalid address %q", s)
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		if inner, ok := err.(*net.AddrError); ok {
			return invalid("use host:port", "invalid address %q: %s", s, inner.Err)
		}
		return invalid("use host:port", "invalid address %q: %w", s, err)
	}
	if strings.ContainsAny(host, " \t/@?#\\") {
		return invalid("use host:port: a host has no space and none of / @ ? #", "invalid address %q: invalid host %q", s, host)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return invalid("use a number up to 65535 after the last colon", "invalid address %q: invalid port %q", s, port)
	}
	return nil
}
