// Package kafka is a source of the records of a Kafka topic, each a JSON document or an
// event in another format.
//
// A position is an offset. A partition is one of the topic's; its name contains the
// topic's ID, so that a topic that was deleted and created again has other partitions.
// The sinks commit the offsets. A consumer group can get a copy of them, for tools that
// watch its lag; the source never reads it. The source reads only what transactions
// committed. A batch never spans offsets without a record, which compaction and
// transactions leave.
//
// A Source and its readers are safe for concurrent use, as source.Source says.
package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/kafka"
	"github.com/perigeedb/perigee/source"
	"github.com/perigeedb/perigee/source/format"
)

// Config are the settings below "kafka".
type Config struct {
	kafka.Config
	Topic string `yaml:"topic,required" example:"emails" help:"name of the topic"`
	Start string `yaml:"start" default:"earliest" choices:"earliest,latest" help:"where to start in a partition that no sink has a position of: earliest or latest"`
	Group string `yaml:"group" example:"perigee-emails" help:"consumer group to commit the position to, for tools that watch its lag; it is never read"`
	format.Settings
}

// Kind offers the source to configurations.
func Kind() source.Kind {
	return source.Kind{
		Name:   "kafka",
		Doc:    "Reads a Kafka topic; the sinks commit the offsets.",
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
	format format.Format
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
		return nil, fmt.Errorf("unknown start %q: use %s or %s", c.Start, earliest, latest)
	}
	f, err := format.NewMessages(c.Settings)
	if err != nil {
		return nil, err
	}
	return &Source{env: env, config: c, format: f, opts: opts}, nil
}

// Values of Config.Start.
const (
	earliest = "earliest"
	latest   = "latest"
)

func (s *Source) adminClient() (*kadm.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.admin == nil {
		client, err := kgo.NewClient(s.opts...)
		if err != nil {
			return nil, fmt.Errorf("connect to Kafka: %w", err)
		}
		s.admin = kadm.NewClient(client)
	}
	return s.admin, nil
}

// wrapError adds the topic to an error, and a hint to one that a person must fix.
func (s *Source) wrapError(err error) error {
	err = fmt.Errorf("topic %s: %w", s.config.Topic, err)
	if kafka.IsAuthError(err) {
		return &event.PermanentError{Err: err, Hint: kafka.AuthHint}
	}
	return err
}

// describeTopic returns the topic's ID and partitions.
func (s *Source) describeTopic(ctx context.Context) (kadm.TopicDetail, error) {
	admin, err := s.adminClient()
	if err != nil {
		return kadm.TopicDetail{}, err
	}
	topics, err := admin.ListTopics(ctx, s.config.Topic)
	if err != nil {
		return kadm.TopicDetail{}, s.wrapError(err)
	}
	topic := topics[s.config.Topic]
	if err := topic.Err; err != nil {
		if errors.Is(err, kerr.UnknownTopicOrPartition) {
			err = fmt.Errorf("it does not exist (yet): %w", err)
		}
		return topic, s.wrapError(err)
	}
	return topic, nil
}

func partitionName(topic kadm.TopicDetail, partition int32) string {
	return fmt.Sprintf("%s/%d@%s", topic.Topic, partition, topic.ID)
}

// topicOf returns the topic of a partition, for source.Traits.KeySet.
// The name of a topic has no slash, and an ID may have some.
func topicOf(partition string) string {
	topic, _, _ := strings.Cut(partition, "/")
	return topic
}

// Partitions implements source.Source.
func (s *Source) Partitions(ctx context.Context) ([]string, error) {
	topic, err := s.describeTopic(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, p := range topic.Partitions.Sorted() {
		names = append(names, partitionName(topic, p.Partition))
	}
	return names, nil
}

// Traits implements source.Source. Records arrive as long as the topic exists.
func (s *Source) Traits() source.Traits {
	return source.Traits{Growing: true, Unit: source.UnitBefore("@"), KeySet: topicOf, Bounds: s.bounds, Peek: s.peek, Check: s.check, Format: s.format}
}

// peek reads the records that the topic has, also where a pipeline would start at the latest.
func (s *Source) peek(ctx context.Context, visit func(*event.Batch) error) (err error) {
	c := s.config
	c.Start, c.Group = earliest, ""
	whole, err := New(s.env, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, whole.Close()) }()
	return source.PeekPartitions(ctx, whole, visit)
}

