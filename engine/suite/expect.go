package suite

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/perigeedb/perigee/engine"
	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/nodedb"
)

// An expectation is what must come of a case, as its keys say.
type expectation struct {
	rows      map[int][]expected // by sink
	rowsAt    map[int]int        // by sink: the line of its list
	documents []expected         // nil if the case does not say
	dead      []expectedDead
	log       []expectedLine // nil if the case does not say
	routes    []expectedRoute
	state     []expectedNode
	call      *expectedCall
}

// An expected is a value with its line.
type expected struct {
	value any
	line  int
}

type expectedDead struct {
	DeadSettings
	line int
}

type expectedLine struct {
	LogSettings
	line int
}

// An expectedRoute is the number of rows of a sink, or -1 for any but none.
type expectedRoute struct {
	sink, rows int
	line       int
}

// An expectedNode is the value of a node; nil for none.
type expectedNode struct {
	path nodedb.Path
	expected
}

// bind reads the expectations of all cases, which name sinks and columns of the pipeline.
func (r *runner) bind(ctx context.Context) error {
	var faults []error
	for _, c := range r.file.cases {
		s, e := &c.settings, &c.expect
		for _, read := range []struct {
			of   config.Any
			into func(*testCase, config.Any) error
		}{{s.Rows, r.bindRows}, {s.Documents, r.bindDocuments}, {s.Dead, r.bindDead}, {s.Log, bindLog}, {s.Routes, r.bindRoutes}, {s.State, r.bindState}} {
			if read.of.IsSet() {
				faults = append(faults, read.into(c, read.of))
			}
		}
		if s.Call != nil {
			call, err := r.bindCall(ctx, c)
			e.call, faults = call, append(faults, err)
		}
		faults = append(faults, r.checkLanguage(c))
	}
	return config.Join(faults...)
}

// checkLanguage refuses what a Go plugin cannot do.
func (r *runner) checkLanguage(c *testCase) error {
	if r.pipeline.Code.Name == "" || len(r.pipeline.Code.Text) > 0 {
		return nil
	}
	for _, key := range []string{"with", "fails"} {
		if at := c.at.Get(key); at.IsSet() {
			return at.At(fmt.Errorf("%s replaces nothing in a Go plugin, which calls Go directly", key), "make the plugin take what it reads from the event")
		}
	}
	return nil
}

func (r *runner) sinkNames() (names []string) {
	for i := range r.pipeline.Sinks {
		names = append(names, r.pipeline.Sinks[i].Config.Name)
	}
	return names
}

// sink returns the index of a sink.
func (r *runner) sink(name string, at func(error, string) error) (int, error) {
	names := r.sinkNames()
	if i := slices.Index(names, name); i >= 0 {
		return i, nil
	}
	return 0, at(fmt.Errorf("pipeline %s has no sink %q", r.pipeline.Config.Name, name), config.SuggestName(name, names))
}

func (r *runner) bindRows(c *testCase, of config.Any) error {
	e := &c.expect
	e.rows, e.rowsAt = map[int][]expected{}, map[int]int{}
	if _, isList := of.List(); isList && len(r.pipeline.Sinks) == 1 {
		return r.bindRowsOf(c, 0, of)
	}
	entries, ok := of.Mapping()
	if !ok {
		return of.Unexpected("rows", "a mapping of sinks", "write rows: {"+r.sinkNames()[0]+": [{…}]}")
	}
	var faults []error
	for _, entry := range entries {
		i, err := r.sink(entry.Key, entry.At)
		if err == nil {
			err = r.bindRowsOf(c, i, entry.Value)
		}
		faults = append(faults, err)
	}
	return config.Join(faults...)
}

// bindRowsOf reads the rows of sink i.
func (r *runner) bindRowsOf(c *testCase, i int, of config.Any) error {
	sink := &r.pipeline.Sinks[i]
	c.expect.rowsAt[i] = of.Line()
	items, ok := of.List()
	if !ok {
		return of.Unexpected("rows of "+sink.Config.Name, "a list", "write "+sink.Config.Name+": [{…}], or [] for no row")
	}
	rows := make([]expected, len(items))
	for k, item := range items {
		if err := checkColumns(sink, item); err != nil {
			return err
		}
		row, err := expectedValue(item, "a row")
		if err != nil {
			return err
		}
		if fields, isMapping := row.value.(map[string]any); isMapping {
			normalize(fields, sink.Columns)
		}
		rows[k] = row
	}
	c.expect.rows[i] = rows
	return nil
}

