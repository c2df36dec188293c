package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/perigeedb/perigee/engine/rowtext"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/pipeline/deadletter"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/source"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A hook runs before an operation of a double. It may wait, or fail the operation.
type hook func(ctx context.Context) error

func (h hook) call(ctx context.Context) error {
	if h == nil {
		return nil
	}
	return h(ctx)
}

// A memorySource holds the documents of its partitions in memory. Like a Redis list, it
// removes acknowledged events only from the front.
type memorySource struct {
	batch                               func() int // events in the next batch
	onPartitions, onOpen, onRead, onAck hook
	atEnd                               func(q *memorySource, s *memoryPartition) error // what a read past the end returns; nil means io.EOF

	mu         sync.Mutex
	partitions []*memoryPartition
}

// A memoryPartition is one partition of a memorySource.
type memoryPartition struct {
	name  string
	docs  []string
	gone  bool         // not listed any more
	acked event.Ranges // durable
	read  uint64       // as far as any reader came
}

func newMemorySource(partitions ...*memoryPartition) *memorySource {
	return &memorySource{batch: func() int { return 10 }, partitions: partitions}
}

// newMemoryPartition returns a partition of n documents, which consist of its name and
// their position.
func newMemoryPartition(name string, n int) *memoryPartition {
	s := &memoryPartition{name: name}
	for i := range n {
		s.docs = append(s.docs, fmt.Sprintf("%s/%d", name, i))
	}
	return s
}

// add adds a partition.
func (q *memorySource) add(s *memoryPartition) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.partitions = append(q.partitions, s)
}

func (q *memorySource) Partitions(ctx context.Context) ([]string, error) {
	if err := q.onPartitions.call(ctx); err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	var names []string
	for _, s := range q.partitions {
		if !s.gone {
			names = append(names, s.name)
		}
	}
	return names, nil
}

func (q *memorySource) Open(ctx context.Context, partition string, done event.Ranges) (source.Reader, error) {
	if err := q.onOpen.call(ctx); err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range q.partitions {
		if s.name == partition {
			for _, r := range done {
				s.acked.Add(r)
			}
			return &memoryReader{source: q, partition: s, done: done, next: s.acked.Next(0)}, nil
		}
	}
	return nil, &event.PermanentError{Err: fmt.Errorf("no partition %s", partition), Hint: "make one"}
}

func (q *memorySource) Traits() source.Traits { return source.Traits{} }
func (q *memorySource) Close() error          { return nil }

type memoryReader struct {
	source    *memorySource
	partition *memoryPartition
	done      event.Ranges
	next      uint64
}

func (r *memoryReader) Read(ctx context.Context, b *event.Batch) error {
	if err := r.source.onRead.call(ctx); err != nil {
		return err
	}
	r.source.mu.Lock()
	defer r.source.mu.Unlock()
	r.next = r.done.Next(r.next)
	b.Range.First = r.next
	for range r.source.batch() {
		if r.next == uint64(len(r.partition.docs)) || r.done.Has(r.next) {
			break
		}
		b.Append([]byte(r.partition.docs[r.next]))
		r.next++
	}
	b.Range.Count = uint64(b.Len())
	r.partition.read = max(r.partition.read, r.next)
	if b.Len() > 0 {
		return nil
	}
	if r.source.atEnd != nil {
		return r.source.atEnd(r.source, r.partition)
	}
	return io.EOF
}

func (r *memoryReader) Ack(ctx context.Context, a event.Range) error {
	if err := r.source.onAck.call(ctx); err != nil {
		return err
	}
	r.source.mu.Lock()
	defer r.source.mu.Unlock()
	r.partition.acked.Add(a)
	return nil
}

func (r *memoryReader) Lag() uint64 {
	r.source.mu.Lock()
	defer r.source.mu.Unlock()
	return uint64(len(r.partition.docs)) - r.next
}

func (r *memoryReader) Close(context.Context) error { return nil }

// A memorySink holds rows and ranges in memory and fences owners. It rejects rows that
// contain "bad".
type memorySink struct {
	onOpen, beforeCommit, afterCommit, onVerify hook

	spec []event.Column // rows are these columns; nil: they are documents
	bare bool           // documents are not read

	mu      sync.Mutex
	lenient bool // takes all rows
	run     int  // of the pipeline; the ranges are committed under it
	rows    []string
	ranges  map[string]event.Ranges
	ran     map[string]int // by partition and position: the run that committed it
	epochs  map[string]int
}

func newMemorySink() *memorySink {
	return &memorySink{ranges: make(map[string]event.Ranges), ran: make(map[string]int), epochs: make(map[string]int)}
}

func (t *memorySink) Open(ctx context.Context, partition string) (sink.Writer, event.Ranges, error) {
	if err := t.onOpen.call(ctx); err != nil {
		return nil, nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.epochs[partition]++
	var done event.Ranges
	for _, r := range t.ranges[partition] {
		r.Fingerprints = slices.Clone(r.Fingerprints)
		done.Add(r)
	}
	return &memoryWriter{sink: t, partition: partition, epoch: t.epochs[partition]}, done, nil
}

// takeOver fences the owner of a partition, as another worker does.
func (t *memorySink) takeOver(partition string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.epochs[partition]++
}

// opened returns how often the partition was opened or taken over.
func (t *memorySink) opened(partition string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.epochs[partition]
}

func (t *memorySink) allRows() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string(nil), t.rows...)
}

