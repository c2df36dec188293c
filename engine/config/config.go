// Package config describes what an engine runs. A configuration is a file of strict
// YAML with variables from the environment, or a Go value of type Config.
//
// Nothing is guessed. An unknown key or kind, a value of the wrong type, and a key that
// is missing or given twice are each an Error with file, line, column, the source line
// and the nearest known name; one reading reports all that it finds. ${NAME},
// ${NAME:-default} and ${NAME:?message} stand for environment variables wherever a
// value may stand, $$ for a dollar sign. A variable's value is never parsed as YAML and
// never part of an error.
//
//	c := &config.Config{
//		Data: dir,
//		Pipelines: []config.Pipeline{{
//			Name:   "emails",
//			Source: config.Source{Kind: "file", Settings: file.Config{Path: "in.ndjson"}},
//			Script: &config.Script{Text: "trim.lua"},
//			Sinks:  []config.Sink{{Kind: "stdout"}},
//		}},
//	}
//
// The package knows the shape of a pipeline and no kind of source or sink: a kind
// decodes its own settings. A Config is not safe for concurrent use while it is
// decoded.
package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// A Config is a configuration: what Load has read, or a literal. A zero field of a
// literal means the default, except that without Reload scripts are only checked when
// asked for.
type Config struct {
	File      string        // where it was read; empty for a literal
	Folder    string        // relative paths start here (default: the working folder)
	Base      string        // relative paths of code start here: a folder or an address that ends in a slash (default Folder)
	Data      string        // the data folder (default DefaultData in Folder)
	HTTP      string        // address to listen on, or HTTPOff; empty for what the engine's options say
	Reload    time.Duration // interval between checks for new versions of scripts; 0 for only when asked
	Allow     Allow
	S3        S3
	Query     Query
	Tables    []Table    // of the event store; others are made on first use
	Functions []Computed // of SQL, with the row for argument
	Pipelines []Pipeline

	faults    Errors // of the file
	dataAt    origin
	dataNamed bool // Data is not the default
}

// Allow lists the hosts that code may come from.
type Allow struct {
	Hosts []string
	origin
}

// S3 says where s3:// addresses lead. Empty fields come from the environment.
type S3 struct {
	Endpoint  string `yaml:"endpoint" help:"http(s)://host:port of the service (default AWS_ENDPOINT_URL)"`
	Region    string `yaml:"region" help:"region of the buckets (default AWS_REGION)"`
	AccessKey string `yaml:"access_key" help:"default AWS_ACCESS_KEY_ID"`
	SecretKey string `yaml:"secret_key" help:"default AWS_SECRET_ACCESS_KEY; give it as ${NAME}"`
	origin
}

// A Pipeline is one source, at most one script and at least one sink.
type Pipeline struct {
	Name     string
	Source   Source
	Script   *Script    // nil when events pass through unchanged
	Computed []Computed // columns of every pipeline, then those of this one
	Sinks    []Sink     // with different names
	Lanes    int        // batches in flight; 0 for the default
	Batch    Batch
	MaxEvent int           // bytes of an event, beyond which it is a dead letter; 0 for the default
	Lease    time.Duration // after which others take over from a worker that is silent; 0 for the default

	read bool // from a file, or checked
}

// A Source is a kind of source and its settings.
type Source struct {
	Kind     string
	Settings any // of a literal: the kind's own struct, or a map as in YAML
	settings
}

// A Sink is a kind of sink and its settings.
type Sink struct {
	Kind     string
	Name     string // by which scripts route to it; the kind for the only sink of a pipeline
	Routed   bool   // the sink gets only what the script routes to it
	Settings any    // of a literal: the kind's own struct, or a map as in YAML
	settings
}

// A Computed is a column whose value a function computes from the row.
type Computed struct {
	Name     string `yaml:"name,required" help:"field that gets the value"`
	Type     string `yaml:"type,required" help:"bool, int32, int64, float64, string, timestamp or json"`
	Func     string `yaml:"func,required" help:"Lua code, a path, an address, a Go plugin (.so), make://identifier or make://timestamp"`
	FuncName string `yaml:"funcname" help:"function to call (default main, in a plugin Main)"`
	origin
}

