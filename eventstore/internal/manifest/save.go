package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/durable"
)

// Name is the name of the manifest's file in the store's folder. Its bases have names that
// begin with basePrefix.
const (
	Name       = "manifest"
	basePrefix = Name + "-"
)

// The file Name has a line with its format and the checksum of the rest.
const (
	wholeFormat = 1 // the rest is the manifest
	baseFormat  = 2 // the rest is a pointer
	head        = "perigee-manifest %d %08x\n"
)

// Format is the format of new manifests.
const Format = baseFormat

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A pointer names the base of the current version.
type pointer struct {
	Base     string `json:"base"`     // file in the store's folder
	Bytes    int64  `json:"bytes"`    // of the base that count
	Checksum uint32 `json:"checksum"` // CRC-32C of these bytes
}

// A new base is written after editsMax edits, or when the edits are larger than the version
// that they change and than editsMin bytes.
const (
	editsMax = 1000
	editsMin = 64 << 10
)

// A Writer writes the versions of the manifest in a store's folder. It is not safe for
// concurrent use, and a folder has one Writer.
type Writer struct {
	folder string
	saved  *Manifest // the last version; nil if the next one needs a new base
	at     pointer   // to saved
	edits  int       // in the base
	limit  int64     // size of the base beyond which a new base is written
}

// NewWriter returns a Writer for the store in folder.
func NewWriter(folder string) *Writer { return &Writer{folder: folder} }

// Save makes m the manifest of the store. After an error or a crash, either this version or
// the previous one is in place.
func (w *Writer) Save(m *Manifest) error {
	before := w.saved
	w.saved = nil // after an error, the end of the base is not known
	var err error
	if before == nil || w.edits == editsMax || w.at.Bytes > w.limit {
		err = w.writeBase(m)
	} else {
		err = w.appendEdit(before, m)
	}
	if err == nil {
		err = w.writePointer()
	}
	if err != nil {
		return err
	}
	if before == nil || w.edits == 0 {
		w.removeOtherBases()
	}
	w.saved = m
	return nil
}

// writeBase writes m as a new base.
func (w *Writer) writeBase(m *Manifest) error {
	if err := m.check(); err != nil {
		return fmt.Errorf("save the manifest: %w", err)
	}
	line, err := encodeLine(m)
	if err != nil {
		return err
	}
	w.at = pointer{Base: fmt.Sprint(basePrefix, m.Version), Bytes: int64(len(line)), Checksum: crc32.Checksum(line, castagnoli)}
	w.edits, w.limit = 0, 2*w.at.Bytes+editsMin
	return durable.WriteFile(filepath.Join(w.folder, w.at.Base), line, 0o600)
}

// appendEdit appends to the base what has changed since the last version.
func (w *Writer) appendEdit(before, m *Manifest) error {
	e := before.diff(m)
	if err := e.check(m); err != nil {
		return fmt.Errorf("save the manifest: %w", err)
	}
	line, err := encodeLine(e)
	if err != nil {
		return err
	}
	base, err := durable.OpenFile(filepath.Join(w.folder, w.at.Base), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = base.WriteAt(line, w.at.Bytes)
	if err == nil {
		err = base.Sync()
	}
	if err = errors.Join(err, base.Close()); err != nil {
		return err
	}
	w.edits++
	w.at.Bytes += int64(len(line))
	w.at.Checksum = crc32.Update(w.at.Checksum, castagnoli, line)
	return nil
}

func (w *Writer) writePointer() error {
	line, err := encodeLine(w.at)
	if err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(w.folder, Name), withHead(baseFormat, line), 0o600)
}

// removeOtherBases removes bases that no pointer names. One that stays does no harm.
func (w *Writer) removeOtherBases() {
	bases, _ := filepath.Glob(filepath.Join(w.folder, basePrefix+"*"))
	for _, base := range bases {
		if filepath.Base(base) != w.at.Base {
			_ = os.Remove(base)
		}
	}
}

func encodeLine(v any) ([]byte, error) {
	text := new(bytes.Buffer)
	encoder := json.NewEncoder(text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, fmt.Errorf("save the manifest: %w", err)
	}
	return text.Bytes(), nil
}

func withHead(format int, rest []byte) []byte {
	return append(fmt.Appendf(nil, head, format, crc32.Checksum(rest, castagnoli)), rest...)
}

// Encode returns the whole manifest as contents of the file Name, for a backup. A store
// restored from it begins a new incarnation.
func (m *Manifest) Encode() ([]byte, error) {
	m = m.Clone()
	m.Place = ""
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("save the manifest: %w", err)
	}
	line, err := encodeLine(m)
	if err != nil {
		return nil, err
	}
	text := new(bytes.Buffer) // legible
	if err := json.Indent(text, line, "", " "); err != nil {
		return nil, err
	}
	return withHead(wholeFormat, text.Bytes()), nil
}

