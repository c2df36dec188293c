package redis_test

import (
	"context"
	"errors"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/private"
	"github.com/perigeedb/perigee/source"
	"github.com/perigeedb/perigee/source/generate"
	"github.com/perigeedb/perigee/source/redis"
)

// BenchmarkRead reads, acknowledges and trims; cpu-ns/op is of this process alone.
func BenchmarkRead(b *testing.B) {
	server := private.Redis(b)
	fillList(b, server, b.N)
	s, err := redis.New(source.Env{Pipeline: "mails", Limits: source.Limits{Events: 1000, Bytes: 1 << 20}},
		redis.Config{Address: server.Address(), List: list, UntilEmpty: true})
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

func fillList(b *testing.B, server *private.RedisServer, events int) {
	b.Helper()
	client := connect(b, server)
	for i := 0; i < events; {
		push := client.B().Rpush().Key(list).Element()
		for range 1000 {
			if i < events {
				push = push.Element(string(generate.Append(nil, 1, uint64(i))))
				i++
			}
		}
		if err := client.Do(context.Background(), push.Build()).Error(); err != nil {
			b.Fatal(err)
		}
	}
}

// processTime is what this process has used of the processors.
func processTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
