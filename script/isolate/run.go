//go:build linux

package isolate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/pool"
)

// A run passes one batch through workers. Runs are reused.
type run struct {
	s      *isolatedScript
	result *script.ResultBuilder
	frame  frame

	ctx    context.Context
	in     *event.Batch
	member *pool.Member // the worker that the run holds, or nil
	parts  []part       // the parts left to run; the last one is next
	done   int          // events of the current part that have been added
	bytes  int          // of all rows
	deaths int          // number of new workers that the isolated event has ended
	unused int          // consecutive workers that ended before they received a request
	search time.Time    // start of the search for events that end their workers
}

// A part is a range of the events of a batch.
type part struct{ first, end int }

// deathsMax is how many new workers an event must end by itself to become a dead letter. One death
// is not enough, since another process may kill a worker just when it runs the event.
const deathsMax = 2

// killsMax is deathsMax for workers killed by another process: by a person, or by the kernel when
// memory runs out.
const killsMax = 5

func newRun(s *isolatedScript) *run {
	r := &run{s: s, result: script.NewResultBuilder(&s.opts, s)}
	r.result.Invalid = func(reason string) (string, error) {
		return "script", fmt.Errorf("the script's process returned an invalid document: %s", reason)
	}
	return r
}

// Run implements script.Script.
func (s *isolatedScript) Run(ctx context.Context, in *event.Batch, res *event.Result) error {
	r := s.runs.Get().(*run)
	defer s.runs.Put(r)
	r.ctx, r.in, r.search, r.deaths, r.unused, r.bytes = ctx, in, time.Time{}, 0, 0, 0
	r.result.Start(in, res)
	ran, limit, err := r.runParts()
	r.release()
	if err == nil {
		err = r.result.Finish(ran)
	}
	if err != nil {
		res.Reset()
		return err
	}
	if limit != nil {
		return limit
	}
	return nil
}

func (r *run) release() {
	if r.member != nil {
		r.member.Release()
		r.member = nil
	}
}

// runParts runs the batch, as a whole while no worker dies.
func (r *run) runParts() (ran int, limit *script.LimitError, err error) {
	if r.in.Len() == 0 {
		return 0, nil, r.ctx.Err()
	}
	r.parts = append(r.parts[:0], part{0, r.in.Len()})
	for len(r.parts) > 0 {
		p := r.parts[len(r.parts)-1]
		r.parts = r.parts[:len(r.parts)-1]
		limit, err := r.runPart(p)
		p.first += r.done
		if err == errOutput {
			limit, err = &script.LimitError{Limit: "output", Err: &script.Error{
				Script: r.s.code.Name, Message: fmt.Sprintf("output limit: more than %d bytes", r.s.opts.Limits.Output),
			}}, nil
		}
		if died, ok := errors.AsType[*exitError](err); ok && r.ctx.Err() == nil {
			limit, err := r.handleDeath(p, died)
			if limit != nil || err != nil {
				return p.end, limit, err
			}
			continue
		}
		if err != nil {
			return 0, nil, err
		}
		if limit != nil {
			return p.first, limit, nil
		}
	}
	return r.in.Len(), nil, nil
}

// runPart runs one part in a worker and adds its result, piece by piece. Even after an error,
// r.done is the number of events of the part that have been added.
func (r *run) runPart(p part) (*script.LimitError, error) {
	r.done = 0
	w, err := r.acquire()
	if err != nil {
		return nil, err
	}
	n := p.end - p.first
	if !w.memory.fits(r.in, p) {
		r.splitLarge(p, fmt.Sprintf("the event is larger than %d bytes", requestBytes))
		return nil, nil
	}
	w.batches++
	limits := &r.s.opts.Limits
	q := request{
		message: message{kind: doRun, a: uint64(n)},
		budget:  budget{min(time.Duration(n)*limits.EventTime, limits.BatchTime) + grace, "the script"},
		serve:   r.s.serve(r.ctx),
		piece: func(m *message) error {
			limit, err := r.addPiece(w, p, m)
			if err == nil && limit != nil {
				err = w.fail(fmt.Errorf("%w: a piece ended by a limit", errFrame))
			}
			return err
		},
	}
	w.memory.writePieces(r.in, p, 0, 1)
	if n > pieceEvents {
		q.budget.processor += limits.BatchTime // a piece may begin just before the time is used up
		q.writeRest = func() { w.memory.writePieces(r.in, p, pieceEvents, n) }
	}
	answer, err := w.ask(r.ctx, &q)
	if err != nil {
		return nil, err
	}
	switch answer.kind {
	case ran:
	case tooLarge:
		if p.first += r.done; r.done > 0 {
			r.parts = append(r.parts, p)
		} else {
			r.splitLarge(p, fmt.Sprintf("output limit: more than %d bytes", limits.Output))
		}
		return nil, nil
	case failed: // whatever the failure: the worker must not stop the pipeline
		return nil, w.fail(readFailure(&decoder{buf: w.text}))
	default:
		return nil, w.fail(fmt.Errorf("%w: answer of kind %d", errFrame, answer.kind))
	}
	limit, err := r.addPiece(w, p, &answer)
	if err == nil && len(documents(r.in, p))+r.bytes > keptBytes {
		w.memory.release()
	}
	return limit, err
}

