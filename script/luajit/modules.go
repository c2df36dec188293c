//go:build cgo && luajit

package luajit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/perigeedb/perigee/internal/luajit"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/stdlib"
)

// functions are those of the modules, as an engine calls them.
func functions(modules []script.Module) []luajit.Function {
	var all []luajit.Function
	for _, m := range modules {
		for name, f := range m.Functions {
			all = append(all, function(m.Name+"."+name, f, true))
		}
		for name, f := range m.Pure {
			all = append(all, function(m.Name+"."+name, f, false))
		}
	}
	return sorted(all)
}

func function(name string, f script.Func, waits bool) luajit.Function {
	return luajit.Function{Name: name, Waits: waits, Call: func(ctx context.Context, args []any) ([]any, error) {
		results, err := stdlib.Call(ctx, name, f, args)
		if errors.Is(err, script.ErrMemory) {
			err = fmt.Errorf("%w: %w", luajit.ErrMemory, err)
		}
		return results, err
	}}
}

// readEffects takes over what the script logged and measured in a crossing.
func (s *program) readEffects(e *luajit.Engine) {
	e.VM.ReadLog(func(level slog.Level, text, place string) { s.log.Line(level, text, s.name, place) })
	lost := e.ReadMeasurements(s.measure)
	if lost > 0 {
		s.log.Line(slog.LevelWarn, "the script measures too much; the rest of the batch is left out", s.name, "stats")
	}
}

// kinds are the functions of the module stats, in the order of the engine.
var kinds = [...]script.StatKind{script.Counter, script.Gauge, script.Histogram}

func (s *program) measure(value float64, of []byte) {
	if s.opts.Stats == nil {
		return
	}
	series, err := s.seriesOf(of)
	if err == nil {
		err = series.Add(value)
	}
	if err != nil {
		s.log.Line(slog.LevelWarn, err.Error(), s.name, "stats")
	}
}

// seriesMax bounds what is remembered of the ways in which series were named.
const seriesMax = 1000

// seriesOf finds the series that a script named before without reading the name.
func (s *program) seriesOf(of []byte) (script.Series, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if series, known := s.series[string(of)]; known {
		return series, nil
	}
	function, name, given, err := luajit.DecodeMeasurement(of)
	if err != nil {
		return script.Series{}, err
	}
	labels, err := stdlib.Labels(given)
	if err != nil {
		return script.Series{}, err
	}
	series, err := s.opts.Stats.Series(kinds[function-1], name, labels...)
	if err == nil && len(s.series) < seriesMax {
		s.series[string(of)] = series
	}
	return series, err
}
