package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/perigeedb/perigee/internal/testserver"
)

// sharedLists is one pipeline over several lists, for workers with a data folder each.
const sharedLists = `
data: ${DATA}
http: off
pipelines:
  shared:
    source: {redis: {address: %q, lists: "shard:*"}}
    sink: {mysql: {address: %q, user: root, database: %s, table: events, create: true, columns: [{name: id, type: int64}]}}
    batch: {events: 50}
    lease: 1s
`

const shards = 4

// TestWorkersOfOnePipeline lets engines share lists. It stops one with SIGSTOP for
// longer than its leases last and lets it go on, and kills another. Every event is
// delivered once, whichever worker read it.
func TestWorkersOfOnePipeline(t *testing.T) {
	t.Parallel()
	m := newMail(t, testserver.Redis(t), testserver.MariaDB(t))
	file := filepath.Join(m.data, "shared.yaml")
	text := fmt.Sprintf(sharedLists, m.redis.Address(), m.maria.Address(), m.name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	pushed := 0
	push := func() {
		for range 500 {
			args := []string{"RPUSH", fmt.Sprintf("shard:%d", pushed/10%shards)}
			for range 10 {
				args = append(args, fmt.Sprintf(`{"id":%d}`, pushed))
				pushed++
			}
			m.do(args...)
		}
	}
	work := func(name string) *process {
		p := runEngine(t, file, "DATA="+filepath.Join(m.data, name))
		p.says("partition open")
		return p
	}
	push()
	one := work("one")
	two := work("two")
	push()
	one.signal(syscall.SIGSTOP)
	push()
	eventually(t, "the remaining worker has all", func() bool { return m.waiting("shard:") == 0 })
	one.signal(syscall.SIGCONT)
	push()
	eventually(t, "both have all", func() bool { return m.waiting("shard:") == 0 })
	two.signal(syscall.SIGKILL)
	push()
	eventually(t, "the one that is left has all", func() bool { return m.waiting("shard:") == 0 })
	if n := strings.Count(one.log.String(), "another worker has taken"); n > shards {
		t.Errorf("workers took partitions from each other %d times", n)
	}
	one.signal(syscall.SIGTERM)
	one.ends(0)
	var rows, ids int
	if err := m.db.QueryRow("SELECT COUNT(*), COUNT(DISTINCT id) FROM events").Scan(&rows, &ids); err != nil {
		t.Fatal(err)
	}
	if rows != pushed || ids != pushed {
		t.Errorf("%d rows of %d events, want %d", rows, ids, pushed)
	}
}

// waiting is how many events are in the shards.
func (m *mail) waiting(prefix string) (n int64) {
	m.t.Helper()
	time.Sleep(50 * time.Millisecond)
	for i := range shards {
		length, err := m.do("LLEN", fmt.Sprint(prefix, i)).AsInt64()
		if err != nil {
			m.t.Fatal(err)
		}
		n += length
	}
	return n
}
