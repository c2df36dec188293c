//go:build linux

package isolate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/pool"
)

func isWorker() bool { return os.Getenv(workerVariable) != "" }

// A worker is the state of the process that runs a script.
type worker struct {
	languages []script.Language
	memory    *memory
	rest      *memory // the memory after the earlier pieces
	number    uint64  // of the request
	whole     bool    // the request is completely written

	script  script.Script
	name    string
	options script.Options
	lines   lines
	batch   event.Batch
	result  event.Result

	calling sync.Mutex // one call at a time
	files   requiredFiles
}

// serve answers requests until the parent ends.
func serve(languages []script.Language) {
	runtime.LockOSThread()
	l, err := parseLayout(os.Getenv(workerVariable))
	w := &worker{languages: languages, result: event.Result{Outputs: make([]event.Output, 1)}}
	if err == nil {
		w.memory, err = mapMemory(memoryFile, l)
	}
	for err == nil {
		var m message
		if m, err = w.receive(); err == nil {
			err = w.answer(m)
		}
	}
	if err != errParent {
		fmt.Fprintln(os.Stderr, "script worker:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// errParent means that the parent has closed the connection.
var errParent = errors.New("the parent has ended")

// receive returns the next message other than restWritten, which sets whole.
func (w *worker) receive() (m message, err error) {
	for err == nil {
		if m, err = receiveMessage(); m.kind != restWritten {
			break
		}
		w.whole = true
	}
	return m, err
}

func receiveMessage() (m message, err error) {
	var b [messageBytes]byte
	for {
		n, err := unix.Read(socketFile, b[:])
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return m, os.NewSyscallError("read", err)
		case n != messageBytes:
			return m, errParent
		}
		m.decode(&b)
		return m, nil
	}
}

// awaitRest waits until the request is completely written.
func (w *worker) awaitRest() error {
	for !w.whole {
		m, err := receiveMessage()
		if err != nil {
			return err
		}
		w.whole = m.kind == restWritten
	}
	return nil
}

func (w *worker) answer(m message) error {
	w.number, w.rest = m.number, w.memory
	switch m.kind {
	case doLoad:
		return w.load(m)
	case doRun:
		return w.run(m)
	}
	return fmt.Errorf("request of unknown kind %d", m.kind)
}

// reply sends an answer with a text. If the text does not fit the memory, it sends tooLarge.
func (w *worker) reply(m message, e *encoder) error {
	if e.full {
		m = message{kind: tooLarge}
	}
	m.number, m.a = w.number, uint64(len(e.buf))
	return send(socketFile, m)
}

func (w *worker) textEncoder() *encoder { return &encoder{buf: w.rest.text[:0]} }

func (w *worker) fail(err error) error {
	e := w.textEncoder()
	writeFailure(e, err)
	return w.reply(message{kind: failed}, e)
}

// load gives up everything that code does not need, and loads the code.
func (w *worker) load(m message) error {
	q := decodeLoadRequest(&decoder{buf: w.memory.request[:m.a]}, w.function, w.readFile)
	w.options = q.options
	w.options.Current = w.memory.current
	w.options.Log = slog.New(&handler{lines: &w.lines, level: q.level})
	// A worker runs one batch at a time, so one VM is enough.
	w.options.Pool = pool.New(pool.Settings{Core: 1, Max: 1, Memory: -1})
	i := slices.IndexFunc(w.languages, func(l script.Language) bool { return l.Name == q.language })
	if i < 0 {
		return w.fail(fmt.Errorf("unknown language %s", q.language))
	}
	mapped, err := w.readMapped()
	if err != nil {
		return err
	}
	missing, err := confine(q.options.Limits.Memory, mapped, q.code.File != "")
	if err == nil {
		w.script, err = w.languages[i].Load(context.Background(), q.code, w.options)
	}
	if err == nil && q.code.File != "" {
		err = endLoading()
	}
	if err == nil && q.code.Files != nil {
		err = w.readNamedFiles(&q.code)
	}
	if err != nil {
		return w.fail(err)
	}
	w.name = w.script.String()
	e := w.textEncoder()
	e.short(w.name, nameMax)
	e.int(len(missing))
	for _, what := range missing {
		e.short(what, nameMax)
	}
	done := w.takeEffects()
	done.encode(e)
	return w.reply(message{kind: loaded}, e)
}

// run runs a batch in pieces. Their rows are appended to the shared memory.
func (w *worker) run(m message) error {
	ends := requestEnds(w.memory.request, int(m.a))
	data := w.memory.request[4*len(ends):]
	w.whole = len(ends) <= pieceEvents
	began := processorTime()
	for done := 0; ; {
		n := min(len(ends), pieceEvents)
		w.batch.Ends, ends = ends[:n:n], ends[n:]
		size := w.batch.Ends[n-1]
		w.batch.Data, data = data[:size:size], data[size:]
		if len(ends) == 0 {
			_, err := w.runPiece(0)
			return err
		}
		if more, err := w.runPiece(isPiece); err != nil || !more {
			return err
		}
		// Assume that the next piece takes as long as the average so far.
		done += n
		if used := processorTime() - began; used+used*pieceEvents/time.Duration(done) > w.options.Limits.WithDefaults().BatchTime {
			return w.batchTime()
		}
		if err := w.awaitRest(); err != nil {
			return err
		}
	}
}

// runPiece runs a piece and answers. more reports whether the next piece may run.
func (w *worker) runPiece(flags uint64) (more bool, err error) {
	to := w.rest
	w.memory.current.Store(noEvent)
	w.batch.Range = event.Range{Count: uint64(w.batch.Len())}
	out := &w.result.Outputs[0]
	out.Data, out.Ends, out.From, out.To = to.data[:0], to.ends[:0], to.from[:0], to.to[:0]
	err = w.script.Run(context.Background(), &w.batch, &w.result)
	limit, isLimit := errors.AsType[*script.LimitError](err)
	if err != nil && !isLimit {
		return false, w.fail(err)
	}
	if isLimit {
		flags = 0
	}
	answer := message{kind: ran, b: uint64(w.result.Ran), c: uint64(len(out.Data)), d: uint64(len(out.Ends)) | flags}
	fits := copyBack(to.data, out.Data) && copyBack(to.ends, out.Ends) && copyBack(to.from, out.From)
	if len(out.To) > 0 {
		fits = fits && copyBack(to.to, out.To)
		clear(to.to[min(len(out.To), len(out.Ends), len(to.to)):min(len(out.Ends), len(to.to))])
		answer.d |= hasSinks
	}
	e := w.textEncoder()
	f := frame{dead: w.deadEvents(), limit: limit, effects: w.takeEffects()}
	f.encodeText(e)
	e.full = e.full || !fits
	more = flags != 0 && !e.full
	err = w.reply(answer, e)
	if more {
		w.rest = to.after(len(e.buf), len(out.Data), len(out.Ends))
	}
	return more, err
}

// batchTime answers, without events, that the pieces so far have used up the batch's time.
func (w *worker) batchTime() error {
	e := w.textEncoder()
	f := frame{limit: &script.LimitError{Limit: "batch time", Err: &script.Error{
		Script: w.name, Message: "time limit: the events before have used up the time of the batch",
	}}}
	f.encodeText(e)
	return w.reply(message{kind: ran}, e)
}

func processorTime() time.Duration {
	var used unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &used) // cannot fail for this process
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// copyBack copies values back to the shared memory if appending has moved them elsewhere, and
// reports whether they fit.
func copyBack[T any](area, values []T) bool {
	if len(values) > len(area) {
		return false
	}
	if len(values) > 0 && &values[0] != &area[0] {
		copy(area, values)
	}
	return true
}

func (w *worker) deadEvents() (dead []deadEvent) {
	for i := range w.result.Dead {
		d := &w.result.Dead[i]
		dead = append(dead, deadEvent{event: int(d.Position), stage: d.Stage, fault: script.Error{Message: d.Error, Traceback: d.Traceback}})
	}
	return dead
}

func (w *worker) takeEffects() effects {
	x := effects{lines: w.lines.take()}
	if w.options.Stats != nil {
		x.stats, x.refused = w.options.Stats.Take()
	}
	return x
}

// call calls the parent. The result is valid until the next call.
func (w *worker) call(e *encoder) ([]byte, error) {
	if e.full {
		return nil, fmt.Errorf("the arguments are larger than %d bytes", textBytes)
	}
	if err := send(socketFile, message{kind: call, number: w.number, a: uint64(len(e.buf))}); err != nil {
		return nil, err
	}
	m, err := w.receive()
	if err != nil || m.kind != results {
		return nil, errParent
	}
	return w.rest.text[:m.a], nil
}

// readMapped asks the parent how many bytes this process has mapped, which it cannot read itself.
func (w *worker) readMapped() (uint64, error) {
	e := w.textEncoder()
	e.uint(callMapped)
	reply, err := w.call(e)
	if err != nil {
		return 0, err
	}
	d := &decoder{buf: reply}
	mapped := d.uint()
	return mapped, d.end()
}

// function returns a function that calls a function of the parent.
func (w *worker) function(module, name string) script.Func {
	return func(_ context.Context, args []any) ([]any, error) {
		w.calling.Lock()
		defer w.calling.Unlock()
		e := w.textEncoder()
		e.uint(callFunction)
		e.text(module)
		e.text(name)
		if err := e.values(args, 0); err != nil {
			return nil, err
		}
		reply, err := w.call(e)
		if err != nil {
			return nil, err
		}
		d := &decoder{buf: reply}
		if d.bool() {
			values := d.values(0)
			return values, d.end()
		}
		if d.bool() {
			return nil, fmt.Errorf("%w: %s", script.ErrMemory, d.text())
		}
		return nil, errors.New(d.text())
	}
}

// lines collects the log lines of a request.
type lines struct {
	mu  sync.Mutex
	all []logLine
}

func (l *lines) take() []logLine {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.all
	l.all = nil
	return all
}

// A handler collects log lines for the parent.
type handler struct {
	lines *lines
	level slog.Level
	attrs []slog.Attr
}

// Enabled implements slog.Handler.
func (h *handler) Enabled(_ context.Context, level slog.Level) bool { return level >= h.level }

// Handle implements slog.Handler.
func (h *handler) Handle(_ context.Context, r slog.Record) error {
	line := logLine{level: r.Level, text: r.Message}
	add := func(a slog.Attr) bool {
		switch a.Key {
		case "script":
			line.script = a.Value.String()
		case "at":
			line.place = a.Value.String()
		default:
			line.text += " " + a.Key + "=" + a.Value.String()
		}
		return true
	}
	for _, a := range h.attrs {
		add(a)
	}
	r.Attrs(add)
	h.lines.mu.Lock()
	defer h.lines.mu.Unlock()
	line.text = line.text[:min(len(line.text), textMax)]
	if len(h.lines.all) < linesMax {
		h.lines.all = append(h.lines.all, line)
	}
	return nil
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{h.lines, h.level, append(slices.Clone(h.attrs), attrs...)}
}

// WithGroup implements slog.Handler. It ignores groups, which the text does not show.
func (h *handler) WithGroup(string) slog.Handler { return h }

// loadZone reads the local time zone while files can still be read.
func loadZone() { _, _ = time.Now().Zone() }
