package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/engine/eventservice"
	"github.com/perigeedb/perigee/event"
)

// socketRoutes are the routes of the engine's socket that the console has, below its own prefix.
// They are what the command line asks.
var socketRoutes = []string{
	"POST /admin/status",
	"POST /admin/pause",
	"POST /admin/resume",
	"POST /admin/running-code",
	"POST /admin/positions",
	"POST /admin/dead-letters",
	"POST /admin/count-dead-letters",
	"POST /admin/retry-dead-letters",
	"POST /admin/dead-letter-queue",
	"POST /admin/states",
	"POST /admin/state-nodes",
	"POST /query",
	"POST /tables",
}

// api returns the routes of the API by pattern.
func (c *Console) api() map[string]http.Handler {
	routes := map[string]http.Handler{
		"POST " + apiPrefix + "session":      answer(c.session),
		"POST " + apiPrefix + "pipelines":    answer(c.watch.read),
		"POST " + apiPrefix + "sql-names":    answer(c.sqlNames),
		"POST " + apiPrefix + "try":          answer(c.try),
		"POST " + apiPrefix + "test-case":    answer(c.testCase),
		"POST " + apiPrefix + "measure":      answer(c.measure),
		"POST " + apiPrefix + "search-nodes": answer(c.searchNodes),
	}
	for _, pattern := range socketRoutes {
		method, path, _ := cutPattern(pattern)
		routes[method+" "+apiPrefix[:len(apiPrefix)-1]+path] = c.forward(pattern, path)
	}
	return routes
}

func cutPattern(pattern string) (method, path string, ok bool) {
	for i := range pattern {
		if pattern[i] == ' ' {
			return pattern[:i], pattern[i+1:], true
		}
	}
	return "", pattern, false
}

// forward passes requests to a route of the engine's socket.
func (c *Console) forward(pattern, path string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := c.host.Route(pattern)
		if h == nil {
			writeFault(w, http.StatusNotFound, &event.Fault{Message: "this engine has no route " + path})
			return
		}
		inside := r.Clone(r.Context())
		inside.URL.Path, inside.URL.RawPath = path, ""
		w.Header().Set("Content-Type", "application/json")
		h.ServeHTTP(w, inside)
	})
}

// answer returns a handler for an operation whose request and result are JSON.
func answer[In, Out any](operation func(context.Context, In) (Out, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in In
		decoder := json.NewDecoder(r.Body)
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&in); err != nil {
			status := http.StatusBadRequest
			if _, large := errors.AsType[*http.MaxBytesError](err); large {
				status = http.StatusRequestEntityTooLarge
			}
			writeFault(w, status, &event.Fault{Message: fmt.Sprintf("decode the request: %v", err)})
			return
		}
		out, err := operation(r.Context(), in)
		if err != nil {
			writeFault(w, http.StatusUnprocessableEntity, faultOf(err))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(out) // the client may be gone
	})
}

// faultOf returns the fault of an error, with the place in the script if it has one.
func faultOf(err error) *event.Fault {
	if all, ok := errors.AsType[config.Errors](err); ok && len(all) > 0 {
		first := all[0]
		return &event.Fault{Message: first.Message, Hint: first.Hint, Line: first.Line, Column: first.Column}
	}
	if one, ok := errors.AsType[*config.Error](err); ok {
		return &event.Fault{Message: one.Message, Hint: one.Hint, Line: one.Line, Column: one.Column}
	}
	return event.FaultOf(err)
}

// A session is what pages need to begin.
type session struct {
	Version   string            `json:"version"`
	Worker    string            `json:"worker"`
	Data      string            `json:"data"`
	Measures  bool              `json:"measures"` // scripts can be measured by line
	Tables    bool              `json:"tables"`   // this build has the event store
	Pipelines []sessionPipeline `json:"pipelines"`
}

// A sessionPipeline is a pipeline as the configuration has it.
type sessionPipeline struct {
	Name      string        `json:"name"`
	Source    string        `json:"source"` // kind
	Sinks     []sessionSink `json:"sinks"`
	HasScript bool          `json:"has_script"`
	State     string        `json:"state,omitempty"` // name
}

type sessionSink struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
}

func (c *Console) session(ctx context.Context, _ struct{}) (*session, error) {
	s := &session{
		Version: c.settings.Version, Data: c.host.Data, Measures: c.settings.Measure != nil, Tables: eventservice.Available() == nil,
		Pipelines: []sessionPipeline{},
	}
	for _, p := range c.config.Load().Pipelines {
		one := sessionPipeline{Name: p.Name, Source: p.Source.Kind, HasScript: p.Script != nil, Sinks: []sessionSink{}}
		for _, sink := range p.Sinks {
			one.Sinks = append(one.Sinks, sessionSink{sink.Name, sink.Kind})
		}
		if p.State != nil {
			one.State = p.State.Name
		}
		s.Pipelines = append(s.Pipelines, one)
	}
	if all, err := c.host.Status(ctx); err == nil && len(all) > 0 {
		s.Worker = all[0].Worker
	}
	return s, nil
}

// sqlNames are names that an editor of SQL completes, besides tables and their columns.
type sqlNames struct {
	Functions []sqlFunction `json:"functions"`
	Tables    []sqlTable    `json:"tables"` // of the system
}

type sqlFunction struct {
	Name string `json:"name"`
	Info string `json:"info"` // group, or how a macro is called
}

type sqlTable struct {
	Name    string      `json:"name"`
	Info    string      `json:"info"`
	Columns []sqlColumn `json:"columns"`
}

type sqlColumn struct {
	Name string `json:"name"`
	Type string `json:"type"`
}

func (c *Console) sqlNames(context.Context, struct{}) (*sqlNames, error) {
	names := &sqlNames{Functions: []sqlFunction{}, Tables: []sqlTable{}}
	for _, group := range eventservice.Functions() {
		for _, name := range group.Names {
			names.Functions = append(names.Functions, sqlFunction{name, group.Name})
		}
	}
	for _, macro := range eventservice.Macros() {
		name := macro.Call
		for i := range name {
			if name[i] == '(' {
				name = name[:i]
				break
			}
		}
		names.Functions = append(names.Functions, sqlFunction{name, macro.Call + ": " + macro.Doc})
	}
	for _, f := range c.config.Load().Functions {
		names.Functions = append(names.Functions, sqlFunction{f.Name, "function of the configuration, " + f.Type})
	}
	for _, t := range eventservice.SystemTables() {
		table := sqlTable{Name: t.Name, Info: t.Doc}
		for _, column := range t.Columns {
			table.Columns = append(table.Columns, sqlColumn{column.Name, column.Type})
		}
		names.Tables = append(names.Tables, table)
	}
	return names, nil
}
