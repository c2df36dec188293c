package sqltest

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/sink/internal/sqlsink"
	"github.com/perigeedb/perigee/sink/sinktest"
)

// TestTLSSettings holds which settings lead to an encrypted connection, and which are
// warned of. mayBePlain and encrypted are parameters of the driver that allow a plain
// connection and that refuse one. open makes a sink, which connects to nothing yet.
func TestTLSSettings(t *testing.T, mayBePlain, encrypted map[string]string,
	open func(host string, tls sqlsink.TLS, params map[string]string, log *slog.Logger) error) {
	const local, remote = "127.0.0.1", "db.example.com"
	for _, test := range []struct {
		host   string
		tls    sqlsink.TLS
		params map[string]string
		want   string // in the error
		warned bool
	}{
		{local, "", nil, "", false},
		{"localhost", "", nil, "", false},
		{"[::1]", "", nil, "", false},
		{remote, "", nil, "", true},
		{"10.0.0.1", "", nil, "", true},
		{remote, "", mayBePlain, "", true},
		{remote, "", encrypted, "", false},
		{remote, sqlsink.RequireTLS, nil, "", false},
		{remote, sqlsink.VerifyTLS, nil, "", false},
		{remote, sqlsink.VerifyTLS, encrypted, "are both given", false},
	} {
		var log strings.Builder
		err := open(test.host, test.tls, test.params, slog.New(slog.NewTextHandler(&log, nil)))
		sinktest.ExpectError(t, err, test.want)
		if warned := strings.Contains(log.String(), "may not be encrypted"); warned != test.warned {
			t.Errorf("%+v: warned %v: %s", test, warned, &log)
		}
	}
}
