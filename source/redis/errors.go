package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/resp"
	"github.com/perigeedb/perigee/source"
)

// A keyError is what happened to one of the keys.
type keyError struct {
	key string
	err error
}

func (e *keyError) Error() string { return fmt.Sprintf("%q: %v", e.key, e.err) }
func (e *keyError) Unwrap() error { return e.err }

// explain says what was being done, and gives the errors that a person must
// mend a hint.
func (s *Source) explain(doing string, err error) error {
	if errors.Is(err, source.ErrMoved) || errors.Is(err, context.Canceled) {
		return err
	}
	wrapped := fmt.Errorf("%s in redis %s: %w", doing, s.server.Address, err)
	if hint := s.hint(err); hint != "" {
		return &event.PermanentError{Err: wrapped, Hint: hint}
	}
	return wrapped
}

// hint is what a person can do about an error; empty when time mends it.
func (s *Source) hint(err error) string {
	var stays *event.PermanentError
	if errors.As(err, &stays) {
		return stays.Hint
	}
	var refused resp.ReplyError
	isRefused := errors.As(err, &refused)
	code := refused.Code()
	switch {
	case isRefused && passes(code):
		return ""
	case errors.As(err, new(*scriptError)):
		return "the Redis script must keep to its contract; see docs/sources.md"
	case !isRefused:
		return ""
	case code == "MOVED" || code == "CROSSSLOT" || code == "ASK":
		return "the server is part of a cluster; connect to the one that has the key, and give all keys of a pipeline one {tag}"
	case code == "NOAUTH" || code == "WRONGPASS" || code == "NOPERM" || strings.HasPrefix(string(refused), "ERR AUTH"):
		return "set username and password to a user that may read and trim the " + s.form.String() + " and run scripts"
	case strings.HasPrefix(string(refused), "ERR DB index"):
		return fmt.Sprintf("the server has no database %d", s.config.DB)
	case strings.Contains(string(refused), "The user executing the script") || strings.Contains(string(refused), "ACL failure"):
		return "the user may not use all the commands that are needed; see docs/sources.md"
	case strings.Contains(string(refused), "WRONGTYPE"):
		var of keyError
		if e := (*keyError)(nil); errors.As(err, &e) {
			of = *e
		}
		return fmt.Sprintf("key %q must be a %s and %s a hash; look with TYPE", of.key, s.form, stateKey(of.key))
	}
	return ""
}

// passes tells whether a refusal is one that time mends.
func passes(code string) bool {
	switch code {
	case "LOADING", "BUSY", "MASTERDOWN", "READONLY", "OOM", "TRYAGAIN", "CLUSTERDOWN", "NOSCRIPT", "UNKILLABLE", "MISCONF":
		return true
	}
	return false
}