// A Reader reads the manifest of a store's folder repeatedly. It reads only the edits
// since the last time. It is not safe for concurrent use.
type Reader struct {
	folder string
	newest *Manifest // that was read from its base; nil before
	at     pointer   // to newest
}

// NewReader returns a Reader for the store in folder.
func NewReader(folder string) *Reader { return &Reader{folder: folder} }

// Load reads the manifest of the store in folder. See Reader.Load.
func Load(folder string) (*Manifest, error) { return NewReader(folder).Load() }

// Load reads the current version. It returns os.ErrNotExist if there is no manifest, and a
// *DamageError if it is damaged.
func (r *Reader) Load() (*Manifest, error) {
	path := filepath.Join(r.folder, Name)
	for {
		format, rest, err := readHead(path)
		if err != nil {
			return nil, err
		}
		if format == wholeFormat {
			m := new(Manifest)
			if err := decode(path, rest, m); err != nil {
				return nil, err
			}
			if err := m.check(); err != nil {
				return nil, damaged(path, err)
			}
			return m, nil
		}
		var at pointer
		if err := decode(path, rest, &at); err != nil {
			return nil, err
		}
		m, err := r.loadBase(at)
		if !errors.Is(err, os.ErrNotExist) {
			return m, err
		}
		// The owner may have written a new base since.
		if _, now, again := readHead(path); again != nil || bytes.Equal(now, rest) {
			return nil, &DamageError{File: filepath.Join(r.folder, at.Base), Reason: "it is missing"}
		}
	}
}

// readHead reads the file Name.
func readHead(path string) (format int, rest []byte, err error) {
	text, err := durable.ReadFile(path)
	if err != nil {
		return 0, nil, err
	}
	first, rest, _ := bytes.Cut(text, []byte("\n"))
	var sum uint32
	if n, _ := fmt.Sscanf(string(first)+"\n", head, &format, &sum); n != 2 {
		return 0, nil, &DamageError{File: path, Reason: "it does not begin with perigee-manifest"}
	}
	if format != wholeFormat && format != baseFormat {
		return 0, nil, newer(fmt.Errorf("%s has format %d; this version of perigee reads formats %d and %d", path, format, wholeFormat, baseFormat))
	}
	if fmt.Sprintf(head, format, sum) != string(first)+"\n" { // Sscanf also accepts other spellings of a number
		return 0, nil, &DamageError{File: path, Reason: "its first line is malformed"}
	}
	if crc32.Checksum(rest, castagnoli) != sum {
		return 0, nil, &DamageError{File: path, Reason: "its checksum is wrong"}
	}
	return format, rest, nil
}

// loadBase reads the version that a pointer names. It returns os.ErrNotExist if the base is
// missing.
func (r *Reader) loadBase(at pointer) (*Manifest, error) {
	if !isFolderName(at.Base) || !strings.HasPrefix(at.Base, basePrefix) || at.Bytes < 0 {
		return nil, &DamageError{File: filepath.Join(r.folder, Name), Reason: fmt.Sprintf("it names %d bytes of %q", at.Bytes, at.Base)}
	}
	path := filepath.Join(r.folder, at.Base)
	m, from := r.newest, r.at
	if m == nil || from.Base != at.Base || from.Bytes > at.Bytes {
		m, from = nil, pointer{}
	}
	text, err := readBetween(path, from.Bytes, at.Bytes)
	if err != nil {
		return nil, err
	}
	if crc32.Update(from.Checksum, castagnoli, text) != at.Checksum {
		return nil, &DamageError{File: path, Reason: "its checksum is wrong"}
	}
	for line := range bytes.Lines(text) {
		if m == nil {
			m = new(Manifest)
			if err := decode(path, line, m); err != nil {
				return nil, err
			}
			if err := m.check(); err != nil {
				return nil, damaged(path, err)
			}
			continue
		}
		e := new(edit)
		if err := decode(path, line, e); err != nil {
			return nil, err
		}
		if m, err = m.apply(e); err == nil {
			err = e.check(m)
		}
		if err != nil {
			return nil, damaged(path, err)
		}
	}
	if m == nil {
		return nil, &DamageError{File: path, Reason: "it is empty"}
	}
	r.newest, r.at = m, at
	return m, nil
}

// readBetween reads part of a file, which may be shorter.
func readBetween(path string, from, to int64) ([]byte, error) {
	file, err := durable.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.NewSectionReader(file, from, to-from))
}

// decode decodes JSON without fields of a newer program, which this one would drop.
func decode(path string, text []byte, v any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(v); err != nil {
		return newer(fmt.Errorf("read %s: %w", path, err))
	}
	return nil
}

// newer adds advice to an error about a file with a correct checksum that does not decode.
func newer(err error) error {
	return &event.PermanentError{Err: err, Hint: "a later version of perigee has written this file: use that version; " +
		"perigee.format in the data folder may name it"}
}

func damaged(path string, err error) error {
	return &DamageError{File: path, Reason: err.Error()}
}
