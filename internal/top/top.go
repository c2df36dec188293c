// Package top shows the pipelines of a running engine on a terminal, and lets its user pause them
// and look at their dead letters.
//
// It asks an Engine once a second, and shows rates over the last seconds beside each other. The
// model has one owner, the program of Bubble Tea that runs it.
package top

import (
	"context"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/perigeedb/perigee/admin"
	"github.com/perigeedb/perigee/pipeline"
)

// An Engine is what the program shows, and what it can do there. Its methods may be called by several
// goroutines at the same time.
type Engine interface {
	Status(ctx context.Context) ([]admin.Status, error)
	Pause(ctx context.Context, pipeline, reason string) error
	Resume(ctx context.Context, pipeline string) error
	// DeadLetters returns dead letters of a pipeline, at most limit.
	DeadLetters(ctx context.Context, pipeline string, limit int) ([]admin.DeadLetter, error)
}

const (
	interval    = time.Second
	historySize = 120 // samples that are kept of each pipeline
	window      = 5   // samples over which rates and quantiles are taken
	callTimeout = 5 * time.Second
	lettersMax  = 200
)

// Run shows the engine until its user ends it, or ctx ends.
func Run(ctx context.Context, e Engine, options ...tea.ProgramOption) error {
	m := newModel(e)
	m.ctx = ctx
	_, err := tea.NewProgram(m, append(options, tea.WithContext(ctx))...).Run()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// A reading is the status of all pipelines at a time.
type reading struct {
	at  time.Time
	all []admin.Status
	err error
}

// A sample is the status of one pipeline at a time.
type sample struct {
	at time.Time
	admin.Status
}

// A sortKey orders the pipelines.
type sortKey struct {
	key   string // that chooses it
	title string
	less  func(a, b *row) int
}

// The messages of the program besides those of Bubble Tea.
type (
	letters struct {
		pipeline string
		all      []admin.DeadLetter
		err      error
	}
	done struct {
		text string
		err  error
	}
	tick struct{}
)

// A screen is what is shown.
type screen int

const (
	overview screen = iota
	details         // of one pipeline
	deadLetters
)

// A model is the state of the program.
type model struct {
	ctx    context.Context
	engine Engine
	width  int
	height int

	history map[string][]sample // by pipeline, the oldest first
	rows    []row               // in order
	sort    int                 // index of sortKeys
	chosen  string              // pipeline
	screen  screen
	back    screen // behind the dead letters
	letters letters
	scroll  int // first dead letter that is shown
	message string
	failure error // of the last reading
}

func newModel(e Engine) *model {
	return &model{ctx: context.Background(), engine: e, width: 100, height: 30, history: map[string][]sample{}}
}

// Init implements tea.Model.
func (m *model) Init() tea.Cmd { return m.read }

// read asks the engine for its status.
func (m *model) read() tea.Msg {
	ctx, cancel := context.WithTimeout(m.ctx, callTimeout)
	defer cancel()
	all, err := m.engine.Status(ctx)
	return reading{time.Now(), all, err}
}

// Update implements tea.Model.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case reading:
		m.add(&msg)
		return m, tea.Tick(interval, func(time.Time) tea.Msg { return tick{} })
	case tick:
		return m, m.read
	case letters:
		m.letters = msg
	case done:
		m.message = msg.text
		if msg.err != nil {
			m.message = msg.err.Error()
		}
	case tea.KeyPressMsg:
		return m, m.press(msg.String())
	}
	return m, nil
}

// add adds a reading to the history.
func (m *model) add(r *reading) {
	if m.failure = r.err; r.err != nil {
		return
	}
	present := map[string]bool{}
	for _, s := range r.all {
		present[s.Pipeline] = true
		before := m.history[s.Pipeline]
		if n := len(before); n > 0 && before[n-1].Read > s.Read {
			before = nil // it was started again
		}
		m.history[s.Pipeline] = append(before[max(0, len(before)+1-historySize):], sample{r.at, s})
	}
	for name := range m.history {
		if !present[name] {
			delete(m.history, name)
		}
	}
	m.arrange()
}

// arrange makes the rows of the history, in order.
func (m *model) arrange() {
	m.rows = m.rows[:0]
	for _, samples := range m.history {
		m.rows = append(m.rows, newRow(samples))
	}
	slices.SortFunc(m.rows, func(a, b row) int {
		if c := sortKeys[m.sort].less(&a, &b); c != 0 {
			return c
		}
		return sortKeys[0].less(&a, &b)
	})
	if len(m.rows) > 0 && m.history[m.chosen] == nil {
		m.chosen, m.screen = m.rows[0].name(), overview
	}
}

