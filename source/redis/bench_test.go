package redis_test

import (
	"context"
	"errors"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/testserver"
	"github.com/perigeedb/perigee/source"
	"github.com/perigeedb/perigee/source/generate"
	"github.com/perigeedb/perigee/source/redis"
)

// BenchmarkRead reads, acknowledges and trims. cpu-ns/op counts this process alone.
func BenchmarkRead(b *testing.B) {
	for _, f := range forms() {
		b.Run(f.name, func(b *testing.B) { read(b, f) })
	}
}

func read(b *testing.B, f keyKind) {
	server := testserver.Redis(b)
	fill(b, f, server, b.N)
	s, err := redis.New(source.Env{Pipeline: "mails", Limits: source.Limits{Events: 1000, Bytes: 1 << 20}}, f.on(server))
	if err != nil {
		b.Fatal(err)
	}
	names, err := s.Partitions(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	r, err := s.Open(b.Context(), names[0], nil)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	before := processTime()
	var batch event.Batch
	for {
		err := r.Read(b.Context(), &batch)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			b.Fatal(err)
		}
		if err := r.Ack(b.Context(), batch.Range); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(processTime()-before)/float64(b.N), "cpu-ns/op")
	if err := r.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
}

func fill(b *testing.B, f keyKind, server *testserver.RedisServer, events int) {
	b.Helper()
	client := connect(b, server)
	var all rueidis.Commands
	for i := range events {
		all = append(all, f.command(client, listQueue, string(generate.Append(nil, 1, uint64(i)))))
		if len(all) < 1000 && i < events-1 {
			continue
		}
		for _, r := range client.DoMulti(context.Background(), all...) {
			if err := r.Error(); err != nil {
				b.Fatal(err)
			}
		}
		all = all[:0]
	}
}

// processTime returns the processor time that this process has used.
func processTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
