package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/resp"
	"github.com/perigeedb/perigee/sink"
)

// wrapError says what failed and where, and makes the errors permanent that a person
// must fix.
func (s *Sink) wrapError(doing string, err error) error {
	if err == nil || errors.Is(err, sink.ErrFenced) || errors.Is(err, context.Canceled) || errors.As(err, new(*sink.RowErrors)) {
		return err
	}
	wrapped := fmt.Errorf("%s in redis %s: %w", doing, s.server.Address, err)
	if hint := s.hint(err); hint != "" {
		return &event.PermanentError{Err: wrapped, Hint: hint}
	}
	return wrapped
}

// hint says what a person can do about an error; empty when retrying may fix it.
func (s *Sink) hint(err error) string {
	if stays, ok := errors.AsType[*event.PermanentError](err); ok {
		return stays.Hint
	}
	rejected, ok := errors.AsType[resp.ReplyError](err)
	if !ok {
		return ""
	}
	text := string(rejected)
	switch code := rejected.Code(); {
	case code == "NOAUTH" || code == "WRONGPASS" || strings.HasPrefix(text, "ERR AUTH"):
		return "set username and password to a user that may write"
	case code == "NOPERM" || strings.Contains(text, "ACL failure") || strings.Contains(text, "The user executing the script"):
		return "grant the user what docs/reference/sinks.md lists"
	case code == "MOVED" || code == "CROSSSLOT" || code == "ASK":
		return "use a server that is not part of a cluster: rows and positions must be on one server"
	case strings.Contains(text, "WRONGTYPE"):
		return "another program has written a key under perigee:; look with TYPE"
	case strings.HasPrefix(text, "ERR DB index"):
		return fmt.Sprintf("the server has no database %d", s.config.DB)
	}
	return ""
}

func (s *Sink) wrongType(key, have string) error {
	return &event.PermanentError{Err: fmt.Errorf("%q is a %s, not a %s", key, have, s.kind), Hint: "name another key, or rename that one"}
}
