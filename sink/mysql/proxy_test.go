package mysql

import (
	"bytes"
	"testing"

	"github.com/perigeedb/perigee/sink/sinktest"
)

const comBulk = 0xfa

// newProxy returns a proxy before server. The server commits when it has a packet that ends
// in COMMIT. Arrays count as commits too, so that a fault can hit them: it loses more.
func newProxy(t *testing.T, server string) *sinktest.Proxy {
	return sinktest.NewProxy(t, server, func() sinktest.Wire {
		return sinktest.Wire{
			Commits: func(packet []byte) bool {
				return len(packet) > 4 && packet[4] == comBulk || bytes.HasSuffix(packet, []byte("COMMIT"))
			},
			Answered: func([]byte) bool { return true },
		}
	})
}
