package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/perigeedb/perigee/event"
	client "github.com/perigeedb/perigee/internal/kafka"
	"github.com/perigeedb/perigee/internal/testserver"
	"github.com/perigeedb/perigee/source"
	"github.com/perigeedb/perigee/source/kafka"
	"github.com/perigeedb/perigee/source/sourcetest"
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

// broker returns the address of a real broker, which "make test-kafka" installs.
func broker(t *testing.T) string {
	t.Helper()
	if os.Getenv("PERIGEE_KAFKA_JARS") == "" {
		t.Skip("needs a broker: make test-kafka")
	}
	return shared.Server(t).Address()
}

// A topic belongs to one test.
type topic struct {
	t       *testing.T
	address string
	name    string
	client  *kgo.Client
	admin   *kadm.Client
}

var topics int

func newTopic(t *testing.T, partitions int32) *topic {
	t.Helper()
	topics++
	p := &topic{t: t, address: broker(t), name: fmt.Sprint("topic", topics)}
	var err error
	p.client, err = kgo.NewClient(kgo.SeedBrokers(p.address), kgo.DefaultProduceTopic(p.name),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.client.Close)
	p.admin = kadm.NewClient(p.client)
	p.create(partitions)
	return p
}

func (p *topic) create(partitions int32) {
	p.t.Helper()
	for end := time.Now().Add(10 * time.Second); ; { // deleting takes a moment
		_, err := p.admin.CreateTopic(p.t.Context(), partitions, 1, nil, p.name)
		if err == nil || errors.Is(err, kerr.TopicAlreadyExists) {
			if listed, err := p.admin.ListTopics(p.t.Context(), p.name); err == nil && listed[p.name].Err == nil {
				return
			}
		}
		if time.Now().After(end) {
			p.t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (p *topic) produce(partition int32, docs ...string) {
	p.t.Helper()
	var records []*kgo.Record
	for _, doc := range docs {
		records = append(records, &kgo.Record{Value: []byte(doc), Partition: partition})
	}
	if err := p.client.ProduceSync(p.t.Context(), records...).FirstErr(); err != nil {
		p.t.Fatal(err)
	}
}

func numbered(n int) (docs []string) {
	for i := range n {
		docs = append(docs, fmt.Sprintf(`{"n":%d}`, 100000+i))
	}
	return docs
}

var usual = source.Limits{Events: 64, Bytes: 1 << 20}

func (p *topic) source(t testing.TB, limits source.Limits, change ...func(*kafka.Config)) *kafka.Source {
	t.Helper()
	c := kafka.Config{Config: client.Config{Brokers: []string{p.address}}, Topic: p.name}
	for _, f := range change {
		f(&c)
	}
	s, err := kafka.New(source.Env{Pipeline: "p", Remembered: true, Limits: limits, Log: slog.New(slog.DiscardHandler)}, c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// open opens the first partition.
func (p *topic) open(done event.Ranges, change ...func(*kafka.Config)) (source.Reader, error) {
	p.t.Helper()
	s := p.source(p.t, usual, change...)
	p.t.Cleanup(func() { _ = s.Close() })
	names, err := s.Partitions(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	r, err := s.Open(p.t.Context(), names[0], done)
	if err == nil {
		p.t.Cleanup(func() { _ = r.Close(context.Background()) })
	}
	return r, err
}

func read(t *testing.T, r source.Reader, n int) (docs []string, ranges []event.Range) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for len(docs) < n {
		var b event.Batch
		if err := r.Read(ctx, &b); err != nil {
			t.Fatalf("after %d events: %v", len(docs), err)
		}
		for i := range b.Len() {
			docs = append(docs, string(b.Doc(i)))
		}
		ranges = append(ranges, b.Range)
	}
	return docs, ranges
}

func TestConformance(t *testing.T) {
	broker(t)
	sourcetest.Run(t, func(t *testing.T, n int) sourcetest.Place {
		p := newTopic(t, 1)
		events := numbered(n)
		p.produce(0, events...)
		return sourcetest.Place{
			Events: events,
			Open: func(t *testing.T, limits source.Limits) source.Source {
				return sourcetest.EndAt(p.source(t, limits), func(context.Context) (uint64, error) { return uint64(n), nil })
			},
			Wait: func(t *testing.T, limits source.Limits) source.Source { return p.source(t, limits) },
		}
	})
}

func TestPartitions(t *testing.T) {
	p := newTopic(t, 3)
	p.produce(1, numbered(5)...)
	s := p.source(t, usual)
	defer s.Close()
	names, err := s.Partitions(t.Context())
	if err != nil || len(names) != 3 || !strings.HasPrefix(names[1], p.name+"/1@") {
		t.Fatal(names, err)
	}
	r, err := s.Open(t.Context(), names[1], nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close(t.Context())
	read(t, r, 5)
}

// TestTransactions leaves offsets without records, and records that don't count.
func TestTransactions(t *testing.T) {
	p := newTopic(t, 1)
	w, err := kgo.NewClient(kgo.SeedBrokers(p.address), kgo.DefaultProduceTopic(p.name), kgo.TransactionalID(p.name))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for i, keep := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit} {
		if err := w.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for j := range 3 {
			w.Produce(t.Context(), kgo.StringRecord(fmt.Sprintf(`{"n":%d}`, 10*i+j)), nil)
		}
		if err := w.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := w.EndTransaction(t.Context(), keep); err != nil {
			t.Fatal(err)
		}
	}
	r, err := p.open(nil, func(c *kafka.Config) { c.Group = "watch-" + p.name })
	if err != nil {
		t.Fatal(err)
	}
	got, ranges := read(t, r, 6)
	if fmt.Sprint(got) != `[{"n":0} {"n":1} {"n":2} {"n":20} {"n":21} {"n":22}]` {
		t.Errorf("got %v", got)
	}
	var said event.Ranges
	for _, one := range ranges {
		said = append(said, event.Range{First: one.First, Count: one.Count})
		if err := r.Ack(t.Context(), one); err != nil {
			t.Fatal(err)
		}
	}
	if said.String() != "[0,3) [8,11)" {
		t.Errorf("ranges %v", said)
	}
	_ = r.Close(t.Context())
	told, err := p.admin.FetchOffsets(t.Context(), "watch-"+p.name)
	if at, _ := told.Lookup(p.name, 0); err != nil || at.At != 11 {
		t.Errorf("the group was told %d, %v", at.At, err)
	}
}

func TestStart(t *testing.T) {
	p := newTopic(t, 1)
	p.produce(0, numbered(5)...)
	r, err := p.open(nil, func(c *kafka.Config) { c.Start = "latest" })
	if err != nil {
		t.Fatal(err)
	}
	p.produce(0, `{"n":"later"}`)
	if got, _ := read(t, r, 1); got[0] != `{"n":"later"}` {
		t.Errorf("got %v", got)
	}
}

func TestVerifyDone(t *testing.T) {
	p := newTopic(t, 1)
	p.produce(0, numbered(20)...)
	r, err := p.open(nil)
	if err != nil {
		t.Fatal(err)
	}
	var had event.Ranges
	_, ranges := read(t, r, 20)
	for _, one := range ranges {
		had.Add(one)
	}
	other := append(event.Ranges{}, had...)
	other[0].Fingerprints = append(append([]uint32{}, had[0].Fingerprints[:19]...), 12345)
	var gone kadm.Offsets
	gone.AddOffset(p.name, 0, 15, -1)
	for _, c := range []struct {
		name  string
		done  event.Ranges
		wrong string
	}{
		{"all of it", had, ""},
		{"more than there is", event.Ranges{{Count: 30}}, "it ends at 20"},
		{"another last record", other, "differs from the one"},
		{"less than was removed", event.Ranges{{Count: 10}}, "[10,15)"},
		{"all that was removed but where a transaction ended", event.Ranges{{Count: 10}, {First: 11, Count: 3}}, ""},
	} {
		if strings.Contains(c.name, "removed") {
			if _, err := p.admin.DeleteRecords(t.Context(), gone); err != nil {
				t.Fatal(err)
			}
		}
		var permanent *event.PermanentError
		_, err := p.open(c.done)
		if (err != nil) != (c.wrong != "") || err != nil && (!errors.As(err, &permanent) || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.wrong)
		}
	}
}

func TestRecreatedTopic(t *testing.T) {
	p := newTopic(t, 1)
	s := p.source(t, usual)
	defer s.Close()
	before, err := s.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.admin.DeleteTopics(t.Context(), p.name); err != nil {
		t.Fatal(err)
	}
	p.create(1)
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) { // the broker tells late
		r, err := s.Open(t.Context(), before[0], nil)
		if errors.Is(err, source.ErrMoved) {
			return
		}
		if err == nil {
			_ = r.Close(t.Context())
		}
		if time.Now().After(end) {
			t.Fatalf("got %v", err)
		}
	}
}

// TestBrokerIsKilled has the broker die and come back while a reader waits.
func TestBrokerIsKilled(t *testing.T) {
	broker(t)
	k, err := testserver.StartKafka(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Kill() }) // after the clients are closed
	topics++
	p := &topic{t: t, address: k.Address(), name: fmt.Sprint("topic", topics)}
	if p.client, err = kgo.NewClient(kgo.SeedBrokers(p.address), kgo.DefaultProduceTopic(p.name)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.client.Close)
	p.admin = kadm.NewClient(p.client)
	p.create(1)
	p.produce(0, numbered(100)...)
	r, err := p.open(nil)
	if err != nil {
		t.Fatal(err)
	}
	read(t, r, 100)
	s := p.source(t, usual)
	defer s.Close()
	names, err := s.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Kill(); err != nil {
		t.Fatal(err)
	}
	expectNoOffsets(t, s, names[0], p.address)
	short, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	if err := r.Read(short, new(event.Batch)); err == nil || event.IsPermanent(err) || errors.Is(err, source.ErrMoved) {
		t.Errorf("a read without a broker returned %v", err)
	}
	if err := k.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.produce(0, numbered(50)...)
	var got []string
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for len(got) < 50 {
		var b event.Batch
		if err := r.Read(ctx, &b); err != nil && ctx.Err() != nil {
			t.Fatalf("after %d events: %v", len(got), err)
		}
		for i := range b.Len() {
			got = append(got, string(b.Doc(i)))
		}
	}
	if strings.Join(got, " ") != strings.Join(numbered(50), " ") {
		t.Errorf("after the restart: %v", got)
	}
}

func TestConfig(t *testing.T) {
	brokers := func(all ...string) client.Config { return client.Config{Brokers: all} }
	if _, err := kafka.New(source.Env{}, kafka.Config{Topic: "t", Config: brokers("a", "b:9092")}); err != nil {
		t.Error(err)
	}
	for want, c := range map[string]kafka.Config{
		`unknown start "middle"`: {Topic: "t", Start: "middle"},
		`invalid port "90922"`:   {Topic: "t", Config: brokers("a:9092", "b:90922")},
		"without kafka://":       {Topic: "t", Config: brokers("kafka://a:9092")},
	} {
		if _, err := kafka.New(source.Env{}, c); err == nil || !strings.Contains(err.Error()+event.HintOf(err), want) {
			t.Errorf("%+v: %v, hint %q, want %q in one of them", c, err, event.HintOf(err), want)
		}
	}
}

func TestKind(t *testing.T) { sourcetest.Kind(t, kafka.Kind()) }

// TestOrigins: the reader passes on which rows of another pipeline its records are.
func TestOrigins(t *testing.T) {
	topic := newTopic(t, 1)
	origin := event.Origin{Name: "p/part", Position: 7, Number: 2}
	records := []*kgo.Record{
		{Value: []byte(`{"n":1}`)},
		{Value: []byte(`{"n":2}`), Headers: client.OriginHeaders([]byte(origin.Name), origin)},
		{Value: []byte(`{"n":3}`)},
	}
	if err := topic.client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	s := topic.source(t, usual)
	defer s.Close()
	names, err := s.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if set := s.Traits().KeySet(names[0]); set != topic.name {
		t.Errorf("the key set of %s is %q, want the topic", names[0], set)
	}
	r, err := s.Open(t.Context(), names[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close(t.Context())
	var b event.Batch
	var got []event.Origin
	for read := 0; read < 3; read += b.Len() {
		if err := r.Read(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		got = append(got, b.Origins...)
		got = append(got, make([]event.Origin, b.Len()-len(b.Origins))...)
	}
	if want := []event.Origin{{}, origin, {}}; !slices.Equal(got, want) {
		t.Errorf("the origins are %+v, want %+v", got, want)
	}
}
