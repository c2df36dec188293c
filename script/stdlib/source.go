package stdlib

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/perigeedb/perigee/internal/nearest"
	"github.com/perigeedb/perigee/script"
)

// A Source is the text of a script and of the files that it requires. Each file is read
// once, so that all VMs of the script run the same text.
type Source struct {
	code    script.Code
	modules []string // that need no file

	mu    sync.Mutex
	files map[string][]byte // by name as required
	bytes int               // of all files
}

// NewSource returns the source of a script that can require modules, which Modules
// returned, and others, besides its files.
func NewSource(code script.Code, modules []script.Module, others ...string) *Source {
	s := &Source{code: code, modules: append(Reserved(), others...), files: make(map[string][]byte)}
	for _, m := range modules {
		s.modules = append(s.modules, m.Name)
	}
	return s
}

// Require returns text and path of the file for require "lib.name".
func (s *Source) Require(name string) (text []byte, path string, err error) {
	if path, err = script.ModulePath(name); err != nil {
		return nil, "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if text, read := s.files[name]; read {
		return text, path, nil
	}
	if s.code.Files == nil {
		return nil, "", s.unknown(name, "")
	}
	text, err = s.code.Files(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", s.unknown(name, fmt.Sprintf(", and no file %s beside the script", path))
	}
	if errors.Is(err, script.ErrLoaded) {
		return nil, "", s.unknown(name, fmt.Sprintf(", and %s was not read while the script was loaded: require it at the top of the script, or by its name in quotes", path))
	}
	if err != nil {
		return nil, "", fmt.Errorf("require %q: %w", name, err)
	}
	if len(s.files) >= script.RequiredFilesMax || s.bytes+len(text) > script.RequiredBytesMax {
		return nil, "", fmt.Errorf("require %q: a script may require %d files of %d MiB in all, and has required %d", name, script.RequiredFilesMax, script.RequiredBytesMax>>20, len(s.files))
	}
	s.files[name] = text
	s.bytes += len(text)
	return text, path, nil
}

// unknown returns the error for a module that is neither known nor a file.
func (s *Source) unknown(name, noFile string) error {
	switch name {
	case "nodedb", "yottadb":
		return errors.New("no node database is open for this script; write state: in the pipeline for one, or use perigee eval --nodes FOLDER, in a build with LuaJIT and LMDB")
	case "timer", "window":
		return fmt.Errorf("module %s is for scripts of pipelines with a state; write state: in the pipeline%s", name, noFile)
	case "state":
		return fmt.Errorf("module state is for scripts that read the state of another pipeline; write reads: [NAME] in the pipeline, with the name of that state%s", noFile)
	}
	return fmt.Errorf("unknown module %q%s%s", name, noFile, s.nearest(name))
}

// nearest returns a hint at a module with a similar name.
func (s *Source) nearest(name string) string {
	if near := nearest.Name(name, s.modules); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return ""
}

// nilIndex matches the error of indexing nil: LuaJIT's for a global, and gopher-lua's.
var nilIndex = regexp.MustCompile(`attempt to index (?:global '(\w+)' \(a nil value\)|a nil value with the key '(\w+)')`)

// WithHint adds a hint to an error message if the script uses a module at this line
// that it has not required.
func (s *Source) WithHint(file string, line int, message string) string {
	index := nilIndex.FindStringSubmatch(message)
	if index == nil {
		return message
	}
	text := s.line(file, line)
	for _, name := range s.modules {
		used := regexp.MustCompile(`(^|[^\w.:])` + name + `\s*[.:]\s*` + index[2])
		if (index[1] == name || index[1] == "") && used.MatchString(text) {
			return fmt.Sprintf("%s; write: local %s = require %q", message, name, name)
		}
	}
	return message
}

// line returns a line of the script or of a required file.
func (s *Source) line(file string, number int) string {
	text := s.code.Text
	s.mu.Lock()
	for name, content := range s.files {
		if path, _ := script.ModulePath(name); path == file && file != s.code.Name {
			text = content
		}
	}
	s.mu.Unlock()
	lines := strings.Split(string(text), "\n")
	if number < 1 || number > len(lines) {
		return ""
	}
	return lines[number-1]
}

// Version returns a hash of the script and of the files required so far.
func (s *Source) Version() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.files) == 0 {
		return fmt.Sprintf("%.6x", sha256.Sum256(s.code.Text))
	}
	h := sha256.New()
	_, _ = h.Write(s.code.Text) // never fails
	names := make([]string, 0, len(s.files))
	for name := range s.files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		_, _ = fmt.Fprintf(h, "\x00%s\x00%d\x00%s", name, len(s.files[name]), s.files[name])
	}
	return fmt.Sprintf("%.6x", h.Sum(nil))
}