// Batch bounds a batch; 0 for the default.
type Batch struct {
	Events int `yaml:"events" help:"events in a batch at most (default 1000)"`
	Bytes  int `yaml:"bytes,size" help:"bytes in a batch at most (default 1MiB)"`
}

// A Script is code, or says where code is, and the limits it runs under.
type Script struct {
	Language string // empty for the first of the engine
	Text     string // code, a path or an address
	Func     string // function to call; empty for the language's default
	Limits   Limits
	Pool     Pool
	Isolate  string // IsolateProcess, or empty
	origin
}

// IsolateProcess runs a script in processes of its own.
const IsolateProcess = "process"

// ScriptSettings are the keys of a script beside its code.
type ScriptSettings struct {
	Limits
	Pool    Pool   `yaml:"pool"`
	Isolate string `yaml:"isolate" help:"process: run the script in processes of its own, for authors who are not trusted"`
}

// A Pool says how many VMs a script has; 0 for the default, which adapts.
type Pool struct {
	Core   int           `yaml:"core" help:"VMs that are kept (default one per core of the machine; -1 for none)"`
	Max    int           `yaml:"max" help:"VMs at most (default eight per core of the machine; -1 for no limit)"`
	Eager  bool          `yaml:"eager" help:"create a VM as soon as none is free, not only when all are waiting"`
	Idle   time.Duration `yaml:"idle" help:"idle time after which a VM beyond the core is released (default 10s)"`
	Memory int           `yaml:"memory,size" help:"bytes of all VMs (default 512MiB)"`
}

// Limits of a script; 0 for the default.
type Limits struct {
	EventTime time.Duration `yaml:"event_time" help:"time for one event (default 100ms)"`
	BatchTime time.Duration `yaml:"batch_time" help:"time for a batch (default 2s)"`
	WallTime  time.Duration `yaml:"wall_time" help:"wall-clock time for one event, with what it waits (default 10 times event_time)"`
	Memory    int           `yaml:"memory,size" help:"bytes that one VM may hold (default 64MiB)"`
	Output    int           `yaml:"output,size" help:"bytes of output for one batch (default 64MiB)"`
}

// settings are those of a kind, not decoded yet.
type settings struct {
	kind string
	node *node
	origin
}

// Decode fills the struct behind into from the settings, by its tags (see Fields).
func (s settings) Decode(into any) error {
	return s.document.decodeOnly(s.node, into, s.kind)
}

// origin remembers where in the file something stands.
type origin struct {
	document *document // nil in a literal
	at       place
}

// At adds to an error the place of what it is about, and a hint. Errors that have
// a place keep it.
func (o origin) At(err error, hint string) error {
	switch err.(type) {
	case nil, *Error, Errors:
		return err
	}
	if o.document == nil {
		return Errors{{File: literalName, Message: err.Error(), Hint: hint}}
	}
	alone := document{file: o.document.file, lines: o.document.lines}
	alone.addFault(o.at, hint, "%v", err)
	return alone.faults
}

// At is At of the origin, but at the value that the error quotes, if it is one of the
// settings. It returns nil if the value of a setting has a fault already, such as a variable
// that is not set: the error would only follow from it.
func (s settings) At(err error, hint string) error {
	o := s.origin
	if _, placed := err.(Errors); err != nil && !placed && s.node != nil {
		for _, e := range s.node.entries {
			if e.value.broken {
				return nil
			}
			if v := e.value; v.shape == scalar && v.text == v.raw && v.text != "" && strings.Contains(err.Error(), strconv.Quote(v.text)) {
				o.at = v.at
				break
			}
		}
	}
	return o.At(err, hint)
}

