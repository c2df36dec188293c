package kafka_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/perigeedb/perigee/event"
	client "github.com/perigeedb/perigee/internal/kafka"
	"github.com/perigeedb/perigee/internal/testserver"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/kafka"
	"github.com/perigeedb/perigee/sink/sinktest"
)

var shared testserver.SharedKafka

func TestMain(m *testing.M) {
	code := m.Run()
	shared.Close()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// broker returns the address of a real broker; make test-kafka brings one.
func broker(t *testing.T) string {
	t.Helper()
	if os.Getenv("PERIGEE_KAFKA_JARS") == "" {
		t.Skip("needs a broker: make test-kafka")
	}
	return shared.Server(t).Address()
}

var topics int

func newTopic(t *testing.T, address string, settings map[string]*string) string {
	t.Helper()
	topics++
	topic := fmt.Sprint("topic", topics)
	admin := kadm.NewClient(connect(t, address))
	_, err := admin.CreateTopic(t.Context(), 1, 1, settings, topic)
	for end := time.Now().Add(time.Minute); err == nil; time.Sleep(10 * time.Millisecond) { // until it has a leader
		ends, listing := admin.ListEndOffsets(t.Context(), topic)
		if err = listing; err == nil && ends.Error() == nil {
			return topic
		}
		if time.Now().After(end) {
			err = ends.Error()
		}
	}
	t.Fatal(err)
	return ""
}

func connect(t *testing.T, address string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append(opts, kgo.SeedBrokers(address))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// records reads all of a topic.
func records(t *testing.T, address, topic string) (all []*kgo.Record) {
	t.Helper()
	ends, err := kadm.NewClient(connect(t, address)).ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	end, _ := ends.Lookup(topic, 0)
	c := connect(t, address, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for next := int64(0); next < end.Offset; {
		got := c.PollFetches(ctx)
		if err := got.Err(); err != nil {
			t.Fatal(err)
		}
		for _, r := range got.Records() {
			all, next = append(all, r), r.Offset+1
		}
	}
	return all
}

func newSink(t *testing.T, address string, c kafka.Config) *kafka.Sink {
	t.Helper()
	c.Brokers = []string{address}
	s, err := kafka.New(sink.Env{Pipeline: "p"}, c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestConformance(t *testing.T) {
	address := broker(t)
	for _, c := range []kafka.Config{{}, {Key: "name", Compress: "none"}, {Order: "any"}} {
		t.Run(c.Key+c.Order, func(t *testing.T) {
			sinktest.Run(t, func(t *testing.T) sinktest.Place {
				topic := newTopic(t, address, nil) // of one partition
				c.Topic = topic
				return sinktest.Place{
					Guarantee: sink.AtLeastOnce,
					Ordered:   sinktest.IsOrdered(t, newSink(t, address, c), c.Order),
					Sink:      func(t *testing.T, _ string) sink.Sink { return newSink(t, address, c) },
					Rows: func(t *testing.T) (rows []sinktest.Row) {
						for _, r := range records(t, address, topic) {
							var row sinktest.Row
							if err := json.Unmarshal(r.Value, &row); err != nil {
								t.Fatal(err)
							}
							if c.Key != "" && string(r.Key) != row.Name {
								t.Errorf("key %q of %s", r.Key, r.Value)
							}
							rows = append(rows, row)
						}
						return rows
					},
					// Bad is nil: TestLargeRecords has what is promised instead.
				}
			})
		})
	}
}

// TestLargeRecords has a topic refuse one record of a batch.
func TestLargeRecords(t *testing.T) {
	address := broker(t)
	maxBytes := "1000"
	topic := newTopic(t, address, map[string]*string{"max.message.bytes": &maxBytes})
	s := newSink(t, address, kafka.Config{Topic: topic, Compress: "none"})
	defer s.Close()
	w, _, err := s.Open(t.Context(), "part")
	if err != nil {
		t.Fatal(err)
	}
	out := sinktest.Docs(5, `{"id":1}`, `{"id":2,"x":"`+strings.Repeat("x", 2000)+`"}`, `{"id":3}`)
	var refused *sink.RowErrors
	if err := w.Write(t.Context(), out); !errors.As(err, &refused) || len(refused.Rows) != 1 || refused.Rows[0].Row != 1 {
		t.Fatalf("got %v", err)
	}
	out.RemoveRows([]int{1})
	if err := w.Write(t.Context(), out); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range records(t, address, topic) {
		got = append(got, string(r.Value))
	}
	if fmt.Sprint(got) != `[{"id":1} {"id":3}]` {
		t.Errorf("arrived: %v", got)
	}
}

func TestCheck(t *testing.T) {
	address := broker(t)
	var permanent *event.PermanentError
	s := newSink(t, address, kafka.Config{Topic: "absent"})
	defer s.Close()
	if err := s.Traits().Check(t.Context()); !errors.As(err, &permanent) {
		t.Errorf("a topic that is not there: %v", err)
	}
	good := newSink(t, address, kafka.Config{Topic: newTopic(t, address, nil)})
	defer good.Close()
	if err := good.Traits().Check(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestCreate lets two sinks create their topic at once, and write to it.
func TestCreate(t *testing.T) {
	address := broker(t)
	topics++
	topic := fmt.Sprint("created", topics)
	var group sync.WaitGroup
	for i := range 2 {
		group.Go(func() {
			s := newSink(t, address, kafka.Config{Topic: topic, Create: true})
			defer s.Close()
			if err := s.Traits().Check(t.Context()); err != nil {
				t.Errorf("a check: %v", err)
			}
			w, _, err := s.Open(t.Context(), "part")
			if err == nil {
				err = w.Write(t.Context(), sinktest.Docs(0, fmt.Sprintf(`{"id":%d}`, i)))
			}
			if err != nil {
				t.Errorf("sink %d: %v", i, err)
			}
		})
	}
	group.Wait()
	if got := records(t, address, topic); len(got) != 2 {
		t.Errorf("the topic has %d records, want 2", len(got))
	}
}

// closedAddress returns an address of this machine where nothing listens.
func closedAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// TestCheckOfBrokerThatIsAway fails soon, and transiently.
func TestCheckOfBrokerThatIsAway(t *testing.T) {
	address := closedAddress(t)
	s := newSink(t, address, kafka.Config{Topic: "events"})
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err := s.Traits().Check(ctx)
	sinktest.ExpectClass(t, err, sinktest.Transient)
	if ctx.Err() != nil || !strings.Contains(err.Error(), address) {
		t.Errorf("checking returned %v, which does not name %s", err, address)
	}
}

func TestConfig(t *testing.T) {
	for _, c := range []kafka.Config{
		{Topic: "t", Compress: "rar"},
		{Topic: "t", Config: client.Config{User: "u", Mechanism: "x"}},
		{Topic: "t", Config: client.Config{CA: "/nowhere"}},
		{Topic: "t", Order: "no"},
	} {
		if _, err := kafka.New(sink.Env{}, c); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
}

func TestKind(t *testing.T) { sinktest.Kind(t, kafka.Kind()) }

// TestOrigins: records say which row of which pipeline they are, unless lanes write them in any order.
func TestOrigins(t *testing.T) {
	address := broker(t)
	for _, order := range []string{"source", "any"} {
		topic := newTopic(t, address, nil)
		s := newSink(t, address, kafka.Config{Topic: topic, Order: order})
		w, _, err := s.Open(t.Context(), "part@1")
		if err != nil {
			t.Fatal(err)
		}
		out := sinktest.Docs(5, `{"n":1}`, `{"n":2}`, `{"n":3}`)
		out.Partition, out.From, out.Range.Count = "part@1", []uint32{0, 0, 1}, 2
		if err := w.Write(t.Context(), out); err != nil {
			t.Fatal(err)
		}
		var got []event.Origin
		for _, r := range records(t, address, topic) {
			got = append(got, client.OriginOf(r.Headers))
		}
		want := []event.Origin{{Name: "p/part@1", Position: 5}, {Name: "p/part@1", Position: 5, Number: 1}, {Name: "p/part@1", Position: 6}}
		if order == "any" {
			want = make([]event.Origin, 3)
		}
		if !slices.Equal(got, want) {
			t.Errorf("order %s: the origins are %+v, want %+v", order, got, want)
		}
		if err := errors.Join(w.Close(), s.Close()); err != nil {
			t.Error(err)
		}
	}
}
