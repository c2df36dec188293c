package reload

import (
	"context"
	"maps"
	"os"
	"sync"
	"time"
)

// filePoll is how often local files are checked.
const filePoll = time.Second

// A Watcher makes scripts check for new versions: soon after one of their local files
// has changed, also behind symbolic links; at regular intervals; and on request. A slow
// host delays no other script.
type Watcher struct {
	every   time.Duration
	watched []*watchedScript
}

// A watchedScript is a script with a goroutine that watches it.
type watchedScript struct {
	*Script
	stamps        map[string]fileStamp
	checkRequests chan struct{}
}

// A fileStamp detects most changes of a file without reading it. The regular check
// reads it.
type fileStamp struct {
	size    int64
	changed time.Time
}

// NewWatcher returns a watcher; call Run. every is the interval between checks of all
// origins; 0 checks only on request.
func NewWatcher(scripts []*Script, every time.Duration) *Watcher {
	w := &Watcher{every: every}
	for _, s := range scripts {
		w.watched = append(w.watched, &watchedScript{Script: s, stamps: s.fileStamps(), checkRequests: make(chan struct{}, 1)})
	}
	return w
}

// Ask makes the watcher check now. It logs unchanged scripts, too.
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
			if s.filesChanged() {
				s.Check(ctx, false)
			}
		case <-regularly:
			s.Check(ctx, true)
		case <-s.checkRequests:
			s.checkNow(ctx)
		}
	}
}

// checkNow is Check with a log line for an unchanged script.
func (s *watchedScript) checkNow(ctx context.Context) {
	before := s.Counts()
	s.Check(ctx, true)
	if s.Counts() == before {
		s.config.Log.Info("script unchanged", "script", s.String())
	}
}

// filesChanged reports whether the stamp of a local file has changed since the last call.
func (s *watchedScript) filesChanged() bool {
	before := s.stamps
	s.stamps = s.fileStamps()
	return !maps.Equal(s.stamps, before)
}

// fileStamps returns the stamps of all local files. A missing file has the zero stamp.
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
