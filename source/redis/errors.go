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

// A keyError says which key an error is about.
type keyError struct {
	key string
	err error
}

func (e *keyError) Error() string { return fmt.Sprintf("%q: %v", e.key, e.err) }
func (e *keyError) Unwrap() error { return e.err }

// wrapError adds what was being done to an error, and a hint to one that a person must
// fix.
func (s *Source) wrapError(doing string, err error) error {
	if errors.Is(err, source.ErrMoved) || errors.Is(err, context.Canceled) {
		return err
	}
	wrapped := fmt.Errorf("redis %s: %s: %w", s.server.Address, doing, err)
	if hint := s.hint(err); hint != "" {
		return &event.PermanentError{Err: wrapped, Hint: hint}
	}
	return wrapped
}

// hint returns what a person can do about an error, or "" when retrying may help.
func (s *Source) hint(err error) string {
	var permanent *event.PermanentError
	if errors.As(err, &permanent) {
		return permanent.Hint
	}
	var reply resp.ReplyError
	isReply := errors.As(err, &reply)
	code := reply.Code()
	switch {
	case isReply && isTransient(code):
		return ""
	case errors.As(err, new(*scriptError)):
		return "change the Redis script; docs/reference/sources.md says what it must return"
	case !isReply:
		return ""
	case code == "OLDREDIS":
		return streamsHint
	case code == "MOVED" || code == "CROSSSLOT" || code == "ASK":
		return "the server is part of a cluster: connect to the node that has the key, and give all keys of a pipeline the same {tag}"
	case code == "NOAUTH" || code == "WRONGPASS" || code == "NOPERM" || strings.HasPrefix(string(reply), "ERR AUTH"):
		return "set username and password to a user that may read and trim the " + s.kind.String() + " and run scripts"
	case strings.HasPrefix(string(reply), "ERR DB index"):
		return fmt.Sprintf("the server has no database %d", s.config.DB)
	case strings.Contains(string(reply), "The user executing the script") || strings.Contains(string(reply), "ACL failure"):
		return "the user lacks permission for some commands; docs/reference/sources.md lists them"
	case strings.Contains(string(reply), "WRONGTYPE"):
		var of keyError
		if e := (*keyError)(nil); errors.As(err, &e) {
			of = *e
		}
		return fmt.Sprintf("key %q must be a %s, and %s a hash: compare with TYPE", of.key, s.kind, stateKey(of.key))
	}
	return ""
}

// isTransient reports whether retrying may help against an error reply with this code.
func isTransient(code string) bool {
	switch code {
	case "LOADING", "BUSY", "MASTERDOWN", "READONLY", "OOM", "TRYAGAIN", "CLUSTERDOWN", "NOSCRIPT", "UNKILLABLE", "MISCONF":
		return true
	}
	return false
}
