// Package config describes what an engine runs. A configuration is a file of strict
// YAML with variables from the environment, or a Go value of type Config.
//
// The package guesses nothing. An unknown key or kind, a value of the wrong type, a missing
// key and a duplicate key are each an Error with file, line, column, the source line and
// the nearest known name; Load reports all of them at once. Any value may contain
// environment variables: ${NAME}, ${NAME:-default} or ${NAME:?message}; $$ is a dollar
// sign. If NAME is not set and NAME_FILE is, the value is the content of the file that
// NAME_FILE names. The value of a variable is never parsed as YAML and never part of an
// error.
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
// The package defines the shape of a pipeline, but no kind of source or sink: each kind
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

// A Config is a configuration, read by Load or written as a literal. A zero field of a
// literal means the default, except for Reload: 0 disables regular checks for new
// versions of scripts.
type Config struct {
	File   string        // path of the file; empty for a literal
	Folder string        // relative paths start here (default: the working folder)
	Base   string        // relative paths of code start here: a folder or an address that ends in a slash (default Folder)
	Data   string        // the data folder (default DefaultData in Folder)
	HTTP   string        // address to listen on, or HTTPOff; empty for the address in the engine's options
	Reload time.Duration // interval between checks for new versions of scripts; 0 for none
	Allow  Allow
	S3     S3
	Query  Query
	Traces Traces
	// Console is about the web console, if the engine has one.
	Console Console
	// StateMemory bounds the memory of all states; 0 for the default.
	StateMemory int
	Tables      []Table    // tables of the event store; other tables are created on first use
	Functions   []Computed // functions of SQL, with a row as argument
	Pipelines   []Pipeline

	faults    Errors // of the file
	dataAt    origin
	dataNamed bool // Data is not the default
	dataGiven bool // Data is from UseData
	document  *document
	root      *node // of the file
}

// Allow lists the hosts that code may come from.
type Allow struct {
	Hosts []string
	origin
}

// S3 locates the service of s3:// addresses. Empty fields come from the environment.
type S3 struct {
	Endpoint  string `yaml:"endpoint" env:"AWS_ENDPOINT_URL" example:"https://minio.example.com:9000" help:"http(s)://host:port of the service"`
	Region    string `yaml:"region" env:"AWS_REGION" example:"eu-central-1" help:"region of the buckets"`
	AccessKey string `yaml:"access_key,secret" env:"AWS_ACCESS_KEY_ID" example:"${S3_ACCESS_KEY}" help:"name of the access key"`
	SecretKey string `yaml:"secret_key,secret" env:"AWS_SECRET_ACCESS_KEY" example:"${S3_SECRET_KEY}" help:"secret of the access key; give it as ${NAME}"`
	origin
}

// A Pipeline is one source, at most one script and at least one sink.
type Pipeline struct {
	Name     string
	Source   Source
	Script   *Script    // nil when events pass through unchanged
	Shadow   *Shadow    // nil for none
	State    *State     // nil if the script remembers nothing
	Reads    []string   // names of the states of other pipelines that the script reads
	Computed []Computed // columns of every pipeline, then those of this one
	Sinks    []Sink     // with different names
	Lanes    int        // batches in flight; 0 for the default
	Batch    Batch
	MaxEvent int           // maximum bytes of an event; a larger one becomes a dead letter; 0 for the default
	Lease    time.Duration // time after which others take over from a silent worker; 0 for the default

	read    bool   // from a file, or checked
	readsAt origin // of Reads
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
	Name     string // name for routing; the kind for the only sink of a pipeline
	Routed   bool   // the sink gets only rows that the script routes to it
	Settings any    // of a literal: the kind's own struct, or a map as in YAML
	settings
}

// A Computed is a column whose value a function computes from the row.
type Computed struct {
	Name     string `yaml:"name,required" example:"domain" help:"field to set"`
	Type     string `yaml:"type,required" choices:"@types" example:"string" help:"bool, int32, int64, float64, string, timestamp or json"`
	Func     string `yaml:"func,required" example:"domain.lua" help:"Lua code, a path, an address, a Go plugin (.so), make://identifier or make://timestamp"`
	FuncName string `yaml:"funcname" default:"(main, in a plugin Main)" example:"domain" help:"function to call"`
	origin
}

// Batch bounds a batch; 0 for the default.
type Batch struct {
	Events int `yaml:"events" default:"1000" unit:"events" example:"5000" help:"maximum number of events in a batch"`
	Bytes  int `yaml:"bytes,size" default:"1MiB" example:"4MiB" help:"maximum number of bytes in a batch"`
}

