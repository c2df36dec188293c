package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/perigeedb/perigee/event"
)

type logLevelRequest struct {
	Level *slog.Level `json:"level,omitempty"`
}

// SetLogLevel changes the minimum level of the running engine's log, until it ends. It returns
// the level in effect; a nil level changes nothing.
func (a *Admin) SetLogLevel(ctx context.Context, level *slog.Level) (slog.Level, error) {
	switch {
	case a.remote != nil:
		return call[slog.Level](ctx, a.remote, "log-level", logLevelRequest{level})
	case !a.engine:
		return 0, event.WithHint(fmt.Errorf("%w in %s", ErrNoEngine, a.data), hintOfFolder)
	case a.logLevel == nil:
		return 0, errors.New("the program that embeds the engine does not let its log level be changed")
	case level != nil:
		a.logLevel.Set(*level)
	}
	return a.logLevel.Level(), nil
}
