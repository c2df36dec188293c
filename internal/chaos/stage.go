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
	keys = 6 // lists or streams that the producer pushes into: as many for each of two workers, and of three
	// patience is for what takes a second at most on an idle machine.
	patience = 2 * time.Minute
)

// A stage is all that plays in a round.
type stage struct {
	*Runner
	round     Round
	folder    string
	random    *rand.Rand
	redis     *testserver.RedisServer
	databases []*database
	producer  *producer
	workers   []*worker
	outcomes  []Outcome
	upcoming  *Fault // the next one
	snapshot  string // of Redis
	restored  int
	closed    sync.Once

	happened []happening
	history  *os.File // the same, for whoever looks into the folder
}

// A happening is what was done, and when.
type happening struct {
	at   time.Time
	what string
}

func newStage(ctx context.Context, r *Runner, folder string, round Round) (*stage, error) {
	made := &stage{Runner: r, round: round, folder: folder, random: rand.New(rand.NewPCG(round.Seed, 2))}
	if err := made.prepare(ctx); err != nil {
		made.close()
		return nil, err
	}
	return made, nil
}

// prepare starts everything but the flow of events.
func (s *stage) prepare(ctx context.Context) (err error) {
	if err := os.MkdirAll(s.folder, 0o755); err != nil {
		return err
	}
	if s.history, err = os.Create(filepath.Join(s.folder, "faults.log")); err != nil {
		return err
	}
	if err := s.startServers(ctx); err != nil {
		return err
	}
	if s.round.Mend != nil {
		if err := os.WriteFile(s.round.Mend.Path, []byte(s.round.Mend.Broken), 0o600); err != nil {
			return err
		}
	}
	s.producer = newProducer(s.redis.Address(), s.config.Events, s.round.Pipeline.Stream, keys, rand.New(rand.NewPCG(s.round.Seed, 3)))
	if err := s.makeWorkers(); err != nil {
		return err
	}
	s.outcomes, err = s.config.Oracle(ctx, s.workers[0].config, s.config.Events.first())
	return err
}

func (s *stage) startServers(ctx context.Context) (err error) {
	if s.redis, err = testserver.StartRedis(ctx, filepath.Join(s.folder, "redis"), durableRedis...); err != nil {
		return err
	}
	byInsert := s.random.IntN(2) == 0
	for _, sink := range s.round.Pipeline.Sinks {
		if sink.Kind == EventStore || s.database(sink.Kind) != nil {
			continue
		}
		d, err := startDatabase(ctx, sink.Kind, filepath.Join(s.folder, sink.Kind), byInsert)
		if d != nil {
			s.databases = append(s.databases, d)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) database(kind string) *database {
	i := slices.IndexFunc(s.databases, func(d *database) bool { return d.kind == kind })
	if i < 0 {
		return nil
	}
	return s.databases[i]
}

func (s *stage) makeWorkers() error {
	servers := map[string]string{"redis": s.redis.Address()}
	for _, d := range s.databases {
		servers[d.kind] = d.Address()
	}
	for i := range s.round.Workers {
		w, err := newWorker(i+1, s.config.Binary, filepath.Join(s.folder, fmt.Sprintf("worker-%d", i+1)), s.round.Pipeline, servers)
		if err != nil {
			return err
		}
		s.workers = append(s.workers, w)
	}
	return nil
}

// begin lets the events flow.
func (s *stage) begin(ctx context.Context) error {
	s.producer.start(ctx)
	for _, w := range s.workers {
		if err := w.start(nil, 0); err != nil {
			return err
		}
	}
	return nil
}

// play lets the events flow and does one fault after another.
func (s *stage) play(ctx context.Context) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	if err := s.untilGivenUp(ctx, 1); err != nil {
		return err
	}
	if err := s.saveRedis(); err != nil {
		return err
	}
	for i := range s.round.Faults {
		s.upcoming = nil
		if i+1 < len(s.round.Faults) {
			s.upcoming = &s.round.Faults[i+1]
		}
		if err := s.do(ctx, s.round.Faults[i]); err != nil {
			return fmt.Errorf("fault %d, %v: %w", i+1, s.round.Faults[i], err)
		}
		if s.random.IntN(3) == 0 {
			if err := s.saveRedis(); err != nil {
				return err
			}
		}
	}
	return nil
}

// settle stops pushing, undoes every fault, and lets the workers finish.
func (s *stage) settle(ctx context.Context) error {
	s.note("the producer stops")
	if err := s.producer.end(ctx); err != nil {
		return err
	}
	for _, w := range s.workers {
		w.honest()
		if w.armed != nil && w.running() {
			w.engine.Kill()
		}
		if !w.running() {
			if err := w.start(nil, 0); err != nil {
				return err
			}
		}
	}
	if err := s.untilEmpty(ctx); err != nil {
		for _, w := range s.workers {
			w.engine.Trace() // so that its log tells where it hangs
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

// slow is how long nothing may move before it is looked at why.
const slow = 5 * time.Second

// untilEmpty waits as long as it gets on.
func (s *stage) untilEmpty(ctx context.Context) error {
	least, since, looked := -1, time.Now(), false
	for {
		waiting, err := s.producer.waiting(ctx)
		switch still := time.Since(since); {
		case err != nil:
			return err
		case waiting == 0:
			return nil
		case least < 0 || waiting < least:
			least, since, looked = waiting, time.Now(), false
		case still > patience:
			return fmt.Errorf("%d events wait, and nothing has moved for %v\n%s", waiting, patience, s.workers[0].lastWords())
		case still > slow && !looked:
			looked = true
			s.look(ctx, waiting)
		}
		if err := s.alive(); err != nil {
			return err
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// look notes what the databases do while nothing moves.
func (s *stage) look(ctx context.Context, waiting int) {
	s.note("%d events wait, and nothing has moved for %v", waiting, slow)
	for _, d := range s.databases {
		lines, err := d.texts(ctx, d.activity)
		if err != nil {
			s.note("%s: %v", d.kind, err)
		}
		for _, line := range lines {
			s.note("%s: %s", d.kind, line)
		}
	}
	for _, w := range s.workers {
		held, err := s.leases(ctx, w)
		s.note("worker %d has %v %v", w.number, held, err)
	}
}

// alive returns an error when a worker ended by itself.
func (s *stage) alive() error {
	for _, w := range s.workers {
		if !w.running() && w.armed == nil {
			return fmt.Errorf("worker %d ended by itself:\n%s", w.number, w.lastWords())
		}
	}
	return nil
}

// note remembers what is done.
func (s *stage) note(format string, args ...any) {
	h := happening{time.Now(), fmt.Sprintf(format, args...)}
	s.happened = append(s.happened, h)
	fmt.Fprintln(s.history, h)
}

func (h happening) String() string { return h.at.UTC().Format("15:04:05.000 ") + h.what }

func (s *stage) close() {
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
		if s.history != nil {
			s.history.Close()
		}
	})
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// until asks again and again, as long as there is patience.
func until(ctx context.Context, what string, happened func() (bool, error)) error {
	var last error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		ok, err := happened()
		if ok {
			return nil
		}
		last = err
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return errors.Join(fmt.Errorf("waited %v in vain until %s", patience, what), last)
}
