// Package address checks addresses in configurations, so that a misspelt one is found
// before anything connects to it.
package address

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// Validate returns an error unless s is host:port. The host may be empty, which means
// every interface to a listener. It looks nothing up.
func Validate(s string) error {
	if scheme, rest, found := strings.Cut(s, "://"); found {
		return fmt.Errorf("invalid address %q: use host:port, without %s:// (%s)", s, scheme, rest)
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		if inner, ok := err.(*net.AddrError); ok {
			return fmt.Errorf("invalid address %q: %s: use host:port", s, inner.Err)
		}
		return fmt.Errorf("invalid address %q: %w", s, err)
	}
	if strings.ContainsAny(host, " \t/@?#\\") {
		return fmt.Errorf("invalid address %q: invalid host %q", s, host)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("invalid address %q: invalid port %q: use a number up to 65535", s, port)
	}
	return nil
}
