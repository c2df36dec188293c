package isolate

import (
	"context"
	"log/slog"
	"time"

	"github.com/perigeedb/perigee/script"
)

// A loadRequest is a request to load code. Functions in the options stay in the parent; the worker
// calls them over the socket.
type loadRequest struct {
	language string
	code     script.Code // Files is only nil or not nil; Text is empty if File is set
	options  script.Options
	level    slog.Level // minimum log level
}

func newLoadRequest(language string, code script.Code, options *script.Options) *loadRequest {
	q := &loadRequest{language: language, code: code, options: *options, level: slog.LevelError + 1}
	if options.Log != nil {
		for _, level := range []slog.Level{slog.LevelError, slog.LevelWarn, slog.LevelInfo, slog.LevelDebug} {
			if options.Log.Enabled(context.Background(), level) {
				q.level = level
			}
		}
	}
	return q
}

func (q *loadRequest) encode(e *encoder) {
	e.text(q.language)
	e.text(q.code.Name)
	e.text(string(q.code.Text))
	e.text(q.code.Func)
	e.text(q.code.File)
	e.bool(q.code.Files != nil)
	l := q.options.Limits
	for _, n := range []int{int(l.EventTime), int(l.BatchTime), int(l.WallTime), l.Memory, l.Output} {
		e.int(n)
	}
	e.int(len(q.options.Sinks))
	for _, s := range q.options.Sinks {
		e.text(s.Name)
		e.bool(s.Routed)
	}
	e.bool(q.options.ReturnsValue)
	e.bool(q.options.Stats != nil)
	e.int(int(q.level) + 128)
	e.int(len(q.options.Modules))
	for _, m := range q.options.Modules {
		e.text(m.Name)
		encodeNames(e, m.Functions)
		encodeNames(e, m.Pure)
	}
}

func encodeNames(e *encoder, functions map[string]script.Func) {
	e.int(len(functions))
	for name := range functions {
		e.text(name)
	}
}

// decodeLoadRequest decodes a request. function and readFile call the parent.
func decodeLoadRequest(d *decoder, function func(module, name string) script.Func, readFile func(string) ([]byte, error)) *loadRequest {
	const maxInt = int(^uint(0) >> 1)
	q := &loadRequest{}
	q.language, q.code.Name = d.text(), d.text()
	q.code.Text, q.code.Func, q.code.File = []byte(d.text()), d.text(), d.text()
	if d.bool() {
		q.code.Files = readFile
	}
	o := &q.options
	o.Limits = script.Limits{
		EventTime: time.Duration(d.int(maxInt)), BatchTime: time.Duration(d.int(maxInt)),
		WallTime: time.Duration(d.int(maxInt)), Memory: d.int(maxInt), Output: d.int(maxInt),
	}
	o.Sinks = make([]script.Sink, d.count())
	for i := range o.Sinks {
		o.Sinks[i] = script.Sink{Name: d.text(), Routed: d.bool()}
	}
	o.Isolated, o.ReturnsValue = true, d.bool()
	// One output contains the rows of all sinks; the parent distributes them. When code is only
	// checked, there are no sinks.
	o.SingleOutput = !o.ReturnsValue && len(o.Sinks) > 0
	if d.bool() {
		o.Stats = &script.Stats{}
	}
	q.level = slog.Level(d.int(maxInt) - 128)
	for range d.count() {
		m := script.Module{Name: d.text()}
		m.Functions = decodeNames(d, m.Name, function)
		m.Pure = decodeNames(d, m.Name, function)
		o.Modules = append(o.Modules, m)
	}
	return q
}

func decodeNames(d *decoder, module string, function func(module, name string) script.Func) map[string]script.Func {
	functions := map[string]script.Func{}
	for range d.count() {
		name := d.text()
		functions[name] = function(module, name)
	}
	return functions
}
