//go:build linux

package isolate

import (
	"errors"
	"io/fs"
	"regexp"

	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/stdlib"
)

// requiredFiles are the files that a worker has requested from its parent.
type requiredFiles struct {
	answers map[string]fileAnswer // by path
	loaded  bool                  // the parent answers no more requests
}

type fileAnswer struct {
	text []byte
	err  error
}

// readFile reads a required file. Until the script is loaded, it requests each file from the parent
// once. It implements script.Code.Files.
func (w *worker) readFile(path string) ([]byte, error) {
	w.calling.Lock()
	defer w.calling.Unlock()
	if answer, asked := w.files.answers[path]; asked {
		return answer.text, answer.err
	}
	if w.files.loaded {
		return nil, script.ErrLoaded
	}
	text, err := w.callForFile(path)
	if w.files.answers == nil {
		w.files.answers = make(map[string]fileAnswer)
	}
	if len(w.files.answers) < filesMax {
		w.files.answers[path] = fileAnswer{text, err}
	}
	return text, err
}

func (w *worker) callForFile(path string) ([]byte, error) {
	e := w.textEncoder()
	e.uint(callFile)
	e.text(path)
	reply, err := w.call(e)
	if err != nil {
		return nil, err
	}
	d := &decoder{buf: reply}
	switch found, text := d.uint(), d.text(); {
	case d.err != nil:
		return nil, d.err
	case found == 0:
		return []byte(text), nil
	case found == 1:
		return nil, missingFile(text)
	default:
		return nil, errors.New(text)
	}
}

// missingFile is an error text of the parent whose error was fs.ErrNotExist.
type missingFile string

func (e missingFile) Error() string        { return string(e) }
func (e missingFile) Is(target error) bool { return target == fs.ErrNotExist }

// namedModule matches a module name in quotes after require, also as in pcall(require, "name").
var namedModule = regexp.MustCompile(`\brequire\s*[(,]?\s*["']([A-Za-z0-9_.-]+)["']`)

// readNamedFiles reads the files that a loaded script may require later: those named in quotes in
// the script or in a file that it requires. Other files cannot be required afterwards.
func (w *worker) readNamedFiles(code *script.Code) error {
	modules, err := stdlib.Modules(w.options.Modules, nil)
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, m := range modules {
		known[m.Name] = true
	}
	for _, name := range stdlib.Reserved() {
		known[name] = true
	}
	texts := [][]byte{code.Text}
	for _, answer := range w.files.answers {
		texts = append(texts, answer.text)
	}
	for len(texts) > 0 {
		text := texts[0]
		texts = texts[1:]
		for _, match := range namedModule.FindAllSubmatch(text, -1) {
			name := string(match[1])
			path, err := script.ModulePath(name)
			if err != nil || known[name] {
				continue
			}
			known[name] = true
			if _, asked := w.files.answers[path]; asked {
				continue
			}
			if more, err := w.readFile(path); err == nil {
				texts = append(texts, more)
			}
		}
	}
	w.files.loaded = true
	return nil
}
