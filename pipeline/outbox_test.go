package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/pipeline/outbox"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/source"
)

// severalSinks returns a harness that writes to all sinks, which are named by number.
func severalSinks(t *testing.T, src source.Source, s script.Script, tables ...*memorySink) harness {
	t.Helper()
	r := newHarness(t, src, s, tables[0])
	store, err := outbox.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	r.config.Outbox = store
	r.config.Sinks = nil
	for i, to := range tables {
		r.config.Sinks = append(r.config.Sinks, Sink{Name: fmt.Sprint(i), Sink: to, Guarantee: sink.ExactlyOnce})
	}
	r.Pipeline = New(r.config)
	return r
}

// restart makes the pipeline again, like a process that restarts.
func (r *harness) restart(change func(c *Config)) {
	change(&r.config)
	r.Pipeline = New(r.config)
}

func (r *harness) storedRanges(t *testing.T) (ranges []string) {
	t.Helper()
	for e, err := range r.config.Outbox.Entries("test", "a") {
		if err != nil {
			t.Fatal(err)
		}
		ranges = append(ranges, e.Batch.Range.String())
	}
	return ranges
}

// versioned returns a script whose rows name its version.
func versioned(version int) testScript {
	return testScript{main: func(_ uint64, doc string) ([]string, error) {
		return []string{fmt.Sprintf("%s by %d", doc, version)}, nil
	}}
}

// stopBetween runs the pipeline until its first sink has a batch that its second sink
// lacks, and stops there.
func stopBetween(t *testing.T, r harness, second *memorySink) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	second.beforeCommit = func(context.Context) error { cancel(); return errors.New("away") }
	if err := r.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("ended with %v", err)
	}
	second.beforeCommit = nil
}

func TestStoredOutputsGoToTheSinksThatLackThem(t *testing.T) {
	partition, first, second := newMemoryPartition("a", 30), newMemorySink(), newMemorySink()
	q := newMemorySource(partition)
	r := severalSinks(t, q, versioned(1), first, second)
	r.config.Lanes = 1
	r.Pipeline = New(r.config)
	stopBetween(t, r, second)
	if diff := cmp.Diff([]string{"[0,10)"}, r.storedRanges(t)); diff != "" {
		t.Fatal(diff)
	}
	var replayed atomic.Bool
	r.restart(func(c *Config) {
		c.Script = versioned(2)
		c.OnPoint = func(at Point) {
			if at == BeforeReplay {
				replayed.Store(true)
			}
		}
	})
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	var want []string
	for i, doc := range partition.docs {
		want = append(want, fmt.Sprintf("%s by %d", doc, 1+min(1, i/10)))
	}
	expectSame(t, "rows of the first sink", slices.Clone(want), first.allRows())
	expectSame(t, "rows of the second sink", want, second.allRows())
	if stored := r.storedRanges(t); len(stored) > 0 || r.Stats().Replayed != 10 {
		t.Errorf("%v are stored yet, %d events were replayed", stored, r.Stats().Replayed)
	}
	if !replayed.Load() || !partition.acked.Covers(0, 30) {
		t.Errorf("acknowledged %v", partition.acked)
	}
}

// A sink may reject rows of stored outputs. Then the dead letters of the whole run are
// there.
func TestStoredOutputsAreRejected(t *testing.T) {
	first, second := newMemorySink(), newMemorySink()
	main := func(position uint64, doc string) ([]string, error) {
		if position == 3 {
			return nil, errors.New("no")
		}
		return []string{doc, "bad " + doc}, nil
	}
	r := severalSinks(t, newMemorySource(newMemoryPartition("a", 10)), testScript{main: main}, first, second)
	stopBetween(t, r, second)
	r.restart(func(*Config) {})
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	letters := map[string]int{}
	for _, l := range r.deadLetters(t) {
		letters[l.Stage+" "+l.Sink]++
		if l.Stage == "sink" && (l.Number != 1 || string(l.Original) != fmt.Sprintf("a/%d", l.Position)) {
			t.Errorf("letter %+v", l)
		}
	}
	if diff := cmp.Diff(map[string]int{"script ": 1, "sink 0": 9, "sink 1": 9}, letters); diff != "" {
		t.Error(diff)
	}
	expectSame(t, "rows", first.allRows(), second.allRows())
}

// Stored outputs that a sink refuses for good end the pipeline. They stay stored, and nothing of
// their range is acknowledged, until a later start writes them.
func TestStoredOutputsCannotBeWritten(t *testing.T) {
	partition, first, second := newMemoryPartition("a", 30), newMemorySink(), newMemorySink()
	r := severalSinks(t, newMemorySource(partition), versioned(1), first, second)
	r.config.Lanes = 1
	r.Pipeline = New(r.config)
	stopBetween(t, r, second)
	second.beforeCommit = failFirst(1, &event.PermanentError{Err: errors.New("no table")})
	r.restart(func(c *Config) { c.Script = versioned(2) })
	if err := r.Run(t.Context()); !event.IsPermanent(err) || !strings.Contains(err.Error(), "write stored outputs: write to sink 1: no table") {
		t.Errorf("ended with %v", err)
	}
	if diff := cmp.Diff([]string{"[0,10)"}, r.storedRanges(t)); diff != "" || len(partition.acked) > 0 {
		t.Errorf("acknowledged %v, stored %s", partition.acked, diff)
	}
	r.restart(func(*Config) {})
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	expectSame(t, "rows", first.allRows(), second.allRows())
	if n := len(second.allRows()); n != 30 || !partition.acked.Covers(0, 30) {
		t.Errorf("%d rows, acknowledged %v", n, partition.acked)
	}
}

