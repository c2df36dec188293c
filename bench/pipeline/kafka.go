package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/perigeedb/perigee/internal/testserver"
)

const topic = "pepi_topic"

// A broker is a Kafka with all events in a topic of one partition. Every turn reads the
// topic from its beginning.
type broker struct {
	server *testserver.KafkaServer
	events uint64
	to     *mariadb // stores the position of a turn
}

// startBroker starts Kafka and has the engine fill the topic.
func (b *bench) startBroker(ctx context.Context) (*broker, error) {
	server, err := testserver.StartKafka(ctx, filepath.Join(b.folder, "kafka"))
	if err != nil {
		return nil, err
	}
	if err := server.CreateTopic(ctx, topic); err != nil {
		return nil, errors.Join(err, server.Stop())
	}
	config := filepath.Join(b.folder, "fill.yaml")
	text := fmt.Sprintf(`data: %s
http: off
pipelines:
  fill:
    source:
      generate: {events: %d, seed: %d}
    sink:
      kafka: {brokers: [%q], topic: %s, compress: none}
`, filepath.Join(b.folder, "fill-data"), b.events, seed, server.Address(), topic)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, errors.Join(err, server.Stop())
	}
	if out, err := exec.CommandContext(ctx, b.binary, "run", config).CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("fill Kafka: %w\n%s", err, out), server.Stop())
	}
	return &broker{server: server, events: b.events, to: b.mode2}, nil
}

func (k *broker) fill(context.Context, uint64) error { return nil }

// kafkaPollInterval is how often the position is read: rarely enough to cost nothing.
const kafkaPollInterval = 30 * time.Millisecond

// noTable is MariaDB's error before the engine has created its tables.
const noTable = 1146

// remaining returns how many events the sink has not committed.
func (k *broker) remaining(ctx context.Context) (int64, error) {
	time.Sleep(kafkaPollInterval)
	var committed int64
	err := k.to.db.QueryRowContext(ctx, "SELECT COALESCE(SUM(events), 0) FROM perigee_ranges").Scan(&committed)
	if refused := new(mysql.MySQLError); errors.As(err, &refused) && refused.Number == noTable {
		err = nil
	}
	return int64(k.events) - committed, err
}

func (k *broker) pid() int { return k.server.PID() }

func (k *broker) close() { _ = k.server.Stop() }
