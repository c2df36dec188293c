// Package kafka is a sink that writes documents to a Kafka topic, each a record.
// It gives at least once: when nobody heard whether records were taken, they are
// written again. Within one run of the engine the client's own numbering keeps
// what it retries from doubling.
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
	Topic    string `yaml:"topic,required" help:"the topic"`
	Key      string `yaml:"key" help:"field that becomes the record's key, as a.b.c; records of one key stay in order (default none)"`
	Compress string `yaml:"compress" help:"none, gzip, snappy, lz4 or zstd (default zstd)"`
}

// Kind offers the sink to configurations.
func Kind() sink.Kind {
	return sink.Kind{
		Name:      "kafka",
		Doc:       "Writes documents to a Kafka topic.",
		Guarantee: sink.AtLeastOnce,
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
	config Config
	opts   []kgo.Opt

	mu     sync.Mutex
	client *kgo.Client // nil until the first use
}

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(), "": kgo.ZstdCompression(),
}

// New makes a sink. It does not connect.
func New(env sink.Env, c Config) (*Sink, error) {
	opts, err := c.Options(env.Folder)
	if err != nil {
		return nil, err
	}
	codec, known := codecs[c.Compress]
	if !known {
		return nil, fmt.Errorf("unknown way to compress %q; known: none, gzip, snappy, lz4, zstd", c.Compress)
	}
	opts = append(opts, kgo.DefaultProduceTopic(c.Topic), kgo.ProducerBatchCompression(codec, kgo.NoCompression()),
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.UnknownTopicRetries(1))
	return &Sink{config: c, opts: opts}, nil
}

// Traits implements sink.Sink. The key of a record is a column.
func (s *Sink) Traits() sink.Traits {
	t := sink.Traits{Order: sink.AnyOrder, Check: s.check}
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
			return nil, fmt.Errorf("reach Kafka: %w", err)
		}
		s.client = client
	}
	return s.client, nil
}

// Open implements sink.Sink. It knows of no ranges.
func (s *Sink) Open(context.Context, string) (sink.Writer, event.Ranges, error) {
	client, err := s.connect()
	if err != nil {
		return nil, nil, err
	}
	return &writer{sink: s, client: client}, nil, nil
}

func (s *Sink) check(ctx context.Context) error {
	client, err := s.connect()
	if err = errors.Join(err, ctx.Err()); err != nil {
		return err
	}
	topics, err := kadm.NewClient(client).ListTopics(ctx, s.config.Topic)
	if err == nil {
		err = topics[s.config.Topic].Err
	}
	return s.explain(err)
}

// explain gives an error what it is about, and a hint where a person must act.
func (s *Sink) explain(err error) error {
	if err == nil {
		return nil
	}
	refused, unknown := kafka.Refused(err), errors.Is(err, kerr.UnknownTopicOrPartition)
	err = fmt.Errorf("topic %s: %w", s.config.Topic, err)
	switch {
	case refused:
		return &event.PermanentError{Err: err, Hint: kafka.Hint}
	case unknown:
		return &event.PermanentError{Err: err, Hint: "make the topic, or check its name below the kafka sink"}
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
	sink   *Sink
	client *kgo.Client
	closed atomic.Bool
	memory partial.Written
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
	rows := w.memory.Missing(out)
	records := w.records(out, rows)
	large, err := w.produce(ctx, records)
	if err != nil {
		return err
	}
	var bad []sink.RowError
	for _, i := range large { // a batch on the wire is refused as a whole: one record of it is to blame
		if alone, err := w.produce(ctx, records[i:i+1]); err != nil {
			return err
		} else if len(alone) > 0 {
			bad = append(bad, sink.RowError{Row: rows[i], Err: fmt.Errorf("the topic refuses a record of %d bytes as too large", len(records[i].Value))})
		}
	}
	return w.memory.Record(out, bad)
}

// produce writes records and returns which of them were refused as too large,
// perhaps for what they were batched with.
func (w *writer) produce(ctx context.Context, records []*kgo.Record) (large []int, err error) {
	place := make(map[*kgo.Record]int, len(records))
	for i, r := range records {
		place[r] = i
	}
	for _, result := range w.client.ProduceSync(ctx, records...) { // as they were answered
		switch {
		case result.Err == nil:
		case errors.Is(result.Err, kerr.MessageTooLarge), errors.Is(result.Err, kerr.InvalidRecord):
			large = append(large, place[result.Record])
		case ctx.Err() != nil:
			return nil, ctx.Err()
		default:
			return nil, w.sink.explain(result.Err)
		}
	}
	slices.Sort(large)
	return large, nil
}

// records owns its memory: the client may still read it when a cancelled write
// has given the output back.
func (w *writer) records(out *event.Output, rows []int) []*kgo.Record {
	data := bytes.Clone(out.Data)
	all := make([]*kgo.Record, len(rows))
	for i, row := range rows {
		begin := uint32(0)
		if row > 0 {
			begin = out.Ends[row-1]
		}
		all[i] = &kgo.Record{Value: data[begin:out.Ends[row]], Key: key(out, row)}
	}
	return all
}

// key is the text of the key's column; nil for none or null.
func key(out *event.Output, row int) []byte {
	if out.Columns == nil || len(out.Columns.Vectors) == 0 || out.Columns.Vectors[0].Null[row] != 0 {
		return nil
	}
	return bytes.Clone(out.Columns.Vectors[0].Text(row))
}
