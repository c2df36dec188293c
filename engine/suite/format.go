package suite

import (
	"encoding"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"time"

	"github.com/perigeedb/perigee/engine/config"
)

// FileSettings are the keys of a test file.
type FileSettings struct {
	Config   config.Any        `yaml:"config" kind:"path" help:"configuration with the pipeline, relative to the test file (default: NAME.yaml for NAME_test.yaml, or else pipeline.yaml)"`
	Pipeline config.Any        `yaml:"pipeline" kind:"string" help:"pipeline to test (default: the only one)"`
	Env      map[string]string `yaml:"env" help:"environment variables for the configuration, before those of the process"`
	Cases    config.Any        `yaml:"cases,required" kind:"list of mapping" help:"list of cases, which run in this order"`
}

// CaseSettings are the keys of a case.
type CaseSettings struct {
	Name      string        `yaml:"name,required" help:"name of the case, different from all others of the file"`
	Events    config.Any    `yaml:"events" kind:"list or path" help:"list of events, or the path of a file with one JSON document per line (or a JSON array, if it ends in .json). Text in the list is passed to the pipeline as it is"`
	Steps     config.Any    `yaml:"steps" kind:"list of mapping" help:"list of {events: […]} and {wait: 30s}, in place of events: the steps follow each other, and each wait moves the clock and runs the timers that become due"`
	Each      config.Any    `yaml:"each" kind:"list or path" help:"like events; the case runs once for each event and must hold for each"`
	Call      *CallSettings `yaml:"call" help:"call of one function of the script, in place of events"`
	Now       instant       `yaml:"now" help:"time that the script and make://timestamp read, as RFC 3339 or a date (default: the present; with a state or steps 2026-01-01)"`
	Fresh     bool          `yaml:"fresh" help:"load the script again before the case, without what earlier cases left in its variables (default false)"`
	With      config.Any    `yaml:"with" kind:"mapping" help:"results of functions in Go: {module.function: value}, or {module: {function: value}}"`
	Fails     config.Any    `yaml:"fails" kind:"mapping" help:"errors of functions in Go: {module.function: message}"`
	Rows      config.Any    `yaml:"rows" kind:"mapping or list" help:"rows by sink, as its columns store them: {sink: [row, …]}; for the only sink a list"`
	Documents config.Any    `yaml:"documents" kind:"list" help:"documents that come out of script and computed columns, in the order of their events"`
	Subset    bool          `yaml:"subset" help:"rows and documents name only some of the fields (default false: all fields)"`
	Dropped   *int          `yaml:"dropped" help:"number of events that the script drops"`
	Dead      config.Any    `yaml:"dead" kind:"list or mapping" help:"list of dead letters in order, or one (default: none)"`
	Log       config.Any    `yaml:"log" kind:"list" help:"list of lines that the script logs, in order, each a pattern or {level, message}; other lines may be between them. [] means no line"`
	Routes    config.Any    `yaml:"routes" kind:"list or mapping" help:"names of the sinks that get rows, or the number of rows by sink"`
	State     config.Any    `yaml:"state" kind:"mapping" help:"values of nodes of the pipeline's state at the end, by their paths; null means that the node has none. Other nodes may have any"`
	Snapshot  string        `yaml:"snapshot" help:"file with all that comes out; the first run writes it, later ones compare"`
}

// StepSettings are the keys of a step.
type StepSettings struct {
	Events config.Any    `yaml:"events" kind:"list or path" help:"events, as those of a case"`
	Wait   time.Duration `yaml:"wait" help:"time by which the clock moves, such as 30s or 1h; 0s runs the timers that are due already"`
}

// CallSettings are the keys of a call.
type CallSettings struct {
	Function  string     `yaml:"function,required" help:"global function, or a field of a global table or of what the script returns, such as lib.trim"`
	Arguments config.Any `yaml:"arguments" kind:"list" help:"list of arguments"`
	Returns   config.Any `yaml:"returns" kind:"any" help:"result; a list if the function returns several"`
	Error     *pattern   `yaml:"error" help:"pattern of the error that the function raises"`
}

// DeadSettings are the keys of a dead letter.
type DeadSettings struct {
	Stage   string   `yaml:"stage" help:"parse, script or column"`
	Message *pattern `yaml:"message" help:"pattern of the error"`
	Sink    string   `yaml:"sink" help:"sink that lacks the row, if not the whole event failed"`
}

// LogSettings are the keys of a log line.
type LogSettings struct {
	Level   string   `yaml:"level" help:"debug, info, warn or error"`
	Message *pattern `yaml:"message,required" help:"pattern of the line"`
}

// example is a minimal test file, for hints.
const example = "cases:\n  - name: what it does\n    events: [{a: 1}]\n    documents: [{a: 1}]"

// A pattern is a regular expression.
type pattern struct{ *regexp.Regexp }

var _ encoding.TextUnmarshaler = (*pattern)(nil)

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *pattern) UnmarshalText(text []byte) error {
	compiled, err := regexp.Compile(string(text))
	if fault, ok := errors.AsType[*syntax.Error](err); ok {
		return fmt.Errorf("invalid regular expression, %s: %s; write \\ before a character that stands for itself", fault.Code, fault.Expr)
	}
	p.Regexp = compiled
	return err
}

// An instant is a time in RFC 3339, or a date.
type instant struct{ time.Time }

// UnmarshalText implements encoding.TextUnmarshaler.
func (t *instant) UnmarshalText(text []byte) error {
	parsed, ok := parseTime(string(text))
	if !ok {
		return fmt.Errorf("invalid time %q: use RFC 3339, such as 2026-11-22T10:00:00Z, or a date", text)
	}
	t.Time = parsed
	return nil
}

// parseTime reads a time in RFC 3339, with a space or a T, or a date, which means midnight in UTC.
func parseTime(text string) (time.Time, bool) {
	for _, layout := range []string{time.RFC3339, "2006-01-02 15:04:05Z07:00", time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}
