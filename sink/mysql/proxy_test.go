package mysql

import (
	"bytes"
	"testing"

	"github.com/perigeedb/perigee/sink/sinktest"
)

const comBulk = 0xfa

// newProxy stands before server. The server commits when it has a packet that ends
// in COMMIT or, where that loads, the end of what is loaded: an empty packet.
// Arrays are taken for a commit too, so that a fault can meet them: it loses more.
func newProxy(t *testing.T, server string) *sinktest.Proxy {
	return sinktest.NewProxy(t, server, func() sinktest.Wire {
		loading := false
		return sinktest.Wire{
			Commits: func(packet []byte) bool {
				n := len(packet)
				switch {
				case n > 4 && packet[4] == comBulk:
					return true
				case bytes.Contains(packet, []byte("LOAD DATA")):
					loading = true
				case loading && n >= 4 && bytes.Equal(packet[n-4:n-1], make([]byte, 3)):
					loading = false
					return true
				}
				return !loading && bytes.HasSuffix(packet, []byte("COMMIT"))
			},
			Answered: func([]byte) bool { return true },
		}
	})
}