// press handles a key.
func (m *model) press(key string) tea.Cmd {
	m.message = ""
	switch key {
	case "q", "ctrl+c":
		return tea.Quit
	case "esc", "backspace", "left":
		if m.screen == overview && key == "esc" {
			return tea.Quit
		}
		if m.screen == deadLetters {
			m.screen = m.back
		} else {
			m.screen = overview
		}
	case "enter", "right":
		if m.screen == overview && m.chosen != "" {
			m.screen = details
		}
	case "down", "j":
		m.move(1)
	case "up", "k":
		m.move(-1)
	case "pgdown", "space":
		m.move(10)
	case "pgup":
		m.move(-10)
	case "p":
		return m.operate("paused ", func(ctx context.Context, name string) error { return m.engine.Pause(ctx, name, "by perigee top") })
	case "r":
		return m.operate("resumed ", m.engine.Resume)
	case "d":
		return m.readLetters()
	default:
		if i := slices.IndexFunc(sortKeys, func(s sortKey) bool { return s.key == key }); i >= 0 {
			m.sort = i
			m.arrange()
		}
	}
	return nil
}

// move moves the choice, or the dead letters.
func (m *model) move(by int) {
	if m.screen == deadLetters {
		m.scroll = max(0, min(m.scroll+by, len(m.letters.all)-1))
		return
	}
	if len(m.rows) == 0 {
		return
	}
	at := slices.IndexFunc(m.rows, func(r row) bool { return r.name() == m.chosen })
	m.chosen = m.rows[max(0, min(at+by, len(m.rows)-1))].name()
}

// operate calls f for the chosen pipeline.
func (m *model) operate(text string, f func(ctx context.Context, pipeline string) error) tea.Cmd {
	name := m.chosen
	if name == "" {
		return nil
	}
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(m.ctx, callTimeout)
		defer cancel()
		return done{text + name, f(ctx, name)}
	}
}

func (m *model) readLetters() tea.Cmd {
	name := m.chosen
	if name == "" {
		return nil
	}
	if m.screen != deadLetters {
		m.back = m.screen
	}
	m.screen, m.scroll, m.letters = deadLetters, 0, letters{pipeline: name}
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(m.ctx, callTimeout)
		defer cancel()
		all, err := m.engine.DeadLetters(ctx, name, lettersMax)
		return letters{name, all, err}
	}
}

// A row is what is shown of a pipeline.
type row struct {
	now                sample
	in, out            float64 // events in a second
	lag                uint64  // of the slowest sink
	script, commit     float64 // share of the time, summed over lanes
	waits              float64 // share of the time that reading waits for commits
	p50, p99           time.Duration
	errors, deadPerSec float64 // in a second
	history            []float64
	sinks              []sinkRow
}

type sinkRow struct {
	admin.SinkStatus
	rate     float64 // rows in a second
	busy     float64
	p50, p99 time.Duration
}

func (r *row) name() string { return r.now.Pipeline }

// newRow computes rates from the samples of a pipeline, of which there is one at least.
func newRow(samples []sample) row {
	last := len(samples) - 1
	r := row{now: samples[last]}
	before := samples[max(0, last-window)]
	seconds := r.now.at.Sub(before.at).Seconds()
	per := func(after, before float64) float64 {
		if seconds <= 0 {
			return 0
		}
		return max(0, after-before) / seconds
	}
	r.in, r.out = per(float64(r.now.Read), float64(before.Read)), per(float64(r.now.Events), float64(before.Events))
	r.deadPerSec = per(float64(r.now.Dead), float64(before.Dead))
	r.script, r.waits = per(r.now.ScriptSeconds, before.ScriptSeconds), per(r.now.BackpressureSeconds, before.BackpressureSeconds)
	r.errors = per(float64(r.now.retries()), float64(before.retries()))
	r.lag = r.now.Lag
	recent := r.now.Deliveries.Since(&before.Deliveries)
	if last == 0 {
		recent = r.now.Deliveries
	}
	r.p50, r.p99 = recent.Quantile(0.5), recent.Quantile(0.99)
	for i, s := range r.now.Sinks {
		one := sinkRow{SinkStatus: s}
		commits := s.Commits
		if i < len(before.Sinks) && last > 0 {
			b := &before.Sinks[i]
			one.rate, one.busy = per(float64(s.Rows), float64(b.Rows)), per(s.Seconds, b.Seconds)
			commits = s.Commits.Since(&b.Commits)
		}
		one.p50, one.p99 = commits.Quantile(0.5), commits.Quantile(0.99)
		r.lag, r.commit = max(r.lag, s.Lag), r.commit+one.busy
		r.sinks = append(r.sinks, one)
	}
	for i := 1; i <= last; i++ {
		took := samples[i].at.Sub(samples[i-1].at).Seconds()
		r.history = append(r.history, float64(samples[i].Events-samples[i-1].Events)/max(took, 1e-3))
	}
	return r
}

// retries returns the failed attempts of all kinds.
func (s *sample) retries() uint64 {
	n := s.Retries
	for _, one := range s.Sinks {
		n += one.Retries
	}
	return n
}

// isWell reports whether the pipeline reads.
func (r *row) isWell() bool { return r.now.State == pipeline.Running }