func (t *memorySink) Traits() sink.Traits {
	return sink.Traits{Order: sink.AnyOrder, Columns: t.spec, ColumnsOnly: t.bare}
}
func (t *memorySink) Close() error { return nil }

// text returns a row as the sink stores it.
func (t *memorySink) text(out *event.Output, row int) string {
	return string(rowtext.AppendRow(nil, t.spec, false, "", out, row))
}

func (w *memoryWriter) Verify(ctx context.Context) error { return w.sink.onVerify.call(ctx) }

type memoryWriter struct {
	sink      *memorySink
	partition string
	epoch     int
	closed    atomic.Bool
}

func (w *memoryWriter) Write(ctx context.Context, out *event.Output) error {
	if err := w.sink.beforeCommit.call(ctx); err != nil {
		return err
	}
	if w.closed.Load() {
		return errors.New("the writer is closed")
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := w.commit(out); err != nil {
		return err
	}
	return w.sink.afterCommit.call(ctx)
}

func (w *memoryWriter) commit(out *event.Output) error {
	w.sink.mu.Lock()
	defer w.sink.mu.Unlock()
	if w.epoch != w.sink.epochs[w.partition] {
		return sink.ErrFenced
	}
	ranges := w.sink.ranges[w.partition]
	var refused sink.RowErrors
	var rows []string
	for i := range out.Len() {
		if ranges.Has(out.Position(i)) {
			continue
		}
		text := w.sink.text(out, i)
		if !w.sink.lenient && strings.Contains(text, "bad") {
			stage := ""
			if strings.Contains(text, "misfit") {
				stage = sink.StageColumn
			}
			refused.Rows = append(refused.Rows, sink.RowError{Row: i, Stage: stage, Err: fmt.Errorf("bad row")})
		}
		rows = append(rows, text)
	}
	if len(refused.Rows) > 0 {
		return &refused
	}
	for _, gap := range ranges.Missing(out.Range) {
		for i := range gap.Count {
			w.sink.ran[rowKey(w.partition, gap.First+i)] = w.sink.run
		}
	}
	ranges.Add(event.Range{First: out.Range.First, Count: out.Range.Count, Fingerprints: slices.Clone(out.Range.Fingerprints)})
	w.sink.ranges[w.partition] = ranges
	w.sink.rows = append(w.sink.rows, rows...)
	return nil
}

func (w *memoryWriter) Close() error {
	w.closed.Store(true)
	return nil
}

func rowKey(partition string, position uint64) string {
	return fmt.Sprintf("%s/%d", partition, position)
}

// A testScript calls a function for each event. The function returns the event's rows,
// the same for each sink. No rows mean that the event is dropped, an error that it is
// dead.
type testScript struct {
	main  func(position uint64, doc string) ([]string, error)
	limit func(n int) int // of n events, how many run before the limit; nil means all
}

func (s testScript) Run(ctx context.Context, in *event.Batch, res *event.Result) error {
	out := &res.Outputs[0]
	defer func() {
		for i := range res.Outputs[1:] {
			res.Outputs[i+1] = event.Output{
				Data: slices.Clone(out.Data), Ends: slices.Clone(out.Ends), From: slices.Clone(out.From),
			}
		}
	}()
	out.Reset()
	res.Dead, res.Dropped, res.Ran = res.Dead[:0], 0, in.Len()
	if s.limit != nil {
		res.Ran = s.limit(in.Len())
	}
	for i := range res.Ran {
		position := in.Range.First + uint64(i)
		rows, err := s.main(position, string(in.Doc(i)))
		if err != nil {
			res.Dead = append(res.Dead, event.DeadLetter{Position: position, Stage: "script",
				Error: err.Error(), Script: s.String(), Original: append([]byte(nil), in.Doc(i)...)})
		} else if len(rows) == 0 {
			res.Dropped++
		}
		for _, row := range rows {
			out.Data = append(out.Data, row...)
			out.Ends = append(out.Ends, uint32(len(out.Data)))
			out.From = append(out.From, uint32(i))
		}
	}
	if res.Ran < in.Len() {
		return &script.LimitError{Limit: "batch time", Err: &script.Error{Script: "test.lua", Line: 3, Message: "too slow"}}
	}
	return ctx.Err()
}

func (s testScript) String() string { return "test.lua 1" }
func (s testScript) Close() error   { return nil }

// passThrough returns every event unchanged.
func passThrough(_ uint64, doc string) ([]string, error) { return []string{doc}, nil }

// A harness is a pipeline of doubles with the real store of dead letters.
type harness struct {
	*Pipeline
	store *deadletter.Store
}

func newHarness(t *testing.T, src source.Source, s script.Script, to sink.Sink) harness {
	t.Helper()
	letters, err := deadletter.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { letters.Close() })
	p := New(Config{
		Name: "test", Source: src, Script: s, Sinks: []Sink{{Name: "table", Sink: to}},
		DeadLetters: letters, Limits: source.Limits{Events: 10, Bytes: 1 << 20}, Log: slog.New(slog.DiscardHandler),
	})
	return harness{p, letters}
}

func (r harness) deadLetters(t *testing.T) []deadletter.Letter {
	t.Helper()
	var all []deadletter.Letter
	for l, err := range r.store.List(deadletter.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
	return all
}
