package reload

import (
	"context"
	"maps"
	"os"
	"sync"
	"time"
)

// filePoll is the time between two glances at the files of this machine.
const filePoll = time.Second

// A Watcher tells scripts to look for new versions: soon when a file of theirs
// is another one than before, wherever links lead to it now; everywhere at
// regular times; and when it is asked to. A host that is slow to answer keeps no
// other script waiting.
type Watcher struct {
	every   time.Duration
	watched []*watchedScript
}

// A watchedScript script is looked at by one goroutine.
type watchedScript struct {
	*Script
	stamps        map[string]fileStamp
	checkRequests chan struct{}
}

// A fileStamp tells most versions of a file apart without reading it. The regular
// look reads.
type fileStamp struct {
	size    int64
	changed time.Time
}

// NewWatcher makes a watcher, which does nothing before Run. every is the time
// between two looks at all origins; 0 looks only when asked.
func NewWatcher(scripts []*Script, every time.Duration) *Watcher {
	w := &Watcher{every: every}
	for _, s := range scripts {
		w.watched = append(w.watched, &watchedScript{Script: s, stamps: s.fileStamps(), checkRequests: make(chan struct{}, 1)})
	}
	return w
}

// Ask makes the watcher look now, and log also what is unchanged.
func (w *Watcher) Ask() {
	for _, s := range w.watched {
		select {
		case s.checkRequests <- struct{}{}:
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

func (s *watchedScript) watch(ctx context.Context, every time.Duration) {
	var soon, regularly <-chan time.Time
	if every > 0 {
		often, seldom := time.NewTicker(min(filePoll, every)), time.NewTicker(every)
		defer often.Stop()
		defer seldom.Stop()
		soon, regularly = often.C, seldom.C
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-soon:
			if now := s.fileStamps(); !maps.Equal(now, s.stamps) {
				s.stamps = now
				s.Check(ctx, false)
			}
		case <-regularly:
			s.Check(ctx, true)
		case <-s.checkRequests:
			s.checkNow(ctx)
		}
	}
}

// checkNow is Check for a person who waits for a word.
func (s *watchedScript) checkNow(ctx context.Context) {
	before := s.Counts()
	s.Check(ctx, true)
	if s.Counts() == before {
		s.config.Log.Info("script unchanged", "script", s.String())
	}
}

// fileStamps glances at all files. One that is not there has the stamp of none.
func (s *Script) fileStamps() map[string]fileStamp {
	all := map[string]fileStamp{}
	for _, file := range s.files() {
		all[file] = fileStamp{}
		if info, err := os.Stat(file); err == nil {
			all[file] = fileStamp{size: info.Size(), changed: info.ModTime()}
		}
	}
	return all
}
