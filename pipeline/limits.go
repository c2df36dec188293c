package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/perigeedb/perigee/script"
)

// A pipeline whose script hits limits slows down. Events that hit a limit become dead letters
// and the pipeline goes on, ever slower, because the next event may be another sender's. It
// pauses only when no event passes any more. Then it tries one batch after the other until an
// event passes.
const (
	// limitsToPause is the number of runs in a row that end at a limit, and in which no event
	// passed, before the pipeline pauses itself.
	limitsToPause = 10

	firstPauseWait   = 10 * time.Second // before the first batch is tried; doubles from there
	longestPauseWait = 10 * time.Minute
	versionInterval  = time.Second // how often a pause looks for a new version of the script
)

// pauseWait returns how long the pause lasts that follows so many others.
func pauseWait(others int) time.Duration {
	if others >= 6 {
		return longestPauseWait
	}
	return firstPauseWait << others
}

// limits is how the runs of a pipeline's script ended lately, in all lanes. It is safe for
// concurrent use.
type limits struct {
	mu      sync.Mutex
	total   uint64        // runs that ended at a limit
	dying   int           // those in which events died, since a run without a limit in which an event passed
	blocked int           // those since an event passed
	pauses  int           // that ended with nothing but limits, in a row
	trying  bool          // one batch is tried at a time
	tried   *claim        // that batch, once it is read; nobody's in a pause
	changed chan struct{} // closed at the next change of the two above
}

func newLimits() *limits { return &limits{changed: make(chan struct{})} }

func (l *limits) update(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
	close(l.changed)
	l.changed = make(chan struct{})
}

// count records a run in which so many events ran and died. It returns how long to wait before
// the next run, and whether nothing passes any more.
func (l *limits) count(limited bool, ran, died int) (wait time.Duration, blocked bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	passed := died < ran
	if passed {
		l.blocked = 0
	}
	if !limited {
		if passed {
			l.dying = 0
		}
		return 0, false
	}
	l.total++
	if !passed {
		l.blocked++
	}
	if ran > 0 && died == 0 {
		return 0, false // the batch was only too much at once
	}
	l.dying++
	return backoffWait(l.dying - 1), l.blocked >= limitsToPause
}

func (l *limits) runs() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

// reset forgets all limits: a person or a new script ended the pause.
func (l *limits) reset() {
	l.update(func() { l.dying, l.blocked, l.pauses, l.trying, l.tried = 0, 0, 0, false, nil })
}

// try lets one batch through, and no other before endTry.
func (l *limits) try(pauses int) {
	l.update(func() { l.dying, l.blocked, l.pauses, l.trying, l.tried = 0, 0, pauses, true, nil })
}

