package postgres

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/sink"
)

// TestVolatileServer: a server that may lose what it has committed is named in the log.
func TestVolatileServer(t *testing.T) {
	g := newPlace(t, named(20)...)
	for setting, warned := range map[string]bool{"on": false, "off": true} {
		g.text("ALTER ROLE postgres SET synchronous_commit = " + setting)
		var log strings.Builder
		s, err := New(sink.Env{Pipeline: "p", Log: slog.New(slog.NewTextHandler(&log, nil))}, g.config)
		if err != nil {
			t.Fatal(err)
		}
		w, _, err := s.Open(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = w.Close(), s.Close()
		if strings.Contains(log.String(), "synchronous_commit=off") != warned || !strings.Contains(log.String(), "fsync=off") {
			t.Errorf("with synchronous_commit = %s and fsync = off the log has\n%s", setting, log.String())
		}
	}
	g.text("ALTER ROLE postgres RESET synchronous_commit")
}