// CommentHint returns a hint if YAML has cut a text at " #", which begins a comment. A
// text in quotes or in a block is never cut.
func (o origin) CommentHint(text string) string {
	if o.document == nil || o.at.line < 1 || o.at.line > len(o.document.lines) {
		return ""
	}
	line := []rune(o.document.lines[o.at.line-1])
	rest := string(line[min(max(o.at.column-1, 0), len(line)):])
	after, found := strings.CutPrefix(rest, text)
	comment := strings.TrimLeft(after, " \t")
	if !found || text == "" || comment == after || !strings.HasPrefix(comment, "#") {
		return ""
	}
	column := len(line) - len([]rune(comment)) + 1
	return fmt.Sprintf(`YAML takes everything after " #" for a comment (%s:%d:%d): put the code in quotes, or below "|" on lines of its own`,
		o.document.file, o.at.line, column)
}

// Locate returns a fault in code with its place in the file, if the code stands there word for
// word behind o's place: on one line, or in a block.
func (o origin) Locate(fault *Error, code string) *Error {
	if o.document == nil || fault.Line < 1 {
		return fault
	}
	text := strings.Split(strings.TrimRight(code, "\n"), "\n")
	for i := max(o.at.line-1, 0); i+len(text) <= len(o.document.lines); i++ {
		indent := indexOfLines(o.document.lines[i:], text)
		if indent < 0 || fault.Line > len(text) {
			continue
		}
		at := place{i + fault.Line, utf8.RuneCountInString(o.document.lines[i][:indent]) + fault.Column}
		alone := document{file: o.document.file, lines: o.document.lines, expressions: o.document.expressions}
		alone.addFault(at, fault.Hint, "%s", fault.Message)
		return alone.faults[0]
	}
	return fault
}

// indexOfLines returns how far the text is indented with which lines begin, or -1. A text of one
// line may be anywhere in its line.
func indexOfLines(lines, text []string) int {
	indent := strings.Index(lines[0], text[0])
	if indent < 0 || len(text) == 1 {
		return indent
	}
	for i, line := range text {
		begin := min(indent, len(lines[i]))
		if strings.TrimRight(lines[i][begin:], "\r") != line || strings.TrimLeft(lines[i][:begin], " ") != "" {
			return -1
		}
	}
	return indent
}

// Known are the names that a configuration may use.
type Known struct {
	Sources   []string
	Sinks     []string
	Languages []string // the first is meant where a script names none
	Types     []string // of computed columns
	// ColumnTypes are the types of columns of tables.
	ColumnTypes []string
}

// Defaults for what a file leaves out.
const (
	// DefaultData is the data folder, in the folder of the configuration.
	DefaultData   = "perigee-data"
	DefaultReload = "30s"
)

// HTTPOff is the HTTP of an engine that listens nowhere.
const HTTPOff = "off"

// sizeMax keeps a file given by mistake from being read into memory.
const sizeMax = 4 << 20

// Load reads the file at path. It returns the faults of the file as Errors, together
// with what could be read; Resolve returns them again. lookup is os.LookupEnv.
func Load(path string, known Known, lookup func(string) (string, bool)) (*Config, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	if info.Size() > sizeMax {
		return nil, fmt.Errorf("read configuration: %s is larger than %d bytes", path, sizeMax)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return Parse(path, string(text), known, lookup)
}

// Parse is Load for the text of the file at path, which may be an address.
func Parse(path, text string, known Known, lookup func(string) (string, bool)) (*Config, error) {
	folder := filepath.Dir(path)
	if strings.Contains(path, "://") {
		folder = "."
	}
	folder, err := filepath.Abs(folder)
	if err != nil {
		return nil, fmt.Errorf("find the folder of %s: %w", path, err)
	}
	d, root := parse(path, text, lookup)
	c := &Config{File: path, Folder: folder, Base: folder}
	if root != nil {
		d.readConfig(root, c, known)
	}
	c.faults = slices.Clone(d.faults)
	return c, d.faults.sorted()
}
