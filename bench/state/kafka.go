package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/perigeedb/perigee/internal/testserver"
)

const (
	nameKafka   = "state, Kafka"
	nameStreams = "Kafka Streams"
)

// countingOnly makes no rows.
const countingOnly = `local users = require("nodedb").node("^users")

function main(event)
  users[event.user]:incr()
  return nil
end
`

const (
	topic       = "events"
	topicCopies = 2 // of the events of a list, in the topic
	// The memory that both engines may use for changes that wait: the default of state_memory.
	waitingBytes = 384 << 20
)

// A broker is a Kafka with a topic that has a partition for each processor.
type broker struct {
	*bench
	server *testserver.KafkaServer
	events int
}

// runKafka measures the contestants that count a Kafka topic, and write no rows.
func (b *bench) runKafka(ctx context.Context) (err error) {
	if !b.selected(nameKafka) && !b.selected(nameStreams) {
		return nil
	}
	k := &broker{bench: b, events: topicCopies * b.events}
	// The settings of testserver, which are for a quick start, would slow the broker down.
	k.server, err = testserver.StartKafka(ctx, filepath.Join(b.folder, "kafka"),
		fmt.Sprintf("num.partitions=%d", runtime.NumCPU()), "-XX:TieredStopAtLevel=4", "-Xmx1g")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.server.Stop()) }()
	if err := k.fillTopic(ctx); err != nil {
		return fmt.Errorf("fill a topic: %w", err)
	}
	return b.runRounds(ctx, []contestant{{nameKafka, k.countTopic}, {nameStreams, k.runStreams}})
}

// fillTopic moves the events of a list to the topic. A user is the key of its records.
func (k *broker) fillTopic(ctx context.Context) error {
	if err := k.server.CreateTopic(ctx, topic); err != nil {
		return err
	}
	config, err := k.write("fill.yaml", fmt.Sprintf(`data: %s
http: off
pipelines:
  fill:
    source: {redis: {address: %q, db: %d, list: %s}}
    batch: {events: 5000, bytes: 4MiB}
    sink: {kafka: {brokers: [%q], topic: %s, key: user, compress: none}}
`, dataFolder(k.folder, "fill"), k.redis.Address(), k.few.Options().DB, listName(0), k.server.Address(), topic))
	if err != nil {
		return err
	}
	if err := k.few.FlushDB(ctx).Err(); err != nil {
		return err
	}
	for range topicCopies {
		if err := k.fill(ctx, k.few, load{k.events / topicCopies, fewUsers, 1}); err != nil {
			return err
		}
		run, err := startEngine(ctx, k.program, config, dataFolder(k.folder, "fill"), "kafka")
		if err != nil {
			return err
		}
		for waiting := int64(1); waiting > 0; {
			if waiting, err = left(ctx, k.few, 1); err == nil {
				err = run.sleep(20 * time.Millisecond)
			}
			if err != nil {
				return run.fail(err)
			}
		}
		if err := run.stop(&result{}, k.events); err != nil {
			return err
		}
	}
	return nil
}

// countTopic counts the topic with the engine. A commit has up to 20,000 events, far less than a second
// of them, and waits for the disk.
func (k *broker) countTopic(ctx context.Context) (*result, error) {
	data := dataFolder(k.folder, "count")
	if err := os.RemoveAll(data); err != nil {
		return nil, err
	}
	script, err := k.write("count.lua", countingOnly)
	if err != nil {
		return nil, err
	}
	config, err := k.write("count.yaml", fmt.Sprintf(`data: %s
http: off
pipelines:
  count:
    source: {kafka: {brokers: [%q], topic: %s}}
    batch: {events: 20000, bytes: 8MiB}
    script: %s
    state: {name: users}
    sink: {stdout: {}}
`, data, k.server.Address(), topic, script))
	if err != nil {
		return nil, err
	}
	server := startUsage(k.server.PID())
	run, err := startEngine(ctx, k.program, config, data, "changelog")
	if err != nil {
		return nil, err
	}
	for committed := 0.0; committed < float64(k.events); {
		if err := run.sleep(20 * time.Millisecond); err != nil {
			return nil, run.fail(err)
		}
		if metrics, err := run.readMetrics(); err == nil { // until then it has not begun
			committed = metrics[`perigee_events_committed_total{pipeline="count"}`]
		}
	}
	took := time.Since(run.began)
	r := &result{rate: float64(k.events) / took.Seconds()}
	if err := run.stop(r, k.events); err != nil {
		return nil, err
	}
	r.source = server.perEvent(0, k.events)
	return r, k.checkCounts(ctx, data)
}

// checkCounts checks the sum of all counts in the state.
func (k *broker) checkCounts(ctx context.Context, data string) error {
	folders, err := filepath.Glob(filepath.Join(data, "state", "users", "*"))
	if err != nil {
		return err
	}
	sum := 0
	for _, folder := range folders {
		if info, err := os.Stat(folder); err != nil || !info.IsDir() {
			continue
		}
		out, err := exec.CommandContext(ctx, k.program, "node", "dump", folder, "^users").Output()
		if err != nil {
			return fmt.Errorf("dump the state: %w", err)
		}
		for line := range strings.Lines(string(out)) {
			var count int
			if _, value, found := strings.Cut(strings.TrimSpace(line), ")="); found {
				if _, err := fmt.Sscan(value, &count); err == nil {
					sum += count
				}
			}
		}
	}
	if sum != k.events {
		return fmt.Errorf("the counts of the state are %d together, want %d", sum, k.events)
	}
	return nil
}

// runStreams counts the topic with Kafka Streams, with a thread for each partition. Its time begins when
// its threads have their partitions.
func (k *broker) runStreams(ctx context.Context) (*result, error) {
	server, id := startUsage(k.server.PID()), fmt.Sprintf("count-%d", len(k.results[nameStreams]))
	jars, err := filepath.Abs(k.jars)
	if err != nil {
		return nil, err
	}
	command := exec.CommandContext(ctx, "java", "-Xmx2g", "-XX:+UseParallelGC", "-cp", filepath.Join(jars, "*"), "state/Count.java",
		k.server.Address(), topic, id, filepath.Join(k.folder, "streams"), fmt.Sprint(runtime.NumCPU()), fmt.Sprint(waitingBytes))
	var log bytes.Buffer
	command.Stderr = &log
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("%w; the jars come from tools/setup.sh kafka-streams\n%s", err, &log)
	}
	var seconds float64
	var sum int
	if _, err := fmt.Sscanf(string(out), "counted %f %d", &seconds, &sum); err != nil {
		return nil, fmt.Errorf("it printed %q: %w\n%s", out, err, &log)
	}
	if sum != k.events {
		return nil, fmt.Errorf("its counts are %d together, want %d", sum, k.events)
	}
	state := command.ProcessState
	return &result{
		rate: float64(k.events) / seconds, program: perEvent(state.UserTime()+state.SystemTime(), k.events), source: server.perEvent(0, k.events),
	}, nil
}
