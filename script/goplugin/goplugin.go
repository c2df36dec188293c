// Package goplugin runs user code compiled to a Go plugin (-buildmode=plugin).
//
// A plugin that does not match the running binary is refused before it is opened,
// module by module, because Go itself checks too little: it opens a plugin of another
// patch release silently, and one of another release ends the process. Build builds
// plugins that match.
//
// A plugin exports a function by name, of one of these types. They are unnamed types,
// so that a plugin imports nothing of ours:
//
//	func(row map[string]any) (any, error)
//	func(docs [][]byte, emit func(event int, doc []byte), fail func(event int, err error))
//	func(docs [][]byte, emit func(event int, doc []byte, sinks ...string), fail func(event int, err error))
//
// The first gets one event as a map; see RowFunc. The others get the JSON documents of
// a whole batch; see BatchFunc and RouteFunc.
//
// A panic in a plugin makes dead letters. Some faults end the process, because Go
// cannot recover from them: a panic in a goroutine that the plugin started, a stack
// overflow, concurrent map writes. A plugin cannot be interrupted, so time and memory
// limits do not hold, only that of the output. Its code is never unloaded; Loaded
// counts the plugins.
//
// Everything here is safe for concurrent use if the plugin's functions are.
package goplugin

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"plugin"

	"github.com/perigeedb/perigee/script"
)

// RowFunc handles one event. The row is the function's own: it may change it,
// return it and keep it. It returns
//
//	map[string]any     the event that goes on
//	[]map[string]any   several of them, none if it is empty
//	nil                nothing goes on
//	map[string][]map[string]any
//	                   several of them by the name of their sink; those below the
//	                   empty name are for every sink that is not Routed
//
// and anything else makes the event a dead letter, as an error does. Where it
// computes a value instead of events, it returns what encoding/json can encode;
// a []byte is taken for text.
//
// A number is an int64 where it is spelled as an integer and fits one, a float64
// where that holds it exactly, and a json.Number otherwise.
type RowFunc = func(row map[string]any) (any, error)

// BatchFunc handles a batch of JSON documents, each of them a valid JSON object. It
// calls emit for every document that goes on, in the order of the events, and fail for
// every event that cannot be processed. An event for which it calls neither is dropped.
// The function owns docs until it returns. It may call emit and fail until then, from
// one goroutine at a time.
//
// If it panics, the events of the batch run again one by one, so that only the one at
// fault becomes a dead letter.
type BatchFunc = func(docs [][]byte, emit func(event int, doc []byte), fail func(event int, err error))

// RouteFunc is a BatchFunc whose emit takes the names of a document's sinks. Without a
// name the document goes to every sink that is not Routed.
type RouteFunc = func(docs [][]byte, emit func(event int, doc []byte, sinks ...string), fail func(event int, err error))

// DefaultFunc is the default symbol.
const DefaultFunc = "Main"

// A Plugin is an opened plugin and one of its functions. Exactly one of Row, Batch
// and Route is set.
type Plugin struct {
	Row   RowFunc
	Batch BatchFunc
	Route RouteFunc

	path    string
	symbol  string
	version string
}

// Open checks that the plugin at path matches this binary, opens it, and looks symbol
// up. A file whose contents have changed is another plugin.
func Open(path, symbol string) (*Plugin, error) {
	content, err := read(path)
	if err != nil {
		return nil, err
	}
	return openContent(script.Code{Name: path, Func: symbol}, content)
}

func openContent(code script.Code, content []byte) (*Plugin, error) {
	opened, version, err := loaded.open(code, content)
	if err != nil {
		return nil, err
	}
	p := &Plugin{path: code.Name, symbol: cmp.Or(code.Func, DefaultFunc), version: version[:12]}
	if err := p.lookup(opened); err != nil {
		return nil, err
	}
	return p, nil
}

// String returns the plugin's file, function and version.
func (p *Plugin) String() string {
	return fmt.Sprintf("%s:%s@%s", filepath.Base(p.path), p.symbol, p.version)
}

func (p *Plugin) lookup(opened *plugin.Plugin) error {
	symbol, err := opened.Lookup(p.symbol)
	if err != nil {
		return fmt.Errorf("%s exports no function %s; set funcname to the one to call", p.path, p.symbol)
	}
	switch f := symbol.(type) {
	case RowFunc:
		p.Row = f
	case BatchFunc:
		p.Batch = f
	case RouteFunc:
		p.Route = f
	default:
		return fmt.Errorf("%s: %s is of type %T, want func(map[string]any) (any, error), "+
			"func([][]byte, func(int, []byte), func(int, error)) "+
			"or func([][]byte, func(int, []byte, ...string), func(int, error))", p.path, p.symbol, symbol)
	}
	return nil
}

// errNotRowFunc is the error of a plugin that cannot compute values.
func (p *Plugin) errNotRowFunc() error {
	return fmt.Errorf("%v takes batches; a function for values must be a func(map[string]any) (any, error)", p)
}

func read(path string) ([]byte, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read plugin: %w", err)
	}
	return content, nil
}