// A sink that was added after the outputs were stored gets the events from the source.
// The other sinks do not get them twice.
func TestSinkIsNewSinceOutputsWereStored(t *testing.T) {
	first, second, third := newMemorySink(), newMemorySink(), newMemorySink()
	r := severalSinks(t, newMemorySource(newMemoryPartition("a", 10)), versioned(1), first, second)
	stopBetween(t, r, second)
	r.restart(func(c *Config) {
		c.Script = versioned(2)
		c.Sinks = []Sink{{Name: "2", Sink: third}, {Name: "1", Sink: second}, {Name: "0", Sink: first}}
	})
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, by := range map[*memorySink]int{first: 1, second: 1, third: 2} {
		if rows := i.allRows(); len(rows) != 10 || !strings.HasSuffix(rows[0], fmt.Sprintf("by %d", by)) {
			t.Errorf("rows %v, want 10 by %d", rows, by)
		}
	}
	if stored := r.storedRanges(t); len(stored) > 0 {
		t.Errorf("%v are stored yet", stored)
	}
}

// The entries of a partition that is not listed any more are written, also if the
// pipeline has only one sink left.
func TestStoredOutputsOfAPartitionThatIsGone(t *testing.T) {
	first, second := newMemorySink(), newMemorySink()
	r := severalSinks(t, newMemorySource(newMemoryPartition("a", 10)), versioned(1), first, second)
	stopBetween(t, r, second)
	r.restart(func(c *Config) {
		c.Source = newMemorySource(newMemoryPartition("b", 5))
		c.Sinks = c.Sinks[1:]
	})
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(second.allRows()); n != 15 {
		t.Errorf("%d rows", n)
	}
	if stored := r.storedRanges(t); len(stored) > 0 {
		t.Errorf("%v are stored yet", stored)
	}
}

// Sinks that do not remember ranges are written first: they have what the others
// remember, and do not get it twice.
func TestAtLeastOnceSinksAreWrittenFirst(t *testing.T) {
	partition, to, forgetful := newMemoryPartition("a", 40), newMemorySink(), &atLeastOnceSink{newMemorySink()}
	r := severalSinks(t, newMemorySource(partition), versioned(1), to, forgetful.memorySink)
	r.config.Lanes = 1
	r.config.Sinks[1].Sink, r.config.Sinks[1].Guarantee = forgetful, sink.AtLeastOnce
	r.Pipeline = New(r.config)
	ctx, cancel := context.WithCancel(t.Context())
	writes := 0
	to.beforeCommit = func(context.Context) error {
		if writes++; writes == 3 {
			cancel()
		}
		return nil
	}
	if err := r.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("ended with %v", err)
	}
	if a, b := len(to.allRows()), len(forgetful.allRows()); a != 20 || b != 30 {
		t.Fatalf("%d rows in the one and %d in the other", a, b)
	}
	to.beforeCommit = nil
	partition.acked = nil // the acknowledgements were lost
	r.restart(func(*Config) {})
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The batch in flight is written twice to the sink that does not remember ranges.
	if a, b := len(to.allRows()), len(forgetful.allRows()); a != 40 || b != 50 {
		t.Errorf("%d rows in the one and %d in the other", a, b)
	}
}

// atLeastOnceSink delivers at least once: it does not remember ranges.
type atLeastOnceSink struct{ *memorySink }

func (f *atLeastOnceSink) Open(ctx context.Context, partition string) (sink.Writer, event.Ranges, error) {
	w, _, err := f.memorySink.Open(ctx, partition)
	f.mu.Lock()
	delete(f.ranges, partition)
	f.mu.Unlock()
	return w, nil, err
}

func TestOneSinkNeedsNoOutbox(t *testing.T) {
	r := severalSinks(t, newMemorySource(newMemoryPartition("a", 10)), versioned(1), newMemorySink())
	r.restart(func(c *Config) {
		c.OnPoint = func(at Point) {
			if at == AfterOutbox {
				t.Error("outputs for one sink were stored")
			}
		}
	})
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestChaosOfSinks is TestChaos with three sinks: an event's rows in all of them, and
// its dead letters, are those of one run of the script.
func TestChaosOfSinks(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testChaosOfSinks(t, seed) })
		})
	}
}