// admit waits until a claim may run: at once, unless one batch is tried and it is not this
// one. It returns false if ctx ends first.
func (l *limits) admit(ctx context.Context, c *claim) bool {
	for {
		l.mu.Lock()
		if l.trying && l.tried == nil {
			l.tried = c
		}
		admitted, changed := !l.trying || l.tried == c, l.changed
		l.mu.Unlock()
		if admitted || ctx.Err() != nil {
			return admitted
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// isTried tells whether a claim is the one batch that is tried.
func (l *limits) isTried(c *claim) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.trying && l.tried == c
}

// block lets no more batches through, in a pause.
func (l *limits) block() (pauses int) {
	l.update(func() {
		pauses = l.pauses
		l.pauses++
		l.trying, l.tried = true, new(claim)
	})
	return pauses
}

// abandon lets another batch be tried in place of one of these, which ended with their session.
func (l *limits) abandon(claims []*claim) {
	for _, c := range claims {
		if l.isTried(c) {
			l.update(func() { l.tried = nil })
		}
	}
}

// countLimits records a run on events from position first on. Then it waits, if the script has
// hit limits, or pauses the pipeline and returns errPaused.
func (d *delivery) countLimits(ctx context.Context, c *claim, limit *script.LimitError, first uint64) error {
	if isNoteLimit(limit) {
		limit = nil // the events fit the next note
	}
	limits := d.p.limits
	died := int(countDeadEvents(d.result, first))
	wait, blocked := limits.count(limit != nil, d.result.Ran, died)
	switch {
	case limits.isTried(c) && d.result.Ran > 0: // endTry decides
		c.passed = c.passed || died < d.result.Ran
		return nil
	case blocked:
		return d.p.pauseForLimits(fmt.Sprintf("script %s: no event passed in %d runs in a row that hit a limit, the last one at position %d of partition %s: %v",
			d.script, limitsToPause, first+uint64(d.result.Ran), d.partition, limit))
	case wait > 0:
		sleep(d.assignment.reading, wait)
	}
	return ctx.Err()
}

// endTry ends the trial of a batch that has been delivered: if something of it passed, the
// pipeline goes on, otherwise it pauses for longer.
func (s *session) endTry(c *claim) error {
	if !s.p.limits.isTried(c) {
		return nil
	}
	if !c.passed {
		return s.p.pauseForLimits(fmt.Sprintf("script %s: no event passed in the batch that was tried, at positions %s of partition %s; all of them hit a limit or failed beside those that did",
			s.p.config.Script, c.batch.Range, s.partition))
	}
	s.p.limits.reset()
	s.p.log.Info("events pass the script again; the pipeline goes on")
	return s.p.storePause(nil)
}

// pauseForLimits pauses the pipeline, from inside a session, until it tries a batch by itself.
func (p *Pipeline) pauseForLimits(reason string) error {
	pauses := p.limits.block()
	wait, now := pauseWait(pauses), time.Now().UTC()
	next := now.Add(wait)
	pause := Pause{Reason: reason, Since: now.Truncate(time.Second), Next: &next, Pauses: pauses + 1, Script: p.config.Script.String()}
	if !p.readGate.pauseUnlessPaused(pause) {
		return errPaused // by a person, who decides when it ends
	}
	p.status.setPaused(errors.New(reason))
	p.log.Warn("pipeline paused, because nothing passes its script; it tries one batch when the wait is over",
		"reason", reason, "wait", wait, "next", next, "resume now", "perigee resume "+p.config.Name)
	if err := p.storePause(&pause); err != nil {
		p.log.Error("a restart would end the pause, because it could not be stored", "error", err)
	}
	return errPaused
}

// storePause stores a pause; nil removes the stored one.
func (p *Pipeline) storePause(pause *Pause) error {
	if p.config.Folder == "" {
		return nil
	}
	return WritePause(p.config.Folder, p.config.Name, pause)
}

// waitUntilOpen waits until the pipeline may read: a pause for limits ends by itself. It returns
// false if that will not happen.
func (p *Pipeline) waitUntilOpen(ctx context.Context) bool {
	for {
		pause := p.readGate.paused()
		if pause == nil || pause.Next == nil {
			return p.readGate.waitUntilOpen(ctx, nil)
		}
		if version := p.config.Script.String(); version != pause.Script {
			p.log.Info("the script has changed; the pipeline goes on", "before", pause.Script, "now", version)
			if err := p.Resume(); err != nil {
				p.log.Error("a restart would pause the pipeline again, because the end of the pause could not be stored", "error", err)
				p.resume()
			}
			continue
		}
		wait := time.Until(*pause.Next)
		if wait <= 0 {
			p.tryAgain(pause)
			continue
		}
		waiting, cancel := context.WithTimeout(ctx, min(wait, versionInterval))
		open := p.readGate.waitUntilOpen(waiting, pause)
		cancel()
		if !open && (ctx.Err() != nil || p.readGate.isDrained()) {
			return false
		}
	}
}

// tryAgain ends a pause for limits by trying one batch. The stored pause stays until something of
// it passes, so that a restart does not shorten the waits.
func (p *Pipeline) tryAgain(pause *Pause) {
	p.limits.try(pause.Pauses)
	if p.readGate.resumeIf(pause) {
		p.status.setPaused(nil)
		p.log.Info("the pipeline tries one batch, to see whether events pass its script again", "pauses", pause.Pauses)
	}
}
