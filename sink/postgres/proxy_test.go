package postgres

import (
	"bytes"
	"testing"

	"github.com/perigeedb/perigee/sink/sinktest"
)

// newProxy stands before server. The server commits when it has the end of the
// rows: it has had the rest of the transaction before.
func newProxy(t *testing.T, server string) *sinktest.Proxy {
	return sinktest.NewProxy(t, server, func() sinktest.Wire {
		return sinktest.Wire{
			Commits: func(packet []byte) bool { return bytes.HasSuffix(packet, []byte("c\x00\x00\x00\x04")) },
			Answered: func(reply []byte) bool {
				return bytes.Contains(reply, []byte("COMMIT")) || bytes.Contains(reply, []byte("ERROR"))
			},
		}
	})
}