func testChaosOfSinks(t *testing.T, seed uint64) {
	c := &chaos{rng: rand.New(rand.NewPCG(seed, 3))}
	q, tables := generations(c), []*memorySink{newMemorySink(), newMemorySink(), newMemorySink()}
	run := 0
	for _, to := range tables {
		to.onOpen, to.beforeCommit, to.afterCommit = c.hook("open", 4), c.hook("begin", 10), c.hook("commit", 10)
	}
	prog := testScript{limit: func(n int) int {
		if c.hit(15) {
			return c.below(n)
		}
		return n
	}}
	prog.main = func(_ uint64, doc string) ([]string, error) { return outcomeOf(seed, run, doc) }
	r := severalSinks(t, q, prog, tables...)
	for finished := false; !finished; {
		if run++; run > calmRun {
			t.Fatal("a run without faults does not exhaust the source")
		}
		c.calm = run == calmRun
		r.restart(func(*Config) {})
		finished = chaoticRun(t, c, r.Pipeline, tables[run%3])
	}
	checkChaosOfSinks(t, seed, run, q, tables, r)
}

func checkChaosOfSinks(t *testing.T, seed uint64, runs int, q *memorySource, tables []*memorySink, r harness) {
	rows := make([]map[string][]string, len(tables)) // by document
	for i, to := range tables {
		rows[i] = make(map[string][]string)
		for _, row := range to.allRows() {
			doc, _, _ := strings.Cut(row, "#")
			rows[i][doc] = append(rows[i][doc], row)
		}
	}
	letters := make(map[string][]string)
	for _, l := range r.deadLetters(t) {
		doc := rowKey(l.Partition, l.Position)
		letters[doc] = append(letters[doc], fmt.Sprintf("%s %d %s %s", l.Sink, l.Number, l.Stage, l.Error))
	}
	for _, s := range q.partitions {
		for _, doc := range s.docs {
			if !slices.ContainsFunc(upTo(runs), func(run int) bool {
				return endedAs(seed, run, doc, rows, letters[doc])
			}) {
				t.Fatalf("%s ended as no run of the script says: %v %v %v, letters %q",
					doc, rows[0][doc], rows[1][doc], rows[2][doc], letters[doc])
			}
		}
	}
	if names, err := r.config.Outbox.Partitions("test"); len(names) > 0 || err != nil {
		t.Errorf("entries of %v are left, %v", names, err)
	}
}

func upTo(n int) []int {
	all := make([]int, n+1)
	for i := range all {
		all[i] = i
	}
	return all
}

// endedAs reports whether rows and dead letters of a document are those of one run.
func endedAs(seed uint64, run int, doc string, rows []map[string][]string, letters []string) bool {
	made, err := outcomeOf(seed, run, doc)
	var wantLetters []string
	if err != nil {
		wantLetters = append(wantLetters, fmt.Sprintf(" 0 script %v", err))
	}
	for i := range rows {
		var want []string
		for n, row := range made {
			if strings.HasSuffix(row, "bad") {
				wantLetters = append(wantLetters, fmt.Sprintf("%d %d sink bad row", i, n))
			} else {
				want = append(want, row)
			}
		}
		slices.Sort(rows[i][doc])
		if !slices.Equal(want, rows[i][doc]) {
			return false
		}
	}
	slices.Sort(letters)
	slices.Sort(wantLetters)
	return slices.Equal(wantLetters, letters)
}

// Outputs that cannot be stored are not written to any sink.
func TestOutboxFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := newMemorySink(), newMemorySink()
		r := severalSinks(t, newMemorySource(newMemoryPartition("a", 10)), versioned(1), first, second)
		r.restart(func(c *Config) {
			c.OnPoint = func(at Point) {
				if at == AfterDeadLetters {
					c.Outbox.Close() // as a disk that is full: nothing can be stored
				}
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := r.start(ctx)
		time.Sleep(time.Minute)
		s := r.Stats()
		if s.State != Retrying || s.OutboxRetries == 0 || !s.CircuitOpen || len(first.allRows())+len(second.allRows()) > 0 {
			t.Errorf("%+v with %d rows", s, len(first.allRows())+len(second.allRows()))
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
	})
}

type columnSink struct {
	*memorySink
	bare bool
}

func (b columnSink) Traits() sink.Traits { return sink.Traits{ColumnsOnly: b.bare} }

// Outputs stored without documents do not fit a sink that reads documents.
func TestStoredRowsWithoutDocuments(t *testing.T) {
	whole := event.Output{Data: []byte("{}"), Ends: []uint32{2}, Columns: &event.Columns{Rows: 1}}
	part := event.Output{Data: []byte("{}"), Ends: []uint32{2, 2}, Columns: &event.Columns{Rows: 2}}
	none := event.Output{Columns: &event.Columns{}}
	for i, c := range []struct {
		out  *event.Output
		sink sink.Sink
		want bool
	}{
		{&whole, columnSink{bare: true}, true}, {&part, columnSink{bare: true}, true}, {&none, columnSink{bare: true}, true},
		{&whole, columnSink{}, true}, {&part, columnSink{}, false}, {&none, columnSink{}, true},
		{&part, newMemorySink(), false},
	} {
		if got := outputFits(c.out, c.sink); got != c.want {
			t.Errorf("case %d: fits is %v", i, got)
		}
	}
}
