// Package kafka is a sink that writes documents to a Kafka topic, each as a record.
// It delivers at least once: unacknowledged records are written again. Within one
// run of the engine, records that the client itself retries are not duplicated: its
// producer is idempotent.
//
// A Sink and its writers are safe for concurrent use.
package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/kafka"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/internal/partial"
)

// Config are the settings below "kafka".
type Config struct {
	kafka.Config
	Topic    string `yaml:"topic,required" example:"emails" help:"topic to write to"`
	Create   bool   `yaml:"create" help:"create the topic if it does not exist, with the partitions and replicas that the broker gives new topics"`
	Key      string `yaml:"key" default:"(none)" example:"user.id" help:"field that becomes the record's key, as a.b.c; records of one key go to one partition of the topic"`
	Compress string `yaml:"compress" default:"zstd" choices:"none,gzip,snappy,lz4,zstd" help:"compression: none, gzip, snappy, lz4 or zstd"`
	Order    string `yaml:"order" default:"source" choices:"source,any" help:"order of records in a partition of the topic: source, or any, which lets lanes write without waiting for each other"`
}

// Kind offers the sink to configurations.
func Kind() sink.Kind {
	return sink.Kind{
		Name:      "kafka",
		Doc:       "Writes documents to a Kafka topic.",
		Guarantee: sink.AtLeastOnce,
		Place:     &sink.Place{Keys: []string{"topic"}, Identity: func(_ sink.Env, topic string) (string, error) { return topic, nil }},
		Config:    &Config{},
		New: func(env sink.Env, decode func(any) error) (sink.Sink, error) {
			var c Config
			if err := decode(&c); err != nil {
				return nil, err
			}
			return New(env, c)
		},
	}
}

// A Sink is one topic.
type Sink struct {
	config   Config
	pipeline string
	order    sink.Order
	opts     []kgo.Opt

	mu     sync.Mutex
	client *kgo.Client // nil until the first use
}

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(), "": kgo.ZstdCompression(),
}

// deliveryTimeout is how long a record may wait for its acknowledgement once the client has it:
// as long as in Kafka's own clients, so that a large output gets through over a slow link.
// After it, or when a write is cancelled, the client also gives up records that the broker may
// have: the pipeline writes them again. By default the client waits for their broker forever,
// even in a cancelled write.
var deliveryTimeout = 2 * time.Minute

// New makes a sink. It does not connect.
func New(env sink.Env, c Config) (*Sink, error) {
	opts, err := c.Options(env.Folder)
	if err != nil {
		return nil, err
	}
	codec, known := codecs[c.Compress]
	if !known {
		return nil, fmt.Errorf("unknown compress %q: use none, gzip, snappy, lz4 or zstd", c.Compress)
	}
	order, err := sink.ParseOrder(c.Order)
	if err != nil {
		return nil, err
	}
	opts = append(opts, kgo.DefaultProduceTopic(c.Topic), kgo.ProducerBatchCompression(codec, kgo.NoCompression()),
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.UnknownTopicRetries(1),
		kgo.RecordDeliveryTimeout(deliveryTimeout), kgo.AllowIdempotentProduceCancellation())
	return &Sink{config: c, pipeline: env.Pipeline, order: order, opts: opts}, nil
}

// Traits implements sink.Sink. The key of a record is a column.
func (s *Sink) Traits() sink.Traits {
	t := sink.Traits{Order: s.order, Check: s.check}
	if s.config.Key != "" {
		t.Columns = []event.Column{{Name: s.config.Key, Path: strings.Split(s.config.Key, "."), Type: event.String}}
	}
	return t
}

func (s *Sink) connect() (*kgo.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == nil {
		client, err := kgo.NewClient(s.opts...)
		if err != nil {
			return nil, fmt.Errorf("make the Kafka client: %w", err)
		}
		s.client = client
	}
	return s.client, nil
}

// Open implements sink.Sink. It returns no ranges.
func (s *Sink) Open(ctx context.Context, _ string) (sink.Writer, event.Ranges, error) {
	client, err := s.connect()
	if err == nil && s.config.Create {
		err = s.createTopic(ctx, client)
	}
	if err != nil {
		return nil, nil, err
	}
	return &writer{sink: s, client: client}, nil, nil
}

