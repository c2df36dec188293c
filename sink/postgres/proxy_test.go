package postgres

import (
	"bytes"
	"testing"

	"github.com/perigeedb/perigee/sink/sinktest"
)

// newProxy returns a proxy before server. The server commits when it has the end of the
// rows: it has had the rest of the transaction before. A transaction without rows, such
// as a compaction, is one query that ends in COMMIT.
func newProxy(t *testing.T, server string) *sinktest.Proxy {
	return sinktest.NewProxy(t, server, func() sinktest.Wire {
		rows := false // follow the query
		return sinktest.Wire{
			Commits: func(packet []byte) bool {
				if packet[0] == 'Q' {
					rows = bytes.Contains(packet, []byte("FROM STDIN"))
				}
				return bytes.HasSuffix(packet, []byte("c\x00\x00\x00\x04")) || !rows && bytes.HasSuffix(packet, []byte("COMMIT\x00"))
			},
			Answered: func(reply []byte) bool {
				return bytes.Contains(reply, []byte("COMMIT")) || bytes.Contains(reply, []byte("ERROR"))
			},
		}
	})
}
