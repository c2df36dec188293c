package reload

import (
	"context"
	"maps"
	"os"
	"sync"
	"time"
)

// glance is the time between two glances at the files of this machine.
const glance = time.Second

// A Watcher tells scripts to look for new versions: soon when a file of theirs
// is another one than before, wherever links lead to it now; everywhere at
// regular times; and when it is asked to. A host that is slow to answer keeps no
// other script waiting.
type Watcher struct {
	every   time.Duration
	watched []*watched
}

// A watched script is looked at by one goroutine.
type watched struct {
	*Script
	seen map[string]stamp
	ask  chan struct{}
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
	w := &Watcher{every: every}
	for _, s := range scripts {
		w.watched = append(w.watched, &watched{Script: s, seen: s.stamps(), ask: make(chan struct{}, 1)})
	}
	return w
}

// Ask makes the watcher look now, and log also what is unchanged.
func (w *Watcher) Ask() {
	for _, s := range w.watched {
		select {
		case s.ask <- struct{}{}:
		default: // it will
		}
	}
}

// Run watches until ctx ends.
func (w *Watcher) Run(ctx context.Context) {
	var watching sync.WaitGroup
	for _, s := range w.watched {
		watching.Go(func() { s.watch(ctx, w.every) })
	}
	watching.Wait()
}

func (s *watched) watch(ctx context.Context, every time.Duration) {
	var soon, regularly <-chan time.Time
	if every > 0 {
		often, seldom := time.NewTicker(min(glance, every)), time.NewTicker(every)
		defer often.Stop()
		defer seldom.Stop()
		soon, regularly = often.C, seldom.C
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-soon:
			if now := s.stamps(); !maps.Equal(now, s.seen) {
				s.seen = now
				s.Check(ctx, false)
			}
		case <-regularly:
			s.Check(ctx, true)
		case <-s.ask:
			s.answer(ctx)
		}
	}
}

// answer is Check for a person who waits for a word.
func (s *watched) answer(ctx context.Context) {
	before := s.Counts()
	s.Check(ctx, true)
	if s.Counts() == before {
		s.config.Log.Info("script unchanged", "script", s.String())
	}
}

// stamps glances at all files. One that is not there has the stamp of none.
func (s *Script) stamps() map[string]stamp {
	all := map[string]stamp{}
	for _, file := range s.files() {
		all[file] = stamp{}
		if info, err := os.Stat(file); err == nil {
			all[file] = stamp{size: info.Size(), changed: info.ModTime()}
		}
	}
	return all
}
