package mysql

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/sinktest"
)

// TestVolatileServer: a server that may lose what it has committed is named in the log.
func TestVolatileServer(t *testing.T) {
	for setting, warned := range map[string]bool{"0": true, "1": false, "2": true} {
		t.Run(setting, func(t *testing.T) {
			g := newTarget(t, named(20)...)
			g.exec("SET GLOBAL innodb_flush_log_at_trx_commit = " + setting)
			defer g.exec("SET GLOBAL innodb_flush_log_at_trx_commit = 0")
			var log strings.Builder
			s, err := New(sink.Env{Pipeline: "p", Log: slog.New(slog.NewTextHandler(&log, nil))}, g.config)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			w, _, err := s.Open(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			sinktest.ExpectClass(t, w.Write(t.Context(), span(w.(writer), 0, 1)), sinktest.Success)
			if strings.Contains(log.String(), "innodb_flush_log_at_trx_commit="+setting) != warned {
				t.Errorf("with %s the log has\n%s", setting, log.String())
			}
		})
	}
}
