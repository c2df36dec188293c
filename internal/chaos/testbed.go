package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/perigeedb/perigee/internal/testserver"
)

const (
	keyCount = 6 // lists or streams: divisible among two workers and among three
	// waitLimit bounds waits that take a second at most on an idle machine.
	waitLimit = 2 * time.Minute
)

// A testbed holds the servers, workers and producer of one round.
type testbed struct {
	*Runner
	round     Round
	folder    string
	random    *rand.Rand
	redis     *testserver.RedisServer
	databases []*database
	producer  *producer
	workers   []*worker
	expected  []Expected
	nextFault *Fault // the next one
	snapshot  string // of Redis
	restores  int
	closed    sync.Once

	events      []historyEntry
	historyFile *os.File // faults.log in the round's folder: the same entries
}

// A historyEntry is a line of faults.log.
type historyEntry struct {
	at   time.Time
	text string
}

func newTestbed(ctx context.Context, r *Runner, folder string, round Round) (*testbed, error) {
	made := &testbed{Runner: r, round: round, folder: folder, random: rand.New(rand.NewPCG(round.Seed, 2))}
	if err := made.startAll(ctx); err != nil {
		made.close()
		return nil, err
	}
	return made, nil
}

// startAll starts the servers and prepares producer and workers.
func (s *testbed) startAll(ctx context.Context) (err error) {
	if err := os.MkdirAll(s.folder, 0o755); err != nil {
		return err
	}
	if s.historyFile, err = os.Create(filepath.Join(s.folder, "faults.log")); err != nil {
		return err
	}
	if err := s.startServers(ctx); err != nil {
		return err
	}
	if s.round.Fix != nil {
		if err := os.WriteFile(s.round.Fix.Path, []byte(s.round.Fix.Broken), 0o600); err != nil {
			return err
		}
	}
	s.producer = newProducer(s.redis.Address(), s.config.Events, s.round.Pipeline.Stream, keyCount, rand.New(rand.NewPCG(s.round.Seed, 3)))
	if err := s.createWorkers(); err != nil {
		return err
	}
	s.expected, err = s.config.Expect(ctx, s.workers[0].config, s.config.Events.onePerSample())
	return err
}

