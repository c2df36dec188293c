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
	"github.com/perigeedb/perigee/internal/rates"
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

// A sortKey orders the pipelines.
type sortKey struct {
	key   string // that chooses it
	title string
	less  func(a, b *rates.Pipeline) int
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

	history rates.History
	rows    []rates.Pipeline // in order
	sort    int              // index of sortKeys
	chosen  string           // pipeline
	screen  screen
	back    screen // behind the dead letters
	letters letters
	scroll  int // first dead letter that is shown
	message string
	failure error // of the last reading
}

func newModel(e Engine) *model {
	return &model{ctx: context.Background(), engine: e, width: 100, height: 30}
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
	m.history.Add(r.at, r.all)
	m.arrange()
}

// arrange makes the rows of the history, in order.
func (m *model) arrange() {
	m.rows = m.history.Pipelines()
	slices.SortFunc(m.rows, func(a, b rates.Pipeline) int {
		if c := sortKeys[m.sort].less(&a, &b); c != 0 {
			return c
		}
		return sortKeys[0].less(&a, &b)
	})
	if len(m.rows) > 0 && m.find(m.chosen) == nil {
		m.chosen, m.screen = m.rows[0].Name(), overview
	}
}

// find returns the row of a pipeline, or nil.
func (m *model) find(name string) *rates.Pipeline {
	i := slices.IndexFunc(m.rows, func(p rates.Pipeline) bool { return p.Name() == name })
	if i < 0 {
		return nil
	}
	return &m.rows[i]
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
	at := slices.IndexFunc(m.rows, func(p rates.Pipeline) bool { return p.Name() == m.chosen })
	m.chosen = m.rows[max(0, min(at+by, len(m.rows)-1))].Name()
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

// isWell reports whether a pipeline reads.
func isWell(p *rates.Pipeline) bool { return p.Status.State == pipeline.Running }
