//go:build cgo && luajit

package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	webconsole "github.com/perigeedb/perigee/console"
	"github.com/perigeedb/perigee/engine"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script/lua"
	"github.com/perigeedb/perigee/script/luajit"
)

// How long scripts run to be measured by line, and to be listened to as they are compiled.
const (
	meterTime   = 500 * time.Millisecond
	meterPasses = 200
	compileTime = time.Second
)

// scriptMeter returns a function that measures a script in LuaJIT.
func scriptMeter() func(context.Context, *engine.Stages, *event.Batch) (*webconsole.Measurement, error) {
	return func(ctx context.Context, s *engine.Stages, batch *event.Batch) (*webconsole.Measurement, error) {
		if s.Language != lua.Language().Name {
			return nil, errors.New("only scripts in Lua are measured by line")
		}
		options := s.ScriptOptions
		options.Log = nil
		measured, err := luajit.Measure(ctx, s.Code, options, batch, meterTime)
		if err != nil {
			return nil, engine.ScriptError(err, s.Code)
		}
		compiled, err := luajit.Compile(ctx, s.Code, options, batch, meterPasses, compileTime)
		if err != nil {
			return nil, engine.ScriptError(err, s.Code)
		}
		m := &webconsole.Measurement{Engine: lua.Engine(), Events: batch.Len(), Took: measured.Took, Interpreted: measured.Interpreted, Traces: compiled.Traces}
		m.Lines = joinLines(s.Code.Name, measured.Lines, compiled.Uncovered)
		return m, nil
	}
}

// joinLines gives each line its share of the time, and the reasons why it is not compiled.
func joinLines(name string, timed []luajit.TimedLine, uncovered []luajit.Uncovered) (lines []webconsole.MeasuredLine) {
	var sum time.Duration
	for _, l := range timed {
		sum += l.Time
	}
	for _, l := range timed {
		lines = append(lines, webconsole.MeasuredLine{File: l.File, Line: l.Line, Count: l.Runs, Share: float64(l.Time) / max(float64(sum), 1)})
	}
	for _, u := range uncovered {
		if end, cut := strings.CutPrefix(u.File, "..."); u.File == name || cut && strings.HasSuffix(name, end) {
			u.File = "" // the script itself, whose long name LuaJIT shortens
		}
		at := slices.IndexFunc(lines, func(l webconsole.MeasuredLine) bool { return l.File == u.File && l.Line == u.Line })
		if at < 0 {
			at = len(lines)
			lines = append(lines, webconsole.MeasuredLine{File: u.File, Line: u.Line})
		}
		lines[at].Aborts = append(lines[at].Aborts, webconsole.Abort{Reason: u.Reason, Explanation: u.Explanation, Count: u.Count, Minor: u.Minor})
	}
	slices.SortFunc(lines, func(a, b webconsole.MeasuredLine) int { return cmp.Or(cmp.Compare(a.File, b.File), a.Line-b.Line) })
	return lines
}
