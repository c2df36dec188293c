package reload

import (
	"context"
	"maps"
	"os"
	"time"
)

// glance is the time between two glances at the files of this machine.
const glance = time.Second

// A Watcher tells scripts to look for new versions: soon when a file of theirs
// is another one than before, wherever links lead to it now; everywhere at
// regular times; and when it is asked to.
type Watcher struct {
	scripts []*Script
	every   time.Duration
	seen    map[string]stamp
	ask     chan struct{}
}

// A stamp tells most versions of a file apart without reading it. The regular
// look reads.
type stamp struct {
	size    int64
	changed time.Time
}

// NewWatcher makes a watcher, which does nothing before Run. every is the time
// between two looks at all origins; 0 looks only when asked.
func NewWatcher(scripts []*Script, every time.Duration) *Watcher {
	w := &Watcher{scripts: scripts, every: every, ask: make(chan struct{}, 1)}
	w.seen = w.stamps()
	return w
}

// Ask makes the watcher look now, and log also what is unchanged.
func (w *Watcher) Ask() {
	select {
	case w.ask <- struct{}{}:
	default: // it will
	}
}

// Run watches until ctx ends.
func (w *Watcher) Run(ctx context.Context) {
	var soon, regularly <-chan time.Time
	if w.every > 0 {
		often, seldom := time.NewTicker(min(glance, w.every)), time.NewTicker(w.every)
		defer often.Stop()
		defer seldom.Stop()
		soon, regularly = often.C, seldom.C
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-soon:
			if now := w.stamps(); !maps.Equal(now, w.seen) {
				w.seen = now
				w.check(ctx, false)
			}
		case <-regularly:
			w.check(ctx, true)
		case <-w.ask:
			w.answer(ctx)
		}
	}
}

func (w *Watcher) check(ctx context.Context, remote bool) {
	for _, s := range w.scripts {
		s.Check(ctx, remote)
	}
}

// answer is check for a person who waits for a word.
func (w *Watcher) answer(ctx context.Context) {
	for _, s := range w.scripts {
		before := s.Counts()
		s.Check(ctx, true)
		if s.Counts() == before {
			s.config.Log.Info("script unchanged", "script", s.String())
		}
	}
}

// stamps glances at all files. One that is not there has the stamp of none.
func (w *Watcher) stamps() map[string]stamp {
	all := map[string]stamp{}
	for _, s := range w.scripts {
		for _, file := range s.files() {
			all[file] = stamp{}
			if info, err := os.Stat(file); err == nil {
				all[file] = stamp{size: info.Size(), changed: info.ModTime()}
			}
		}
	}
	return all
}
