package reload_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/pipeline"
	"github.com/perigeedb/perigee/pipeline/deadletter"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/source"
	"github.com/perigeedb/perigee/source/generate"
)

// replacements is how often the script is replaced while events flow.
const replacements = 1000

// books keep, for each position, which version settled it. It is the sink and
// the dead letters of a pipeline.
type books struct {
	mu       sync.Mutex
	settled  map[uint64]string
	versions map[string]string // of a name, that the rows and letters say
	faults   []string
}

func (b *books) Open(context.Context, string) (sink.Writer, event.Ranges, error) { return b, nil, nil }
func (b *books) Traits() sink.Traits                                             { return sink.Traits{Order: sink.AnyOrder} }
func (b *books) Verify(context.Context) error                                    { return nil }
func (b *books) Close() error                                                    { return nil }

func (b *books) Write(_ context.Context, out *event.Output) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	versions := map[string]bool{}
	for i := range out.Len() {
		versions[string(out.Doc(i))] = true
		b.settle(out.Position(i), string(out.Doc(i)))
	}
	if len(versions) > 1 {
		b.faults = append(b.faults, fmt.Sprintf("range %v is of %d versions: %v", out.Range, len(versions), versions))
	}
	return nil
}

// Replace implements pipeline.DeadLetters. A letter's error names the version
// that its script does.
func (b *books) Replace(_, _ string, _ event.Range, dead []event.DeadLetter) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range dead {
		_, version, ours := strings.Cut(dead[i].Error, "version ")
		if !ours {
			b.faults = append(b.faults, "died of another cause: "+dead[i].Error)
			continue
		}
		if was, found := b.versions[dead[i].Script]; found && was != version {
			b.faults = append(b.faults, fmt.Sprintf("%s is of version %s and of %s", dead[i].Script, was, version))
		}
		b.versions[dead[i].Script] = version
		b.settle(dead[i].Position, version)
	}
	return nil
}

// MarkCommitted implements pipeline.DeadLetters.
func (b *books) MarkCommitted(string, string, event.Range) error { return nil }

// RetryBatch implements pipeline.DeadLetters. No retry is ever requested.
func (b *books) RetryBatch(string) (string, error) { return "", nil }

// OpenRetries implements pipeline.DeadLetters.
func (b *books) OpenRetries(deadletter.RetryOptions, string, event.Ranges) (*deadletter.RetryReader, error) {
	return nil, errors.New("no retries were requested")
}

func (b *books) settle(position uint64, version string) {
	if was, found := b.settled[position]; found {
		b.faults = append(b.faults, fmt.Sprintf("position %d is settled by %s and by %s", position, was, version))
	}
	b.settled[position] = version
}

// TestReplacedUnderLoad replaces a script a thousand times while four lanes run
// it: every event is settled once, by one version, which its dead letter names,
// and every batch wholly by one version.
func TestReplacedUnderLoad(t *testing.T) {
	const text = `
function main(event)
  if event.id %% 10 == 0 then error("version %[1]d", 0) end
  return {version = %[1]d}
end`
	b := newBench(t, fmt.Sprintf(text, 0), patient)
	limits := source.Limits{Events: 20, Bytes: 1 << 20}
	events, err := generate.New(source.Env{Limits: limits}, generate.Config{Events: 1 << 40, Rate: 50_000})
	if err != nil {
		t.Fatal(err)
	}
	kept := &books{settled: map[uint64]string{}, versions: map[string]string{}}
	p := pipeline.New(pipeline.Config{
		Name: "load", Source: events, Script: b.Script, Sinks: []pipeline.Sink{{Name: "books", Sink: kept}},
		DeadLetters: kept, Limits: limits, Log: slog.New(slog.DiscardHandler),
	})
	over := make(chan error, 1)
	go func() { over <- p.Run(t.Context()) }()
	for i := range replacements {
		b.write(fmt.Sprintf(text, i+1))
		if !b.Check(t.Context(), true) {
			t.Fatalf("version %d is refused:\n%s", i+1, b.log)
		}
	}
	p.Drain()
	if err := <-over; err != nil {
		t.Fatal(err)
	}
	read := p.Stats().Read
	t.Logf("%d events, %d versions wrote dead letters", read, len(kept.versions))
	if uint64(len(kept.settled)) != read || p.Stats().Committed != read {
		t.Errorf("%d events read, %d settled", read, len(kept.settled))
	}
	for _, fault := range kept.faults {
		t.Error(fault)
	}
	if len(kept.versions) < replacements/10 || b.Counts().Replaced != replacements {
		t.Errorf("only %d versions were seen, %+v", len(kept.versions), b.Counts())
	}
}
