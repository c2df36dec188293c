package script

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/perigeedb/perigee/event"
)

// A Handler computes one value from one row. It is the interface that embedders of
// TalariaDB use. It is safe for concurrent use once loaded.
//
// Pipelines do not use it: a Script takes a whole batch at once and keeps numbers exact.
type Handler interface {
	// Load returns a handler for code, which it is given as text, path or URI.
	Load(uriOrCode string) (Handler, error)

	// String returns the language: "lua" or "plugin".
	String() string

	// Value runs the code on a row. The caller owns the row, and Value does not change it.
	Value(row map[string]any) (any, error)
}

// NewHandler returns a handler of a language whose scripts can return values. Load takes
// code, and paths and file:// URIs of files, which can require files of their folder. A
// number of JSON becomes a float64, or an int64 if it is an integer that a float64 cannot
// hold. The loaded handler is an io.Closer; garbage collection closes it, too.
func NewHandler(lang Language, opts Options) Handler {
	opts.ReturnsValue, opts.Sinks = true, []Sink{{}}
	return &handler{lang: lang, opts: opts}
}

type handler struct {
	lang    Language
	opts    Options
	script  Script // nil until Load
	cleanup runtime.Cleanup
}

func (h *handler) String() string { return h.lang.Name }

func (h *handler) Load(uriOrCode string) (Handler, error) {
	code, err := codeOf(uriOrCode)
	if err != nil {
		return nil, err
	}
	loaded := &handler{lang: h.lang, opts: h.opts}
	if loaded.script, err = h.lang.Load(context.Background(), code, h.opts); err != nil {
		return nil, err
	}
	loaded.cleanup = runtime.AddCleanup(loaded, func(s Script) { _ = s.Close() }, loaded.script)
	return loaded, nil
}

// codeOf returns code, or reads it from a path or URI. Text with white space is code,
// unless a file of that name exists.
func codeOf(uriOrCode string) (Code, error) {
	path, isFile := strings.CutPrefix(uriOrCode, "file://")
	switch scheme, _, found := strings.Cut(uriOrCode, "://"); {
	case strings.ContainsAny(uriOrCode, "\n ") && !isFile && !fileExists(uriOrCode):
		return Code{Name: "code", Text: []byte(uriOrCode)}, nil
	case found && !isFile:
		return Code{}, fmt.Errorf("load %s: unsupported scheme %s://; use code, a path or file://", uriOrCode, scheme)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return Code{}, fmt.Errorf("load script: %w", err)
	}
	return Code{Name: path, Text: text, Files: Folder(filepath.Dir(path))}, nil
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Close closes the script. Call it once, after the last Value.
func (h *handler) Close() error {
	if h.script == nil {
		return nil
	}
	h.cleanup.Stop()
	return h.script.Close()
}

func (h *handler) Value(row map[string]any) (any, error) {
	if h.script == nil {
		return nil, errors.New("no code loaded; call Load first")
	}
	if row == nil {
		row = map[string]any{}
	}
	doc, err := json.Marshal(row)
	if err != nil {
		return nil, fmt.Errorf("encode row: %w", err)
	}
	in := &event.Batch{Range: event.Range{Count: 1}, Data: doc, Ends: []uint32{uint32(len(doc))}}
	res := &event.Result{Outputs: make([]event.Output, 1)}
	err = h.script.Run(context.Background(), in, res)
	runtime.KeepAlive(h)
	switch {
	case err != nil:
		return nil, err
	case len(res.Dead) > 0:
		return nil, errorOfDead(&res.Dead[0])
	}
	return decodeValue(res.Outputs[0].Doc(0))
}

// errorOfDead returns an *Error for a dead letter whose text begins with file and line.
func errorOfDead(dead *event.DeadLetter) error {
	place, message, _ := strings.Cut(dead.Error, ": ")
	at := strings.LastIndexByte(place, ':')
	line, err := strconv.Atoi(place[at+1:])
	if at < 0 || err != nil {
		return errors.New(dead.Error)
	}
	return &Error{Script: place[:at], Line: line, Message: message, Traceback: dead.Traceback}
}

func decodeValue(text []byte) (any, error) {
	var v any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("decode value: %w", err)
	}
	return convertNumbers(v), nil
}

// convertNumbers replaces each json.Number in v by a float64 or int64.
func convertNumbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		x, _ := v.Float64()
		if i, err := v.Int64(); err == nil && strconv.FormatFloat(x, 'f', -1, 64) != v.String() {
			return i
		}
		return x
	case []any:
		for i := range v {
			v[i] = convertNumbers(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = convertNumbers(v[key])
		}
	}
	return v
}
