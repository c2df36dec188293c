// Package kafka is a source of the records of a Kafka topic, each a JSON document.
//
// A position is an offset, and a partition is one of the topic's, named by the
// topic's id too, so a topic that was deleted and made again is another. Offsets
// live with the sinks; a consumer group is only told how far they are, for those
// who watch its lag. What a transaction has not committed is not read. A batch
// never spans offsets without a record, as compaction and transactions leave.
//
// A Source and its readers are safe for concurrent use, as source.Source says.
package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/kafka"
	"github.com/perigeedb/perigee/source"
)

// Config are the settings below "kafka".
type Config struct {
	kafka.Config
	Topic string `yaml:"topic,required" help:"the topic"`
	Start string `yaml:"start" help:"where to begin in a partition that no sink has anything of: earliest or latest (default earliest)"`
	Group string `yaml:"group" help:"consumer group that is told how far the sinks are; nothing is read from it"`
}

// Kind offers the source to configurations.
func Kind() source.Kind {
	return source.Kind{
		Name:   "kafka",
		Doc:    "Reads a Kafka topic; offsets live with the sinks.",
		Config: &Config{},
		New: func(env source.Env, decode func(any) error) (source.Source, error) {
			var c Config
			if err := decode(&c); err != nil {
				return nil, err
			}
			return New(env, c)
		},
	}
}

// A Source is one topic.
type Source struct {
	env    source.Env
	config Config
	opts   []kgo.Opt

	mu    sync.Mutex
	admin *kadm.Client // nil until the first use
}

// New makes a source. It does not connect.
func New(env source.Env, c Config) (*Source, error) {
	opts, err := c.Options(env.Folder)
	if err != nil {
		return nil, err
	}
	switch c.Start {
	case "", earliest, latest:
	default:
		return nil, fmt.Errorf("unknown start %q; known: %s, %s", c.Start, earliest, latest)
	}
	return &Source{env: env, config: c, opts: opts}, nil
}

// Where to begin.
const (
	earliest = "earliest"
	latest   = "latest"
)

func (s *Source) client() (*kadm.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.admin == nil {
		client, err := kgo.NewClient(s.opts...)
		if err != nil {
			return nil, fmt.Errorf("reach Kafka: %w", err)
		}
		s.admin = kadm.NewClient(client)
	}
	return s.admin, nil
}

// explain gives an error what it is about, and a hint where a person must act.
func (s *Source) explain(err error) error {
	err = fmt.Errorf("topic %s: %w", s.config.Topic, err)
	if kafka.Refused(err) {
		return &event.PermanentError{Err: err, Hint: kafka.Hint}
	}
	return err
}

// topic returns what the cluster says of the topic.
func (s *Source) topic(ctx context.Context) (kadm.TopicDetail, error) {
	admin, err := s.client()
	if err != nil {
		return kadm.TopicDetail{}, err
	}
	topics, err := admin.ListTopics(ctx, s.config.Topic)
	if err != nil {
		return kadm.TopicDetail{}, s.explain(err)
	}
	topic := topics[s.config.Topic]
	if err := topic.Err; err != nil {
		if errors.Is(err, kerr.UnknownTopicOrPartition) {
			err = fmt.Errorf("it is not there (yet): %w", err)
		}
		return topic, s.explain(err)
	}
	return topic, nil
}

func name(topic kadm.TopicDetail, partition int32) string {
	return fmt.Sprintf("%s/%d@%s", topic.Topic, partition, topic.ID)
}

