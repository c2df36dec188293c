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

	"github.com/perigeedb/perigee/script"
)

// A Source is the text of a script with the files that it requires. Each file is
// read once, so that all VMs of the script run the same text.
type Source struct {
	code script.Code

	mu    sync.Mutex
	files map[string][]byte // by name as required
}

// NewSource makes the source of a script.
func NewSource(code script.Code) *Source {
	return &Source{code: code, files: make(map[string][]byte)}
}

var moduleName = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)

// Require returns the text of the file that require "lib.name" means, and its path.
func (s *Source) Require(name string) (text []byte, path string, err error) {
	if !moduleName.MatchString(name) {
		return nil, "", fmt.Errorf("%q is no name of a module: write \"name\", or \"folder.name\" for the file folder/name.lua", name)
	}
	path = strings.ReplaceAll(name, ".", "/") + ".lua"
	s.mu.Lock()
	defer s.mu.Unlock()
	if text, read := s.files[name]; read {
		return text, path, nil
	}
	if s.code.Files == nil {
		return nil, "", fmt.Errorf("there is no module %q", name)
	}
	text, err = s.code.Files(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", fmt.Errorf("there is no module %q, and no file %s beside the script", name, path)
	}
	if err != nil {
		return nil, "", fmt.Errorf("require %q: %w", name, err)
	}
	s.files[name] = text
	return text, path, nil
}

// Version names the text of the script and of the files required so far.
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
