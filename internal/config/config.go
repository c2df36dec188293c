// Package config reads a configuration file: strict YAML with variables from
// the environment.
//
// Nothing is guessed. A key or kind that is not known, a value of another type,
// a key that is missing or given twice is an Error with file, line, column, the
// source line and the nearest known name; one reading reports all it can find.
// ${NAME}, ${NAME:-default} and ${NAME:?message} stand for environment
// variables wherever a value may stand, $$ for a dollar sign. A variable's value
// is never parsed as YAML, and never part of an error.
//
// The package knows the shape of a pipeline and no kind of source or sink: their
// settings stay unread until the kind decodes them into its own struct. A Config
// is not safe for concurrent use while it is being decoded.
package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A Config is a file that has been read.
type Config struct {
	File      string
	Folder    string        // of the file: relative paths start here; the working one for a file on another host
	Data      string        // the engine's data folder, made absolute with Folder
	HTTP      string        // address to listen on; empty for none
	Reload    time.Duration // between two looks for new versions of scripts; 0 for only when asked
	Allow     Allow
	S3        S3
	Pipelines []Pipeline
}

// Allow lists the hosts that code may come from.
type Allow struct {
	Hosts []string
	origin
}

// S3 says where s3:// addresses lead; empty fields come from the environment.
type S3 struct {
	Endpoint  string `yaml:"endpoint" help:"http(s)://host:port of the service (default AWS_ENDPOINT_URL)"`
	Region    string `yaml:"region" help:"of the buckets (default AWS_REGION)"`
	AccessKey string `yaml:"access_key" help:"default AWS_ACCESS_KEY_ID"`
	SecretKey string `yaml:"secret_key" help:"default AWS_SECRET_ACCESS_KEY; give it as ${NAME}"`
	origin
}

// A Pipeline is one source, at most one script and at least one sink.
type Pipeline struct {
	Name     string
	Source   Choice
	Script   *Script    // nil when events pass through unchanged
	Computed []Computed // columns of every pipeline, then those of this one
	Sinks    []Sink     // their names differ
	Lanes    int        // batches in flight; 0 for the default
	Batch    Batch
	Lease    time.Duration // how long a worker that says nothing keeps its share; 0 for the default
}

// A Computed is a column whose value a function computes from the row.
type Computed struct {
	Name     string `yaml:"name,required" help:"of the field that the value becomes"`
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
	Language string
	Text     string // as written: code, a path or an address
	Func     string // the function to call; "" for the language's default
	Limits   Limits
	Pool     Pool
	origin
}

// ScriptSettings are the keys of a script beside its code.
type ScriptSettings struct {
	Limits
	Pool Pool `yaml:"pool"`
}

// A Pool says how many VMs a script has; 0 for the default, which adapts.
type Pool struct {
	Core   int           `yaml:"core" help:"VMs that are kept (default one for each core of the machine; -1 for none)"`
	Max    int           `yaml:"max" help:"VMs at most (default eight for each core of the machine; -1 for no bound)"`
	Eager  bool          `yaml:"eager" help:"make one more as soon as none is free, and not only where all wait"`
	Idle   time.Duration `yaml:"idle" help:"rest after which a VM beyond the core is released (default 10s)"`
	Memory int           `yaml:"memory,size" help:"bytes of all VMs (default 512MiB)"`
}

// Limits of a script; 0 for the default.
type Limits struct {
	EventTime time.Duration `yaml:"event_time" help:"time for one event (default 100ms)"`
	BatchTime time.Duration `yaml:"batch_time" help:"time for a batch (default 2s)"`
	Memory    int           `yaml:"memory,size" help:"bytes one script state may hold (default 64MiB)"`
	Output    int           `yaml:"output,size" help:"bytes of output for one batch (default 64MiB)"`
}

// A Choice is a kind with its settings, not decoded yet.
type Choice struct {
	Kind     string
	settings *node
	origin
}

// Decode fills the struct behind into from the settings, by its tags (see Fields).
func (c Choice) Decode(into any) error {
	return c.document.decodeAlone(c.settings, into, c.Kind)
}

// origin remembers where in the file something stands.
type origin struct {
	document *document
	at       place
}

// At gives an error the place of what it is about, and a hint. Errors that have
// a place keep it.
func (o origin) At(err error, hint string) error {
	switch err.(type) {
	case nil, *Error, Errors:
		return err
	}
	alone := document{file: o.document.file, lines: o.document.lines}
	alone.fault(o.at, hint, "%v", err)
	return alone.faults
}

// Known are the names that a configuration may use.
type Known struct {
	Sources   []string
	Sinks     []string
	Languages []string // the first is meant where a script names none
	Types     []string // of computed columns
}

// Defaults for what the file leaves out.
const (
	DefaultData   = "perigee-data"
	DefaultHTTP   = "127.0.0.1:4290"
	DefaultReload = "30s"
)

// sizeMax keeps a file given by mistake from being read into memory.
const sizeMax = 4 << 20

// Load reads the file at path. With faults in it, it returns Errors together
// with what could be read, so that a caller can look for more. lookup is
// os.LookupEnv.
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

// Parse reads the text of the file at path, which may be an address.
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
	c := &Config{File: path, Folder: folder, HTTP: DefaultHTTP}
	if root != nil {
		d.config(root, c, known)
	}
	return c, d.faults.sorted()
}
