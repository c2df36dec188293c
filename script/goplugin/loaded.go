package goplugin

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"plugin"
	"strings"
	"sync"

	"github.com/perigeedb/perigee/script"
)

// Loaded is the number of plugins that this process has loaded. None of them
// can ever be unloaded.
func Loaded() int { return loaded.len() }

// loaded is the plugins that this process has loaded, by the contents of the file. It is
// global, as the linker's own list is.
var loaded registry

type registry struct {
	mu      sync.Mutex
	plugins map[string]*plugin.Plugin
}

func (r *registry) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.plugins)
}

// open opens a plugin once per contents, and returns the digest of the contents.
func (r *registry) open(code script.Code, content []byte) (*plugin.Plugin, string, error) {
	version := fmt.Sprintf("%x", sha256.Sum256(content))
	r.mu.Lock()
	defer r.mu.Unlock()
	if opened, ok := r.plugins[version]; ok {
		return opened, version, nil
	}
	if err := matchContent(code.Name, content); err != nil {
		return nil, "", err
	}
	var opened *plugin.Plugin
	var err error
	if code.File != "" {
		opened, err = openFile(code.File)
	} else {
		opened, err = openCopy(content)
	}
	if err != nil {
		return nil, "", explain(code, err)
	}
	if r.plugins == nil {
		r.plugins = make(map[string]*plugin.Plugin)
	}
	r.plugins[version] = opened
	return opened, version, nil
}

// openCopy opens a copy that is removed again. Go remembers plugins by path, and
// would return the old code for a file that was replaced; and code that is
// mapped from a file changes when somebody writes into the file.
func openCopy(content []byte) (opened *plugin.Plugin, err error) {
	folder, err := os.MkdirTemp("", "perigee-plugin-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	target := filepath.Join(folder, "plugin.so")
	if err := os.WriteFile(target, content, 0o700); err != nil {
		return nil, err
	}
	return openFile(target)
}

func openFile(path string) (opened *plugin.Plugin, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("panic while its packages were initialized: %v", reason)
		}
	}()
	return plugin.Open(path)
}

// explain says what to do about the errors of plugin.Open that we know.
func explain(code script.Code, err error) error {
	path, text, folder := code.Name, err.Error(), os.TempDir()
	if code.File != "" {
		folder = filepath.Dir(filepath.Dir(code.File))
	}
	switch {
	case strings.Contains(text, "plugin already loaded"):
		return fmt.Errorf("%s: this process has loaded another plugin of the same plugin path: "+
			"build it with perigee plugin build, which gives every version a path of its own, or restart", path)
	case strings.Contains(text, "different version of package "):
		_, pkg, _ := strings.Cut(text, "different version of package ")
		return fmt.Errorf("%s was built with another version of package %s than this binary, or than a plugin that it has loaded: "+
			"build it again with perigee plugin build; if the package is the plugin's own, restart", path, pkg)
	case strings.Contains(text, "failed to map segment"), errors.Is(err, os.ErrPermission):
		return fmt.Errorf("open plugin %s: %w: code must be allowed to run from %s; set TMPDIR to another folder", path, err, folder)
	}
	return fmt.Errorf("open plugin %s: %w", path, err)
}