func (s *testbed) startServers(ctx context.Context) (err error) {
	if s.redis, err = testserver.StartRedis(ctx, filepath.Join(s.folder, "redis"), durableRedis...); err != nil {
		return err
	}
	withoutBulk := s.random.IntN(2) == 0
	for _, sink := range s.round.Pipeline.Sinks {
		if sink.Kind == EventStore || sink.Kind == File || s.database(sink.Kind) != nil {
			continue
		}
		d, err := startDatabase(ctx, sink.Kind, filepath.Join(s.folder, "sink-"+sink.Kind), withoutBulk)
		if d != nil {
			s.databases = append(s.databases, d)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *testbed) database(kind string) *database {
	i := slices.IndexFunc(s.databases, func(d *database) bool { return d.kind == kind })
	if i < 0 {
		return nil
	}
	return s.databases[i]
}

func (s *testbed) createWorkers() error {
	at := addresses{source: s.redis.Address(), files: s.filesFolder(), databases: map[string]string{}}
	for _, d := range s.databases {
		at.databases[d.kind] = d.Address()
	}
	for i := range s.round.Workers {
		w, err := newWorker(i+1, s.config.Binary, filepath.Join(s.folder, fmt.Sprintf("worker-%d", i+1)), s.round.Pipeline, at)
		if err != nil {
			return err
		}
		s.workers = append(s.workers, w)
	}
	return nil
}

// filesFolder is where all workers have their file sinks.
func (s *testbed) filesFolder() string { return filepath.Join(s.folder, "files") }

// startFlow starts the producer and the workers.
func (s *testbed) startFlow(ctx context.Context) error {
	s.producer.start(ctx)
	for _, w := range s.workers {
		if err := w.start(nil, 0); err != nil {
			return err
		}
	}
	return nil
}

// runFaults starts the flow and injects one fault after another.
func (s *testbed) runFaults(ctx context.Context) error {
	if err := s.startFlow(ctx); err != nil {
		return err
	}
	if err := s.waitTrimmed(ctx, 1); err != nil {
		return err
	}
	if err := s.snapshotRedis(); err != nil {
		return err
	}
	for i := range s.round.Faults {
		s.nextFault = nil
		if i+1 < len(s.round.Faults) {
			s.nextFault = &s.round.Faults[i+1]
		}
		if err := s.injectFault(ctx, s.round.Faults[i]); err != nil {
			return fmt.Errorf("fault %d, %v: %w", i+1, s.round.Faults[i], err)
		}
		if s.random.IntN(3) == 0 {
			if err := s.snapshotRedis(); err != nil {
				return err
			}
		}
	}
	return nil
}

// finish stops the producer, undoes every fault, waits until Redis is empty and drains the workers.
func (s *testbed) finish(ctx context.Context) error {
	s.logf("the producer stops")
	if err := s.producer.stopPushing(ctx); err != nil {
		return err
	}
	for _, w := range s.workers {
		w.resetProxies()
		if w.armedFor != nil && w.running() {
			w.engine.Kill()
		}
		if !w.running() {
			if err := w.start(nil, 0); err != nil {
				return err
			}
		}
	}
	if err := s.waitEmpty(ctx); err != nil {
		for _, w := range s.workers {
			w.engine.DumpStacks() // the log then shows where it hangs
		}
		return err
	}
	for _, w := range s.workers {
		if err := w.drain(ctx); err != nil {
			return err
		}
	}
	return nil
}

// stallLimit is how long the backlog may stay unchanged before logStall is called.
const stallLimit = 5 * time.Second

// waitEmpty waits until Redis is empty, as long as the backlog shrinks.
func (s *testbed) waitEmpty(ctx context.Context) error {
	least, since, looked := -1, time.Now(), false
	for {
		waiting, err := s.producer.backlog(ctx)
		switch still := time.Since(since); {
		case err != nil:
			return err
		case waiting == 0:
			return nil
		case least < 0 || waiting < least:
			least, since, looked = waiting, time.Now(), false
		case still > waitLimit:
			return fmt.Errorf("%d events wait, and none was delivered for %v\n%s", waiting, waitLimit, s.workers[0].logTail())
		case still > stallLimit && !looked:
			looked = true
			s.logStall(ctx, waiting)
		}
		if err := s.checkWorkers(); err != nil {
			return err
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// logStall logs what the databases do and which leases the workers hold.
func (s *testbed) logStall(ctx context.Context, waiting int) {
	s.logf("%d events wait, and none was delivered for %v", waiting, stallLimit)
	for _, d := range s.databases {
		lines, err := d.activity(ctx)
		if err != nil {
			s.logf("%s: %v", d.kind, err)
		}
		for _, line := range lines {
			s.logf("%s: %s", d.kind, line)
		}
	}
	for _, w := range s.workers {
		held, err := s.heldLeases(ctx, w)
		s.logf("worker %d has %v %v", w.number, held, err)
	}
}

// checkWorkers returns an error when a worker has exited unexpectedly.
func (s *testbed) checkWorkers() error {
	for _, w := range s.workers {
		if !w.running() && w.armedFor == nil {
			return fmt.Errorf("worker %d exited unexpectedly:\n%s", w.number, w.logTail())
		}
	}
	return nil
}

// logf adds an entry to the history.
func (s *testbed) logf(format string, args ...any) {
	h := historyEntry{time.Now(), fmt.Sprintf(format, args...)}
	s.events = append(s.events, h)
	fmt.Fprintln(s.historyFile, h)
}

func (h historyEntry) String() string { return h.at.UTC().Format("15:04:05.000 ") + h.text }

func (s *testbed) close() {
	s.closed.Do(func() {
		if s.producer != nil {
			s.producer.close()
		}
		for _, w := range s.workers {
			w.close()
		}
		for _, d := range s.databases {
			_ = d.Kill()
		}
		if s.redis != nil {
			_ = s.redis.Kill()
		}
		if s.historyFile != nil {
			s.historyFile.Close()
		}
	})
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// waitFor polls until happened reports true or waitLimit is over.
func waitFor(ctx context.Context, what string, happened func() (bool, error)) error {
	var last error
	for deadline := time.Now().Add(waitLimit); time.Now().Before(deadline); {
		ok, err := happened()
		if ok {
			return nil
		}
		last = err
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return errors.Join(fmt.Errorf("gave up after %v waiting until %s", waitLimit, what), last)
}
