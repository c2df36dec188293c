package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/nodedb"
)

// This file is how a script reads the state of another pipeline of the same engine. A run begins with
// a snapshot of the committed state: of the unit, if this worker has it, and else of a copy that
// follows the worker that does. Followers of states that are read are kept until the pipeline is
// closed, also while it is paused or has ended.

// A Read is the state of another pipeline that a script reads.
type Read struct {
	State string // its name
	// Open takes a snapshot. Its error says why the state is not there yet; Open is called again.
	Open func() (*StateReader, error)
}

// A StateReader reads a snapshot of the state of a pipeline. It implements event.State.
type StateReader struct {
	*nodedb.Reader
	done func() // ends the use of the unit; nil for a copy
}

// Close releases the snapshot.
func (r *StateReader) Close() {
	r.Reader.Close()
	if r.done != nil {
		r.done()
	}
}

// OpenReader takes a snapshot of the committed state of a pipeline whose partitions share it. From
// the first call on, this worker follows the state while another one owns it.
func (p *Pipeline) OpenReader() (*StateReader, error) {
	name := p.config.State.UnitOf("")
	if err := p.followers.keep(name); err != nil {
		return nil, err
	}
	if u, done := p.units.peek(name); u != nil {
		reader, err := u.OpenReader()
		if err != nil {
			go done() // the last user closes the unit, which may take a while
			return nil, p.notThere(err)
		}
		return &StateReader{reader, done}, nil
	}
	if p.followers.isReady(name) {
		if copied := p.followers.peek(name); copied != nil {
			reader, err := copied.OpenReader()
			if err != nil {
				return nil, p.notThere(err)
			}
			return &StateReader{Reader: reader}, nil
		}
	}
	err := p.followers.refusal(name)
	if err == nil {
		err = p.units.refusal(name)
	}
	if err == nil {
		err = event.WithHint(errors.New("this worker is opening or copying it"), "if it does not come, look at the status of its pipeline")
	}
	return nil, p.notThere(err)
}

// notThere says why a state cannot be read.
func (p *Pipeline) notThere(err error) error {
	return event.WithHint(fmt.Errorf("state %s of pipeline %s is not there yet: %w", p.config.State.Name, p.config.Name, err), event.HintOf(err))
}

// refusal returns why a unit could not be opened when that was last tried, or nil.
func (us *units) refusal(name string) error {
	us.mu.Lock()
	defer us.mu.Unlock()
	if r := us.refused[name]; r != nil && r.err != nil {
		return r.err
	}
	return nil
}

// Close ends what goes on after Run for the pipelines that read the state. Call it before the sinks
// are closed.
func (p *Pipeline) Close() {
	if p.followers != nil {
		p.followers.close()
	}
}

const (
	firstReadWait   = 20 * time.Millisecond
	longestReadWait = time.Second
)

// attachReads gives a batch snapshots of the states that the script reads, until done is called. It
// waits while one is not there.
func (p *Pipeline) attachReads(ctx context.Context, b *event.Batch) (done func(), err error) {
	var opened []*StateReader
	done = func() {
		b.Reads = nil
		for _, r := range opened {
			r.Close()
		}
	}
	for _, read := range p.config.Reads {
		r, err := p.openRead(ctx, read)
		if err != nil {
			done()
			return nil, err
		}
		opened = append(opened, r)
		b.Reads = append(b.Reads, r)
	}
	return done, nil
}

// openRead waits for a state and opens it.
func (p *Pipeline) openRead(ctx context.Context, read Read) (*StateReader, error) {
	r, err := read.Open()
	if err == nil {
		return r, nil
	}
	began, key := time.Now(), &readKey{read.State}
	defer p.status.removeFailure(key)
	told := false
	for wait := firstReadWait; ; wait = min(2*wait, longestReadWait) {
		p.status.addFailure(key, err)
		if !told && wait == longestReadWait {
			told = true
			p.log.Warn("the script waits for the state of another pipeline", "reason", err, "hint", event.HintOf(err))
		}
		if !sleep(ctx, wait) {
			return nil, ctx.Err()
		}
		if r, err = read.Open(); err == nil {
			if told {
				p.log.Info("the script goes on", "state", read.State, "after", time.Since(began).Round(time.Millisecond))
			}
			return r, nil
		}
	}
}

// A readKey is the key of the status of a run that waits for a state.
type readKey struct{ state string }

// keep follows a unit while this worker does not have it, from now on.
func (fs *followers) keep(name string) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	switch {
	case fs.read[name]:
		return nil
	case fs.closed:
		return fmt.Errorf("pipeline %s of state %s has ended", fs.p.config.Name, fs.p.config.State.Name)
	}
	fs.read[name] = true
	if fs.stop == nil {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		fs.stop = func() {
			cancel()
			<-ended
		}
		go func() {
			defer close(ended)
			fs.run(ctx, func() bool {
				follows := fs.addRead()
				return follows && !fs.leased.Load()
			})
		}()
	}
	return nil
}

// addRead follows the units that are read and that this worker does not have. It reports whether any
// is followed.
func (fs *followers) addRead() bool {
	fs.mu.Lock()
	var names []string
	for name := range fs.read {
		names = append(names, name)
	}
	fs.mu.Unlock()
	for _, name := range names {
		if fs.isRefused(name) {
			fs.mu.Lock()
			fs.closeFollower(name)
			fs.mu.Unlock()
			continue
		}
		fs.p.units.callUnlessOpen(name, func() { fs.add(name) })
	}
	return len(fs.names()) > 0
}

// callUnlessOpen calls f, unless a session uses a unit or it is being closed. No session begins to use
// it meanwhile.
func (us *units) callUnlessOpen(name string, f func()) {
	us.mu.Lock()
	defer us.mu.Unlock()
	if us.open[name] == nil {
		f()
	}
}

// close stops following the units that are read, for good.
func (fs *followers) close() {
	fs.mu.Lock()
	fs.closed = true
	stop := fs.stop
	fs.mu.Unlock()
	if stop == nil {
		return
	}
	stop()
	fs.mu.Lock()
	clear(fs.read)
	for name := range fs.all {
		fs.closeFollower(name)
	}
	fs.stop = nil
	fs.mu.Unlock()
	fs.waitUntilClosed()
}