// addPiece adds an answer to a part. It returns errOutput, without adding it, at the output limit.
func (r *run) addPiece(w *process, p part, m *message) (*script.LimitError, error) {
	limits := &r.s.opts.Limits
	b := bounds{p.end - p.first - r.done, len(r.s.opts.Sinks), limits.Output, r.s.opts.ReturnsValue, r.done > 0, m.d&isPiece != 0}
	f := &r.frame
	if err := f.read(m, w.rest, w.text, b); err != nil {
		return nil, w.fail(err)
	}
	first := p.first + r.done
	if r.bytes+len(f.rows.Data) > limits.Output && first > 0 {
		if b.piece {
			_ = w.fail(errOutput) // it is already running the next piece
		}
		return nil, errOutput
	}
	r.deaths, r.unused = 0, 0
	rows := len(f.rows.Ends)
	data := len(f.rows.Data)
	r.bytes += data
	if err := r.add(first); err != nil {
		_ = w.fail(err)
		return nil, err
	}
	r.done += f.ran
	w.rest = w.rest.after(len(w.text), data, rows)
	return f.limit, nil
}

// errOutput means that the output of a batch exceeds its limit.
var errOutput = errors.New("output limit")

// grace is a worker's time beyond the limits, which its own engine normally enforces.
const grace = 500 * time.Millisecond

func (r *run) acquire() (*process, error) {
	if r.member == nil {
		m, err := r.s.group.Acquire(r.ctx)
		if err != nil {
			return nil, err
		}
		r.member = m
	}
	return r.member.VM.(*process), nil
}

// add adds the result of a part that begins at event first. It copies the documents from the shared
// memory before it checks them.
func (r *run) add(first int) error {
	f := &r.frame
	for i := range f.dead {
		d := &f.dead[i]
		r.result.Fail(first+d.event, d.stage, &d.fault)
	}
	if first > 0 {
		for i := range f.rows.From {
			f.rows.From[i] += uint32(first)
		}
	}
	r.result.AddRows(&f.rows)
	if err := r.result.CheckRows(); err != nil {
		return err
	}
	r.s.apply(&f.effects)
	return nil
}

// splitLarge splits a part if its events or rows do not fit the shared memory.
func (r *run) splitLarge(p part, message string) {
	if p.end-p.first == 1 {
		r.result.Fail(p.first, "script", &script.Error{Script: r.s.name, Message: message})
		return
	}
	r.split(p)
}

func (r *run) split(p part) {
	middle := (p.first + p.end) / 2
	r.parts = append(r.parts, part{middle, p.end}, part{p.first, middle})
}

// splitAround splits a part to isolate the event that the engine began last. A worker can lie about
// that event, which only prolongs the search.
func (r *run) splitAround(p part, current uint32) {
	if current >= uint32(p.end-p.first) {
		r.split(p)
		return
	}
	alone := p.first + int(current)
	for _, q := range []part{{alone + 1, p.end}, {alone, alone + 1}, {p.first, alone}} {
		if q.first < q.end {
			r.parts = append(r.parts, q)
		}
	}
}

// handleDeath decides what happens to the events of a worker that has died. Its result is lost, and
// none of it was used.
func (r *run) handleDeath(p part, died *exitError) (*script.LimitError, error) {
	w := r.member.VM.(*process)
	current := w.memory.current.Load()
	fresh := w.batches == 1
	r.release()
	n := p.end - p.first
	if w.unused {
		r.parts = append(r.parts, p)
		r.unused++
		return nil, backOff(r.ctx, r.unused-1)
	}
	r.s.log.Line(slog.LevelWarn, fmt.Sprintf("process %d: %v; running its %d events again in a new process", w.process.Pid, died, n), r.s.name, "isolate")
	if r.search.IsZero() {
		r.search = time.Now()
	}
	if n > 1 {
		r.splitAround(p, current)
		return nil, nil
	}
	if fresh {
		r.deaths++
	}
	allowed := deathsMax
	if died.killed() {
		allowed = killsMax
	}
	if r.deaths < allowed {
		r.parts = append(r.parts, p)
		return nil, nil
	}
	r.deaths = 0
	r.result.Fail(p.first, "script", &script.Error{Message: died.Error(), Traceback: died.report})
	if len(r.parts) > 0 && time.Since(r.search) >= wallFactor*r.s.opts.Limits.BatchTime {
		return &script.LimitError{Limit: "batch time", Err: &script.Error{
			Script: r.s.code.Name, Message: "events ended the script's process until the batch's time was used up",
		}}, nil
	}
	return nil, nil
}
