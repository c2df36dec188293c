// Package scaffold makes the files of a new project: a configuration, a script, events, a test, and
// definitions for editors. The events decide its columns, types, and script.
//
// It knows each kind of source and sink by name, and writes settings that work with a server on
// this machine; variables of the environment name another one. Its functions are safe for
// concurrent use.
package scaffold

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/inspect"
	"github.com/perigeedb/perigee/internal/sqltext"
	"github.com/perigeedb/perigee/script/stubs"
)

// EventsKept is the number of events that a project gets.
const EventsKept = 10

// A Project is what to make.
type Project struct {
	Name         string // of pipeline, table and script; see Name
	Source, Sink string // kinds
	Schema       []byte // JSON Schema of configurations; nil for none

	events  [][]byte
	outputs [][]byte // of the events that the script does not drop
	script  string
	report  *inspect.Report // of outputs, or of many events like them
}

// A File is a file of a project, with its path relative to the project's folder.
type File struct{ Path, Text string }

// Example returns a project with events about emails and a script that changes them.
func Example(source, sink string) *Project {
	p := &Project{Name: "emails", Source: source, Sink: sink, script: exampleScript}
	x := inspect.New()
	for line := range strings.Lines(exampleEvents) {
		line = strings.TrimSpace(line)
		p.events = append(p.events, []byte(line))
		if strings.Contains(line, `"spam"`) {
			continue
		}
		_, domain, _ := strings.Cut(line, "@")
		domain, _, _ = strings.Cut(domain, `"`)
		output := fmt.Appendf(nil, `%s,"domain":%q}`, strings.TrimSuffix(line, "}"), domain)
		p.outputs = append(p.outputs, output)
		x.Add(output)
	}
	p.report = x.Report()
	return p
}

// From returns a project for events that a report describes; first are the first of them.
func From(name, source, sink string, report *inspect.Report, first [][]byte) *Project {
	return &Project{Name: Name(name), Source: source, Sink: sink, events: first, outputs: first, report: report, script: scriptOf(report)}
}

// Name turns any text into a name for a pipeline and a table.
func Name(text string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(text) {
		switch {
		case r < 0x80 && (unicode.IsLetter(r) || unicode.IsDigit(r)):
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "_"):
			b.WriteByte('_')
		}
	}
	name := strings.Trim(b.String(), "_")
	name = strings.TrimSuffix(name[:min(len(name), 40)], "_")
	if name == "" || unicode.IsDigit(rune(name[0])) || sqltext.TableNameHint(name) != "" || sqltext.IsKeyword(name) {
		name = strings.TrimSuffix("events_"+name, "_")
	}
	return name
}

// Files returns the files of the project.
func (p *Project) Files() ([]File, error) {
	pipeline, err := p.pipeline()
	if err != nil {
		return nil, err
	}
	files := []File{
		{"pipeline.yaml", pipeline}, {p.Name + ".lua", p.script}, {"events.ndjson", string(bytes.Join(p.events, []byte("\n"))) + "\n"},
		{"pipeline_test.yaml", p.test()}, {".luarc.json", luarc}, {"README.md", p.readme()}, {".gitignore", "perigee-data/\nout/\n"},
	}
	for _, s := range stubs.Files() {
		files = append(files, File{editorFolder + "/lua/" + s.Name, s.Text})
	}
	if p.Schema != nil {
		files = append(files, File{schemaFile, string(p.Schema)})
	}
	return files, nil
}

// Write writes the files of the project into a folder, which it creates. If one of them exists, it
// writes none and returns an error.
func (p *Project) Write(folder string) error {
	files, err := p.Files()
	if err != nil {
		return err
	}
	var existing []string
	for _, f := range files {
		if _, err := os.Lstat(filepath.Join(folder, f.Path)); err == nil {
			existing = append(existing, f.Path)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("look for existing files: %w", err)
		}
	}
	if len(existing) > 0 {
		return event.WithHint(fmt.Errorf("%s already exists in %s: nothing was written", strings.Join(existing, ", "), folder), "name another folder, or move the files away")
	}
	for _, f := range files {
		if err := writeNew(filepath.Join(folder, f.Path), f.Text); err != nil {
			return fmt.Errorf("write the project: %w", err)
		}
	}
	return nil
}

// writeNew writes a file that does not exist.
func writeNew(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Close())
}