// checkColumns checks the names of a row's columns.
func checkColumns(sink *engine.StageSink, row config.Any) error {
	if sink.Columns == nil || sink.Documents && sink.Rest == "" {
		return nil
	}
	var names []string
	for i := range sink.Columns {
		names = append(names, sink.Columns[i].Name)
	}
	if sink.Rest != "" {
		names = append(names, sink.Rest)
	}
	entries, _ := row.Mapping()
	for _, e := range entries {
		if !slices.Contains(names, e.Key) {
			return e.At(fmt.Errorf("sink %s has no column %q", sink.Config.Name, e.Key), config.SuggestName(e.Key, names))
		}
	}
	return nil
}

// normalize spells times as AppendRow does.
func normalize(row map[string]any, columns []event.Column) {
	for i := range columns {
		if typ := columns[i].Type; typ == event.Timestamp || typ == event.TimestampNS {
			text, _ := row[columns[i].Name].(string)
			if at, ok := parseTime(text); ok {
				row[columns[i].Name] = at.UTC().Format(time.RFC3339Nano)
			}
		}
	}
}

// expectedValue reads a value; what names it if it must be a mapping.
func expectedValue(of config.Any, what string) (expected, error) {
	if _, ok := of.Mapping(); !ok && what != "" {
		return expected{}, of.Unexpected(what, "a mapping", "write {field: value}")
	}
	text, err := of.JSON()
	if err != nil {
		return expected{}, err
	}
	value, err := decode(text)
	return expected{value, of.Line()}, err
}

func (r *runner) bindDocuments(c *testCase, of config.Any) error {
	items, ok := of.List()
	if !ok {
		return of.Unexpected("documents", "a list", "write documents: [{…}], or [] for none")
	}
	c.expect.documents = make([]expected, len(items))
	for i, item := range items {
		document, err := expectedValue(item, "a document")
		if err != nil {
			return err
		}
		c.expect.documents[i] = document
	}
	return nil
}

// stages are those that a dead letter can have without a server.
var stages = []string{"parse", "script", "column"}

func (r *runner) bindDead(c *testCase, of config.Any) error {
	items, ok := of.List()
	if _, one := of.Mapping(); one {
		items, ok = []config.Any{of}, true
	}
	if !ok {
		return of.Unexpected("dead", "a list of dead letters", "write dead: [{stage: script, message: PATTERN}]")
	}
	for _, item := range items {
		one := expectedDead{line: item.Line()}
		if err := item.Decode(&one.DeadSettings, "a dead letter"); err != nil {
			return err
		}
		if one.Stage != "" && !slices.Contains(stages, one.Stage) {
			return item.Get("stage").At(fmt.Errorf("unknown stage %q", one.Stage), config.SuggestName(one.Stage, stages))
		}
		if one.Sink != "" {
			if _, err := r.sink(one.Sink, item.Get("sink").At); err != nil {
				return err
			}
		}
		c.expect.dead = append(c.expect.dead, one)
	}
	return nil
}

// levels are those of log lines.
var levels = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}

var levelNames = []string{"debug", "info", "warn", "error"}

func bindLog(c *testCase, of config.Any) error {
	items, ok := of.List()
	if !ok {
		return of.Unexpected("log", "a list of patterns", "write log: [PATTERN], or [] for no line")
	}
	c.expect.log = []expectedLine{}
	for _, item := range items {
		one := expectedLine{line: item.Line()}
		if text, single := item.Text(); single {
			one.Message = new(pattern)
			if err := one.Message.UnmarshalText([]byte(text)); err != nil {
				return item.At(err, "")
			}
		} else if err := item.Decode(&one.LogSettings, "a log line"); err != nil {
			return err
		}
		if _, known := levels[one.Level]; !known && one.Level != "" {
			return item.Get("level").At(fmt.Errorf("unknown level %q", one.Level), config.SuggestName(one.Level, levelNames))
		}
		c.expect.log = append(c.expect.log, one)
	}
	return nil
}

func (r *runner) bindRoutes(c *testCase, of config.Any) error {
	add := func(name string, rows int, at func(error, string) error, line int) error {
		i, err := r.sink(name, at)
		c.expect.routes = append(c.expect.routes, expectedRoute{i, rows, line})
		return err
	}
	if items, ok := of.List(); ok {
		for _, item := range items {
			name, _ := item.Text()
			if err := add(name, -1, item.At, item.Line()); err != nil {
				return err
			}
		}
		return nil
	}
	entries, ok := of.Mapping()
	if !ok {
		return of.Unexpected("routes", "a list of sinks", "write routes: ["+strings.Join(r.sinkNames(), ", ")+"], or {SINK: ROWS}")
	}
	for _, e := range entries {
		text, _ := e.Value.Text()
		var rows int
		if _, err := fmt.Sscanf(text, "%d", &rows); err != nil || rows < 0 || fmt.Sprint(rows) != text {
			return e.Value.Unexpected("routes of "+e.Key, "a number of rows", "")
		}
		if err := add(e.Key, rows, e.At, e.Value.Line()); err != nil {
			return err
		}
	}
	return nil
}
