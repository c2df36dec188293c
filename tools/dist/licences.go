package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
)

var licenceName = regexp.MustCompile(`(?i)^(licen[cs]e|copying|copyright|notice)([._-].*)?$`)

// collectLicences gathers the licences of all that is linked: Go, the modules, and the C libraries.
func (r *release) collectLicences(ctx context.Context, b *build) error {
	var modules []*debug.Module
	goVersion := ""
	for _, program := range []string{b.binary, b.committer} {
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return err
		}
		modules, goVersion = append(modules, info.Deps...), info.GoVersion
	}
	// Not through tools/go.sh: without the compiler's name it would build the libraries for this machine.
	goTool, err := output(ctx, b.source, "tools/go.sh", "-path")
	if err != nil {
		return err
	}
	paths, err := output(ctx, b.source, goTool, "env", "GOMODCACHE", "GOROOT")
	if err != nil {
		return err
	}
	cache, root, _ := strings.Cut(paths, "\n")
	var text bytes.Buffer
	text.WriteString("Perigee has the licence in the file LICENSE. It contains the following, with their licences.\n")
	add := func(name, folder string) error {
		entries, err := os.ReadDir(folder)
		found := false
		for _, entry := range entries {
			if !licenceName.MatchString(entry.Name()) || entry.IsDir() {
				continue
			}
			content, err := os.ReadFile(filepath.Join(folder, entry.Name()))
			if err != nil {
				return err
			}
			fmt.Fprintf(&text, "\n%s\n%s: %s\n\n%s\n", strings.Repeat("=", 80), name, entry.Name(), bytes.TrimSpace(content))
			found = true
		}
		if !found {
			return errors.Join(err, fmt.Errorf("no licence of %s in %s", name, folder))
		}
		return nil
	}
	err = add("Go "+goVersion, root)
	for _, library := range []struct{ name, pattern string }{
		{"LuaJIT", "luajit-source/*"}, {"LMDB", "lmdb-source/*"},
	} {
		folders, _ := filepath.Glob(filepath.Join(b.source, ".build", library.pattern))
		for _, folder := range folders {
			if s, statErr := os.Stat(folder); statErr == nil && s.IsDir() && len(filepath.Base(folder)) == 64 {
				err = errors.Join(err, add(library.name, folder))
			}
		}
	}
	added := map[string]bool{}
	for _, m := range modules {
		if m.Replace != nil {
			m = m.Replace
		}
		if name := m.Path + " " + m.Version; !modfile.IsDirectoryPath(m.Path) && !added[name] { // a folder is one of this repository
			added[name] = true
			path, escapeErr := module.EscapePath(m.Path)
			err = errors.Join(err, escapeErr, add(name, filepath.Join(cache, path+"@"+m.Version)))
		}
	}
	b.licences = text.Bytes()
	return err
}