// Partitions implements source.Source.
func (s *Source) Partitions(ctx context.Context) ([]string, error) {
	topic, err := s.topic(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, p := range topic.Partitions.Sorted() {
		names = append(names, name(topic, p.Partition))
	}
	return names, nil
}

// Traits implements source.Source. Records arrive as long as the topic exists.
func (s *Source) Traits() source.Traits {
	return source.Traits{Growing: true, Bounds: s.allBounds, Check: s.check}
}

func (s *Source) check(ctx context.Context) error {
	_, err := s.topic(ctx)
	return err
}

// Open implements source.Source.
func (s *Source) Open(ctx context.Context, partition string, done event.Ranges) (source.Reader, error) {
	topic, err := s.topic(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range topic.Partitions {
		if name(topic, p.Partition) == partition {
			return s.open(ctx, partition, p.Partition, done)
		}
	}
	return nil, source.ErrMoved
}

func (s *Source) open(ctx context.Context, name string, partition int32, done event.Ranges) (source.Reader, error) {
	bounds, err := s.bounds(ctx, partition)
	if err != nil {
		return nil, err
	}
	if err := s.verify(ctx, name, partition, bounds, done); err != nil {
		return nil, err
	}
	from := bounds.First
	if len(done) == 0 && s.config.Start == latest {
		from = bounds.End()
	}
	r := &reader{source: s, name: name, partition: partition, done: done, next: done.Next(from), end: bounds.End()}
	r.acked.Add(event.Range{Count: from})
	for _, d := range done {
		r.acked.Add(event.Range{First: d.First, Count: d.Count})
	}
	r.client, err = s.consume(partition, r.next)
	return r, err
}

// consume makes a client that reads one partition.
func (s *Source) consume(partition int32, from uint64) (*kgo.Client, error) {
	opts := append(s.opts[:len(s.opts):len(s.opts)],
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
			s.config.Topic: {partition: kgo.NewOffset().At(int64(from))},
		}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxBytes(fetchBytes), kgo.FetchMaxPartitionBytes(fetchBytes), kgo.MaxConcurrentFetches(1),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.KeepRetryableFetchErrors(),
	)
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("read topic %s: %w", s.config.Topic, err)
	}
	return client, nil
}

// fetchBytes are read ahead of what was asked for.
const fetchBytes = 4 << 20

// bounds are the offsets that a partition has now.
func (s *Source) bounds(ctx context.Context, partition int32) (event.Range, error) {
	all, err := s.offsets(ctx)
	if err != nil {
		return event.Range{}, err
	}
	return all.of(partition)
}

func (s *Source) allBounds(ctx context.Context) (map[string]event.Range, error) {
	topic, err := s.topic(ctx)
	if err != nil {
		return nil, err
	}
	all, err := s.offsets(ctx)
	if err != nil {
		return nil, err
	}
	bounds := map[string]event.Range{}
	for _, p := range topic.Partitions {
		if bounds[name(topic, p.Partition)], err = all.of(p.Partition); err != nil {
			return nil, err
		}
	}
	return bounds, nil
}

// offsets are those that the topic begins and ends at now.
type offsets struct {
	source       *Source
	starts, ends kadm.ListedOffsets
}

func (s *Source) offsets(ctx context.Context) (offsets, error) {
	admin, err := s.client()
	if err != nil {
		return offsets{}, err
	}
	starts, err := admin.ListStartOffsets(ctx, s.config.Topic)
	if err != nil {
		return offsets{}, s.explain(err)
	}
	ends, err := admin.ListEndOffsets(ctx, s.config.Topic)
	if err != nil {
		return offsets{}, s.explain(err)
	}
	return offsets{s, starts, ends}, nil
}

func (o offsets) of(partition int32) (event.Range, error) {
	first, hasFirst := o.starts.Lookup(o.source.config.Topic, partition)
	end, hasEnd := o.ends.Lookup(o.source.config.Topic, partition)
	if err := errors.Join(first.Err, end.Err); err != nil || !hasFirst || !hasEnd {
		return event.Range{}, o.source.explain(fmt.Errorf("offsets of partition %d: %w", partition, errors.Join(err, errNoOffsets)))
	}
	return event.Range{First: uint64(first.Offset), Count: uint64(end.Offset - first.Offset)}, nil
}

var errNoOffsets = errors.New("no leader has told them")

// Close implements source.Source.
func (s *Source) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.admin != nil {
		s.admin.Close()
	}
	return nil
}
