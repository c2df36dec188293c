package reload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"path/filepath"
	"sync"

	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/loader"
)

// A snapshot holds the contents of a script's origins and of the files that its code
// required.
type snapshot struct {
	parts []*originSnapshot
}

// An originSnapshot is the snapshot of one origin.
type originSnapshot struct {
	origin loader.Origin
	tag    string
	code   script.Code

	mu       sync.Mutex
	required map[string][]byte // by path
	missing  map[string]bool   // paths of files that could not be read; see missingMax
	bytes    int               // of required files
}

// missingMax bounds how many missing files a version watches for. A sender can have a script
// require any names, so only the first are watched, which are mostly those of its top.
const missingMax = 20

func newOriginSnapshot(o loader.Origin) *originSnapshot {
	return &originSnapshot{origin: o, required: map[string][]byte{}, missing: map[string]bool{}}
}

// A ReadError says which origin could not be read.
type ReadError struct {
	Origin int // in Config.Origins
	Err    error
}

func (e *ReadError) Error() string { return e.Err.Error() }
func (e *ReadError) Unwrap() error { return e.Err }

// readOrigins reads all origins.
func readOrigins(ctx context.Context, l *loader.Loader, origins []loader.Origin) (*snapshot, error) {
	s := &snapshot{}
	for i, origin := range origins {
		p := newOriginSnapshot(origin)
		var err error
		if p.code, p.tag, err = l.Code(ctx, origin, ""); err != nil {
			return nil, &ReadError{Origin: i, Err: err}
		}
		s.parts = append(s.parts, p)
	}
	return s, nil
}

// recordingCode returns the code. The snapshot records which files the code requires.
func (s *snapshot) recordingCode() []script.Code {
	codes := make([]script.Code, len(s.parts))
	for i, p := range s.parts {
		codes[i] = p.code
		codes[i].Files = p.readRequired
	}
	return codes
}

// readRequired reads a required file once, so that all VMs of a version get the same
// text.
func (p *originSnapshot) readRequired(path string) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if text, read := p.required[path]; read {
		return text, nil
	}
	text, err := p.code.Files(path)
	switch {
	case err != nil && len(p.missing) < missingMax:
		p.missing[path] = true
	case err != nil:
	case len(p.required) >= script.RequiredFilesMax || p.bytes+len(text) > script.RequiredBytesMax:
		return nil, fmt.Errorf("read %s: a script may require %d files of %d MiB in all", path, script.RequiredFilesMax, script.RequiredBytesMax>>20)
	default:
		delete(p.missing, path)
		p.required[path] = text
		p.bytes += len(text)
	}
	return text, err
}

// reread returns a new snapshot, or nil if nothing has changed.
func (s *snapshot) reread(ctx context.Context, l *loader.Loader, remote bool) (*snapshot, error) {
	next, changed := &snapshot{}, false
	for _, p := range s.parts {
		now, differs, err := p.reread(ctx, l, remote)
		if err != nil {
			return nil, err
		}
		next.parts = append(next.parts, now)
		changed = changed || differs
	}
	if !changed {
		return nil, nil
	}
	return next, nil
}

func (p *originSnapshot) reread(ctx context.Context, l *loader.Loader, remote bool) (now *originSnapshot, changed bool, err error) {
	now = newOriginSnapshot(p.origin)
	now.tag, now.code = p.tag, p.code
	if p.origin.Remote() && !remote {
		p.mu.Lock()
		defer p.mu.Unlock()
		maps.Copy(now.required, p.required)
		maps.Copy(now.missing, p.missing)
		now.bytes = p.bytes
		return now, false, nil
	}
	code, tag, err := l.Code(ctx, p.origin, p.tag)
	switch {
	case errors.Is(err, loader.ErrUnchanged):
	case err != nil:
		return nil, false, err
	default:
		changed = code.Text == nil || !bytes.Equal(code.Text, p.code.Text)
		now.code, now.tag = code, tag
	}
	other, err := p.requiredChanged()
	return now, changed || other, err
}

// requiredChanged reports whether a required file has changed or is gone. A file that
// cannot be read has not changed.
func (p *originSnapshot) requiredChanged() (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for path, was := range p.required {
		text, err := p.code.Files(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
		if err != nil || !bytes.Equal(text, was) {
			return true, nil
		}
	}
	for path := range p.missing {
		if _, err := p.code.Files(path); err == nil {
			return true, nil
		}
	}
	return false, nil
}

// localRequired returns the paths of required local files.
func (p *originSnapshot) localRequired() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var files []string
	if p.origin.Remote() {
		return nil
	}
	for _, paths := range []iter.Seq[string]{maps.Keys(p.required), maps.Keys(p.missing)} {
		for path := range paths {
			files = append(files, filepath.Join(p.origin.Folder(), filepath.FromSlash(path)))
		}
	}
	return files
}

// files returns the paths of all local files.
func (s *snapshot) files() []string {
	var files []string
	for _, p := range s.parts {
		if p.origin.Path() != "" {
			files = append(files, p.origin.Path())
		}
		files = append(files, p.localRequired()...)
	}
	return files
}