// createTopic creates the topic if it does not exist. It asks first, because an account that may
// write to a topic is often not allowed to create one.
func (s *Sink) createTopic(ctx context.Context, client *kgo.Client) error {
	err := s.findTopic(ctx, client)
	if !errors.Is(err, kerr.UnknownTopicOrPartition) {
		return s.wrapError(err)
	}
	_, err = kadm.NewClient(client).CreateTopic(ctx, -1, -1, nil, s.config.Topic)
	if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) { // another worker may be quicker
		return s.wrapError(fmt.Errorf("create it: %w", err))
	}
	for ctx.Err() == nil { // until the broker lists it
		if err = s.findTopic(ctx, client); !errors.Is(err, kerr.UnknownTopicOrPartition) {
			return s.wrapError(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return ctx.Err()
}

// findTopic returns the broker's error about the topic.
func (s *Sink) findTopic(ctx context.Context, client *kgo.Client) error {
	topics, err := kadm.NewClient(client).ListTopics(ctx, s.config.Topic)
	if err == nil {
		err = topics[s.config.Topic].Err
	}
	return err
}

func (s *Sink) check(ctx context.Context) error {
	client, err := s.connect()
	if err = errors.Join(err, ctx.Err()); err != nil {
		return err
	}
	err = s.findTopic(ctx, client)
	if s.config.Create && errors.Is(err, kerr.UnknownTopicOrPartition) {
		return nil
	}
	return s.wrapError(err)
}

// wrapError names the topic in an error, and makes it permanent where a person must
// act.
func (s *Sink) wrapError(err error) error {
	if err == nil {
		return nil
	}
	rejected, unknown := kafka.IsAuthError(err), errors.Is(err, kerr.UnknownTopicOrPartition)
	err = fmt.Errorf("topic %s: %w", s.config.Topic, err)
	switch {
	case rejected:
		return &event.PermanentError{Err: err, Hint: kafka.AuthHint}
	case unknown:
		return &event.PermanentError{Err: err, Hint: "set create: true below the kafka sink to create the topic, or check its name"}
	}
	return err
}

// Close implements sink.Sink.
func (s *Sink) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != nil {
		s.client.Close()
	}
	return nil
}

type writer struct {
	sink    *Sink
	client  *kgo.Client
	closed  atomic.Bool
	written partial.Written
}

// Verify implements sink.Writer. Records are not read back.
func (w *writer) Verify(context.Context) error { return nil }

func (w *writer) Close() error {
	w.closed.Store(true)
	return nil
}

// Write implements sink.Writer.
func (w *writer) Write(ctx context.Context, out *event.Output) error {
	if w.closed.Load() {
		return errors.New("write records: the writer is closed")
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	rows := w.written.Missing(out)
	records := w.records(out, rows)
	tooLarge, err := w.produce(ctx, records)
	if err != nil {
		return err
	}
	// The broker rejects a batch of the client as a whole, though only one of its
	// records may be too large.
	var rejected []sink.RowError
	for _, i := range tooLarge {
		if again, err := w.produce(ctx, records[i:i+1]); err != nil {
			return err
		} else if len(again) > 0 {
			rejected = append(rejected, sink.RowError{Row: rows[i], Err: fmt.Errorf("the topic rejects a record of %d bytes as too large", len(records[i].Value))})
		}
	}
	return w.written.Record(out, rejected)
}

// produce writes records and returns the indexes of those that the broker rejected
// as too large, alone or with the rest of their batch.
func (w *writer) produce(ctx context.Context, records []*kgo.Record) (tooLarge []int, err error) {
	index := make(map[*kgo.Record]int, len(records))
	for i, r := range records {
		index[r] = i
	}
	for _, result := range w.client.ProduceSync(ctx, records...) { // in the order of the answers
		switch {
		case result.Err == nil:
		case errors.Is(result.Err, kerr.MessageTooLarge), errors.Is(result.Err, kerr.InvalidRecord):
			tooLarge = append(tooLarge, index[result.Record])
		case ctx.Err() != nil:
			return nil, ctx.Err()
		default:
			return nil, w.sink.wrapError(result.Err)
		}
	}
	slices.Sort(tooLarge)
	return tooLarge, nil
}

// records makes a record of each row. They do not refer to the memory of out: the
// client may still read them after a cancelled write has returned.
func (w *writer) records(out *event.Output, rows []int) []*kgo.Record {
	data := bytes.Clone(out.Data)
	all := make([]*kgo.Record, len(rows))
	origin := []byte(w.sink.pipeline + "/" + out.Partition)
	for i, row := range rows {
		begin := uint32(0)
		if row > 0 {
			begin = out.Ends[row-1]
		}
		all[i] = &kgo.Record{Value: data[begin:out.Ends[row]], Key: recordKey(out, row)}
		if w.sink.order != sink.AnyOrder {
			all[i].Headers = kafka.OriginHeaders(origin, event.Origin{Position: out.Position(row), Number: out.RowNumber(row, nil)})
		}
	}
	return all
}

// recordKey is the text of the key's column; nil for none or null.
func recordKey(out *event.Output, row int) []byte {
	if out.Columns == nil || len(out.Columns.Vectors) == 0 || out.Columns.Vectors[0].Null[row] != 0 {
		return nil
	}
	return bytes.Clone(out.Columns.Vectors[0].Text(row))
}