func (s *Source) check(ctx context.Context) error {
	_, err := s.describeTopic(ctx)
	return err
}

// Open implements source.Source.
func (s *Source) Open(ctx context.Context, partition string, done event.Ranges) (source.Reader, error) {
	topic, err := s.describeTopic(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range topic.Partitions {
		if partitionName(topic, p.Partition) == partition {
			return s.newReader(ctx, partition, p.Partition, done)
		}
	}
	return nil, source.ErrMoved
}

func (s *Source) newReader(ctx context.Context, name string, partition int32, done event.Ranges) (source.Reader, error) {
	bounds, err := s.partitionBounds(ctx, partition)
	if err != nil {
		return nil, err
	}
	if err := s.verifyDone(ctx, name, partition, bounds, done); err != nil {
		return nil, err
	}
	from := bounds.First
	if len(done) == 0 && s.config.Start == latest {
		from = bounds.End()
	}
	r := &reader{source: s, name: name, partition: partition, done: done, next: done.Next(from), end: bounds.End(), decoder: s.format.NewDecoder()}
	r.acked.Add(event.Range{Count: from})
	for _, d := range done {
		r.acked.Add(event.Range{First: d.First, Count: d.Count})
	}
	r.client, err = s.newConsumer(partition, r.next)
	return r, err
}

// newConsumer makes a client that reads one partition.
func (s *Source) newConsumer(partition int32, from uint64) (*kgo.Client, error) {
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

// fetchBytes is how much a client prefetches.
const fetchBytes = 4 << 20

// partitionBounds returns the offsets that the partition has now.
func (s *Source) partitionBounds(ctx context.Context, partition int32) (event.Range, error) {
	all, err := s.listOffsets(ctx)
	if err != nil {
		return event.Range{}, err
	}
	return all.rangeOf(partition)
}

func (s *Source) bounds(ctx context.Context) (map[string]event.Range, error) {
	topic, err := s.describeTopic(ctx)
	if err != nil {
		return nil, err
	}
	all, err := s.listOffsets(ctx)
	if err != nil {
		return nil, err
	}
	bounds := map[string]event.Range{}
	for _, p := range topic.Partitions {
		if bounds[partitionName(topic, p.Partition)], err = all.rangeOf(p.Partition); err != nil {
			return nil, err
		}
	}
	return bounds, nil
}

// topicOffsets are the first and the end offsets of all partitions.
type topicOffsets struct {
	source       *Source
	starts, ends kadm.ListedOffsets
}

func (s *Source) listOffsets(ctx context.Context) (topicOffsets, error) {
	admin, err := s.adminClient()
	if err != nil {
		return topicOffsets{}, err
	}
	starts, err := admin.ListStartOffsets(ctx, s.config.Topic)
	if err != nil {
		return topicOffsets{}, s.wrapError(err)
	}
	ends, err := admin.ListEndOffsets(ctx, s.config.Topic)
	if err != nil {
		return topicOffsets{}, s.wrapError(err)
	}
	return topicOffsets{s, starts, ends}, nil
}

func (o topicOffsets) rangeOf(partition int32) (event.Range, error) {
	first, hasFirst := o.starts.Lookup(o.source.config.Topic, partition)
	end, hasEnd := o.ends.Lookup(o.source.config.Topic, partition)
	if err := errors.Join(first.Err, end.Err); err != nil || !hasFirst || !hasEnd {
		return event.Range{}, o.source.wrapError(fmt.Errorf("offsets of partition %d: %w", partition, errors.Join(err, errNoOffsets)))
	}
	return event.Range{First: uint64(first.Offset), Count: uint64(end.Offset - first.Offset)}, nil
}

var errNoOffsets = errors.New("no leader returned them")

// Close implements source.Source.
func (s *Source) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.admin != nil {
		s.admin.Close()
	}
	return nil
}
