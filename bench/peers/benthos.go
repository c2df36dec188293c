package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	_ "github.com/redpanda-data/benthos/v4/public/components/pure" // its processors
	"github.com/redpanda-data/benthos/v4/public/service"
)

// benthosConfig is the pipeline. Threads and writes in flight are as many as ours has lanes, and a
// batch has as many events.
const benthosConfig = `
input:
  email_list: {address: %q, list: %s, count: %d, keep: %t}
pipeline:
  threads: %d
  processors:
    - mapping: |
        let at = this.email.split("@")
        let words = this.campaign.split("-")
        root = if this.event_name == "spam" || $at.length() < 2 { deleted() } else {
          {
            "id": this.id, "event_name": this.event_name, "email": this.email, "domain": $at.index(1),
            "topic": $words.slice(0, -1).join("-"), "campaign_number": $words.index(-1).number(),
            "time": this.time, "url": this.url
          }
        }
output:
  email_table: {dsn: %q, max_in_flight: %d}
`

// runBenthos drains a list with Benthos, and returns when it is empty.
func runBenthos(ctx context.Context, redisAddress, dsn string, keep bool) error {
	env := service.NewEnvironment()
	text := func(name string) *service.ConfigField { return service.NewStringField(name) }
	number := func(name string) *service.ConfigField { return service.NewIntField(name) }
	err := errors.Join(
		env.RegisterBatchInput("email_list", service.NewConfigSpec().Fields(text("address"), text("list"), number("count"), service.NewBoolField("keep")), newListInput),
		env.RegisterBatchOutput("email_table", service.NewConfigSpec().Fields(text("dsn"), number("max_in_flight")), newTableOutput))
	if err != nil {
		return err
	}
	builder := env.NewStreamBuilder()
	if err := errors.Join(
		builder.SetYAML(fmt.Sprintf(benthosConfig, redisAddress, list, batchEvents, keep, lanes, dsn, lanes)),
		builder.SetLoggerYAML("level: ERROR"),
	); err != nil {
		return err
	}
	stream, err := builder.Build()
	if err != nil {
		return err
	}
	return stream.Run(ctx)
}

// A listInput reads batches from a list. The input for lists of Redpanda Connect pops one event at a
// time; like it, this one has no place to return events to after a crash, unless it keeps them: then it
// removes a batch once that and those before it are acknowledged, and a crash doubles events instead.
type listInput struct {
	client *redis.Client
	list   string
	count  int
	keep   bool

	mu      sync.Mutex
	read    int64             // events of the list that were read, with keep
	batches []*unacknowledged // those, in order
}

// An unacknowledged batch is in the list still.
type unacknowledged struct {
	events int64
	done   bool
}

func newListInput(c *service.ParsedConfig, _ *service.Resources) (service.BatchInput, error) {
	address, err1 := c.FieldString("address")
	name, err2 := c.FieldString("list")
	count, err3 := c.FieldInt("count")
	keep, err4 := c.FieldBool("keep")
	in := &listInput{client: redis.NewClient(&redis.Options{Addr: address}), list: name, count: count, keep: keep}
	return service.AutoRetryNacksBatched(in), errors.Join(err1, err2, err3, err4)
}

func (in *listInput) Connect(ctx context.Context) error { return in.client.Ping(ctx).Err() }

func (in *listInput) ReadBatch(ctx context.Context) (service.MessageBatch, service.AckFunc, error) {
	all, acknowledge, err := in.next(ctx)
	if errors.Is(err, redis.Nil) || err == nil && len(all) == 0 {
		return nil, nil, service.ErrEndOfInput
	}
	if err != nil {
		return nil, nil, err
	}
	batch := make(service.MessageBatch, len(all))
	for i, doc := range all {
		batch[i] = service.NewMessage([]byte(doc))
	}
	return batch, acknowledge, nil
}

// next returns the next events.
func (in *listInput) next(ctx context.Context) ([]string, service.AckFunc, error) {
	if !in.keep {
		all, err := in.client.LPopCount(ctx, in.list, in.count).Result()
		return all, func(context.Context, error) error { return nil }, err
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	all, err := in.client.LRange(ctx, in.list, in.read, in.read+int64(in.count)-1).Result()
	batch := &unacknowledged{events: int64(len(all))}
	in.read += batch.events
	in.batches = append(in.batches, batch)
	return all, func(ctx context.Context, _ error) error { return in.remove(ctx, batch) }, err
}

// remove removes the batches at the head of the list that are acknowledged.
func (in *listInput) remove(ctx context.Context, batch *unacknowledged) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	batch.done = true
	var done int64
	for len(in.batches) > 0 && in.batches[0].done {
		done += in.batches[0].events
		in.batches = in.batches[1:]
	}
	if done == 0 {
		return nil
	}
	in.read -= done
	return in.client.LTrim(ctx, in.list, done, -1).Err()
}

func (in *listInput) Close(context.Context) error { return in.client.Close() }

// A tableOutput inserts a batch with one statement.
type tableOutput struct{ db *sql.DB }

func newTableOutput(c *service.ParsedConfig, _ *service.Resources) (service.BatchOutput, service.BatchPolicy, int, error) {
	dsn, err1 := c.FieldString("dsn")
	inFlight, err2 := c.FieldInt("max_in_flight")
	db, err3 := openDB(dsn, inFlight)
	return &tableOutput{db}, service.BatchPolicy{}, inFlight, errors.Join(err1, err2, err3)
}

func (out *tableOutput) Connect(ctx context.Context) error { return out.db.PingContext(ctx) }

func (out *tableOutput) WriteBatch(ctx context.Context, batch service.MessageBatch) error {
	values := make([]any, 0, len(batch)*len(columns))
	for _, m := range batch {
		structured, err := m.AsStructured()
		if err != nil {
			return err
		}
		row, ok := structured.(map[string]any)
		if !ok {
			return fmt.Errorf("a row is %T", structured)
		}
		for _, column := range columns {
			value := row[column]
			if column == "time" {
				text, _ := value.(string)
				if value, err = parseTime(text); err != nil {
					return err
				}
			}
			if n, ok := value.(fmt.Stringer); ok { // json.Number
				if value, err = strconv.ParseInt(n.String(), 10, 64); err != nil {
					return err
				}
			}
			values = append(values, value)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return insert(ctx, out.db, values)
}

func (out *tableOutput) Close(context.Context) error { return out.db.Close() }
