package main

import (
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/perigeedb/perigee/bench/rounds"
)

func (b *bench) print(w io.Writer) {
	b.printTable(w)
	fmt.Fprintf(w, `settings: batches of %d events and 4 lanes, also of the worker with HINCRBY; %d users, %d with many
Kafka: each side reads a topic of %d partitions, with a key in each record; batches of 20,000 events, a synced changelog;
Kafka Streams: exactly_once_v2, commit.interval.ms 1000, RocksDB, a thread for each partition, statestore.cache.max.bytes %d,
max.poll.records 20000, producer.batch.size 262144, lz4, -Xmx2g, -XX:+UseParallelGC; its time begins when it runs, ours with the process
`, eventsOfBatch, fewUsers, b.manyUsers, runtime.NumCPU(), waitingBytes)
	b.printFigures(w)
}

func (b *bench) printTable(w io.Writer) {
	t := table.NewWriter()
	t.SetOutputMirror(w)
	t.SetStyle(table.StyleLight)
	t.SetTitle("median of %d rounds; CPU in µs by event", b.rounds)
	t.AppendHeader(table.Row{"", "events/s", "CPU: program", "Redis or Kafka", "MariaDB", "commit p50", "p99", "MB", "with file"})
	for _, name := range []string{nameStateless1, nameState1, nameStateless4, nameState4, nameHincrby, nameMany, nameKafka, nameStreams} {
		if len(b.results[name]) == 0 {
			continue
		}
		number := func(format string, value func(*result) float64) string {
			if v := b.median(name, value); v > 0 {
				return fmt.Sprintf(format, v)
			}
			return ""
		}
		t.AppendRow(table.Row{
			name, number("%.0f", func(r *result) float64 { return r.rate }),
			number("%.2f", func(r *result) float64 { return r.program }),
			number("%.2f", func(r *result) float64 { return r.source }),
			number("%.2f", func(r *result) float64 { return r.database }),
			number("%.1f ms", func(r *result) float64 { return milliseconds(r.p50) }),
			number("%.1f ms", func(r *result) float64 { return milliseconds(r.p99) }),
			number("%.0f", func(r *result) float64 { return r.memory }),
			number("%.0f", func(r *result) float64 { return r.resident }),
		})
	}
	t.Render()
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1e3 }

func (b *bench) median(name string, value func(*result) float64) float64 {
	var all []float64
	for _, r := range b.results[name] {
		all = append(all, value(r))
	}
	return rounds.Median(all)
}

func (b *bench) printFigures(w io.Writer) {
	figure := func(name, format string, value float64) {
		if value > 0 {
			fmt.Fprintf(w, "figure %s "+format+"\n", name, value)
		}
	}
	figure("state_vs_stateless_1", "%.2f", b.ratio(nameState1, nameStateless1))
	figure("state_vs_stateless_4", "%.2f", b.ratio(nameState4, nameStateless4))
	figure("state_vs_redis_hincrby", "%.2f", b.ratio(nameState1, nameHincrby))
	figure("state_10m_users_vs_100k", "%.2f", b.ratio(nameMany, nameState1))
	figure("state_vs_kafka_streams", "%.2f", b.ratio(nameKafka, nameStreams))
	figure("note_bytes_per_event", "%.1f", max(b.median(nameState1, noteBytes), b.median(nameState4, noteBytes)))
	figure("state_disk_bytes_per_event", "%.0f", b.median(nameMany, func(r *result) float64 { return r.diskBytes }))
	figure("state_memory_mb", "%.0f", b.median(nameMany, func(r *result) float64 { return r.memory }))
	figure("state_commit_p50_ms", "%.1f", b.median(nameState1, func(r *result) float64 { return milliseconds(r.p50) }))
	figure("state_commit_p99_ms", "%.1f", b.median(nameState1, func(r *result) float64 { return milliseconds(r.p99) }))
}

func noteBytes(r *result) float64 { return r.noteBytes }

// ratio returns how many times faster one contestant is than another, as the median over the rounds.
func (b *bench) ratio(of, to string) float64 {
	var ratios []float64
	for i := range min(len(b.results[of]), len(b.results[to])) {
		ratios = append(ratios, b.results[of][i].rate/b.results[to][i].rate)
	}
	return rounds.Median(ratios)
}