// A Script is code, or the location of code, with its limits.
type Script struct {
	Language string // empty for the first of the engine
	Text     string // code, a path or an address
	Func     string // function to call; empty for the language's default
	Limits   Limits
	Pool     Pool
	Isolate  string // IsolateProcess, or empty
	origin
}

// IsolateProcess runs a script in separate processes.
const IsolateProcess = "process"

// ScriptSettings are the keys of a script beside its code.
type ScriptSettings struct {
	FuncName string `yaml:"funcname" default:"(main, in a plugin Main)" example:"trim" help:"function to call"`
	Limits
	Pool    Pool   `yaml:"pool" help:"number of VMs that run the script"`
	Isolate string `yaml:"isolate" choices:"process" example:"process" help:"process: run the script in separate processes, for authors you do not trust"`
}

// A Pool sets the number of VMs of a script; 0 for the adaptive default.
type Pool struct {
	Core   int           `yaml:"core" default:"(one per core of the machine)" unit:"VMs" example:"2" help:"number of permanent VMs; -1 for none"`
	Max    int           `yaml:"max" default:"(eight per core of the machine)" unit:"VMs" example:"16" help:"maximum number of VMs; -1 for no limit"`
	Eager  bool          `yaml:"eager" help:"create a VM as soon as none is free, instead of only while all wait"`
	Idle   time.Duration `yaml:"idle" default:"10s" example:"1m" help:"idle time after which a VM beyond the core is released"`
	Memory int           `yaml:"memory,size" default:"512MiB" example:"256MiB" help:"memory limit of all VMs"`
}

// Limits of a script; 0 for the default.
type Limits struct {
	EventTime time.Duration `yaml:"event_time" default:"100ms" example:"1s" help:"time limit of an event"`
	BatchTime time.Duration `yaml:"batch_time" default:"2s" example:"10s" help:"time limit of a batch"`
	WallTime  time.Duration `yaml:"wall_time" default:"(10 times event_time)" example:"30s" help:"wall-clock time limit of an event, including waits"`
	Memory    int           `yaml:"memory,size" default:"64MiB" example:"256MiB" help:"memory limit of one VM"`
	Output    int           `yaml:"output,size" default:"64MiB" example:"128MiB" help:"maximum output of a batch"`
}

// settings are the settings of a kind before they are decoded.
type settings struct {
	kind string
	node *node
	origin
}

// Decode fills the struct into from the settings, by its tags (see Fields).
func (s settings) Decode(into any) error {
	return s.document.decodeOnly(s.node, into, s.kind)
}

// origin is a place in the file.
type origin struct {
	document *document // nil in a literal
	at       place
}

// At adds a place and a hint to an error. An error that already has a place keeps it.
func (o origin) At(err error, hint string) error {
	switch err.(type) {
	case nil, *Error, Errors:
		return err
	}
	if o.document == nil {
		return Errors{{File: literalName, Message: err.Error(), Hint: hint}}
	}
	alone := o.document.withoutFaults()
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

// CommentHint returns a hint if YAML has cut off a text at " #", which begins a comment.
// YAML never cuts off a text in quotes or in a block.
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
	return fmt.Sprintf(`YAML takes everything after " #" for a comment (%s:%d:%d): quote the code, or write it below "|" on separate lines`,
		o.document.file, o.at.line, column)
}

// Locate returns a fault in code with its place in the file, if the file contains the same
// code after o's place: on one line, or in a block.
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
		alone := o.document.withoutFaults()
		alone.addFault(at, fault.Hint, "%s", fault.Message)
		return alone.faults[0]
	}
	return fault
}

// indexOfLines returns the indentation of a text at the beginning of lines, or -1 if lines do
// not begin with the text. A text of one line may be anywhere in its line.
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

// Known lists the names that a configuration may use.
type Known struct {
	Sources   []string
	Sinks     []string
	Languages []string // the first is the default
	Types     []string // of computed columns
	// ColumnTypes are the types of columns of tables.
	ColumnTypes []string
}

// Defaults for missing keys.
const (
	// DefaultData is the data folder, in the folder of the configuration.
	DefaultData   = "perigee-data"
	DefaultReload = "30s"
)

// HTTPOff is the value of HTTP that disables the listener.
const HTTPOff = "off"

// sizeMax is the maximum size of a configuration; it guards against wrong files.
const sizeMax = 4 << 20

// Load reads the file at path. It returns the faults of the file as Errors, with the
// readable part; Resolve returns the faults again. lookup is os.LookupEnv.
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

// Parse is like Load for the text of the file at path, which may be an address.
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
	c := &Config{File: path, Folder: folder, Base: folder, document: d, root: root}
	if root != nil {
		d.readConfig(root, c, known)
	}
	c.faults = slices.Clone(d.faults)
	return c, d.faults.sorted()
}
