// Package goplugin runs user code compiled to a Go plugin (-buildmode=plugin).
//
// A plugin that does not match the running binary is refused before it is
// opened, module by module, because Go itself notices too little: a plugin of
// another patch release opens silently, one of another release ends the
// process. Build makes plugins that match.
//
// A plugin exports a function by name, in one of these shapes. They need no
// package of ours, so that a plugin depends on nothing of ours either:
//
//	func(row map[string]any) (any, error)
//	func(data []byte, ends []uint32, emit func(event int, doc []byte), fail func(event int, err error))
//
// The second gets a whole batch of JSON documents back to back, ends[i] being
// the offset just past document i, and calls emit for every document that goes
// on and fail for every event that cannot be processed. An event for which
// neither is called is dropped.
//
// A panic in a plugin is a dead letter. A plugin cannot be interrupted, so time
// and memory limits do not hold, and its code is never unloaded: Loaded counts
// what has come in. Everything here is safe for concurrent use if the plugin's
// functions are.
package goplugin

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"plugin"
	"strings"
	"sync/atomic"
)

// RowFunc handles one event as a map. Numbers are int64 where they are integral
// and fit, json.Number where neither int64 nor float64 holds them exactly, and
// float64 otherwise.
type RowFunc = func(row map[string]any) (any, error)

// BatchFunc handles a batch of JSON documents; see the package comment.
type BatchFunc = func(data []byte, ends []uint32, emit func(event int, doc []byte), fail func(event int, err error))

// DefaultFunc is the symbol that is looked up when none is named.
const DefaultFunc = "Main"

var loaded atomic.Int64

// Loaded is the number of plugins that this process has loaded. None of them
// can ever be unloaded.
func Loaded() int64 { return loaded.Load() }

// A Plugin is an opened plugin and one of its functions. Exactly one of Row and
// Batch is set.
type Plugin struct {
	Row   RowFunc
	Batch BatchFunc

	path    string
	symbol  string
	version string
}

// Open checks that the plugin at path matches this binary, opens it, and looks
// symbol up. Different contents under one path are different plugins.
func Open(path, symbol string) (*Plugin, error) {
	if symbol == "" {
		symbol = DefaultFunc
	}
	if err := Match(path); err != nil {
		return nil, err
	}
	version, err := digest(path)
	if err != nil {
		return nil, err
	}
	opened, err := open(path, version)
	if err != nil {
		return nil, err
	}
	p := &Plugin{path: path, symbol: symbol, version: version[:12]}
	return p, p.lookup(opened)
}

// String is the plugin's file, function and version.
func (p *Plugin) String() string {
	return fmt.Sprintf("%s:%s@%s", filepath.Base(p.path), p.symbol, p.version)
}

func (p *Plugin) lookup(opened *plugin.Plugin) error {
	symbol, err := opened.Lookup(p.symbol)
	if err != nil {
		return fmt.Errorf("%s has no exported symbol %s: name one with funcname", p.path, p.symbol)
	}
	switch f := symbol.(type) {
	case RowFunc:
		p.Row = f
	case BatchFunc:
		p.Batch = f
	default:
		return fmt.Errorf("%s: %s has type %T, want func(map[string]any) (any, error) or "+
			"func([]byte, []uint32, func(int, []byte), func(int, error))", p.path, p.symbol, symbol)
	}
	return nil
}

// open opens a copy that is named by its contents: Go remembers plugins by
// path, and would give the old code back for a file that was replaced.
func open(path, version string) (*plugin.Plugin, error) {
	folder, err := copies()
	if err != nil {
		return nil, err
	}
	target := filepath.Join(folder, version+".so")
	fresh := false
	if _, err := os.Stat(target); err != nil {
		fresh = true
		if err := copyFile(path, target); err != nil {
			return nil, fmt.Errorf("copy plugin %s: %w", path, err)
		}
	}
	opened, err := plugin.Open(target)
	if err != nil {
		return nil, explain(path, err)
	}
	if fresh {
		loaded.Add(1)
	}
	return opened, nil
}

// copies is a folder of this process, under the name of its number.
func copies() (string, error) {
	folder := filepath.Join(os.TempDir(), fmt.Sprintf("perigee-plugins-%d", os.Getpid()))
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", fmt.Errorf("make a folder for plugins: %w", err)
	}
	return folder, nil
}

// Cleanup removes the copies that Open made. Plugins stay usable.
func Cleanup() {
	if folder, err := copies(); err == nil {
		os.RemoveAll(folder)
	}
}

// explain adds what to do to the errors of plugin.Open that we know.
func explain(path string, err error) error {
	text := err.Error()
	switch {
	case strings.Contains(text, "plugin already loaded"):
		return fmt.Errorf("%s: another version of this plugin is loaded and cannot be replaced while the process runs, "+
			"because both have the same plugin path: build it with perigee plugin build, which gives every version its own, or restart", path)
	case strings.Contains(text, "different version of package"):
		_, pkg, _ := strings.Cut(text, "different version of package ")
		return fmt.Errorf("%s was built with another version of package %s than this binary: "+
			"build it again with perigee plugin build", path, pkg)
	}
	return fmt.Errorf("open plugin %s: %w", path, err)
}

func digest(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("open plugin: %w", err)
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", fmt.Errorf("read plugin: %w", err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// copyFile makes target whole or not at all.
func copyFile(path, target string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	temporary := fmt.Sprintf("%s.%d", target, os.Getpid())
	if err := os.WriteFile(temporary, content, 0o700); err != nil {
		return err
	}
	return os.Rename(temporary, target)
}
