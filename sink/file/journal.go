package file

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink/internal/positions"
)

// A folder says where files are and when they are full.
type folder struct {
	path, name, pipeline, ending string
	bytes                        int64
	age                          time.Duration
}

// file is the path of a file once it is full.
func (f *folder) file(number uint64, ending string) string {
	return filepath.Join(f.path, fmt.Sprintf("%s-%08d%s", f.name, number, ending))
}

func (f *folder) hidden(what string) string {
	return filepath.Join(f.path, "."+f.name+"."+what)
}

const openEnding = ".open"

// A journal is the state of the files, shared by all who have them open. Its
// fields belong to whoever holds the lock.
type journal struct {
	folder folder
	pack   packer

	mu     sync.Mutex // among the goroutines of this process
	lock   *os.File   // among processes
	file   *os.File   // the journal
	read   int64      // bytes of it that are part of the state
	state  state
	data   *os.File // the open file, nil when it must be opened again
	number uint64   // of data
	lines  []byte
	packed []byte
}

func openJournal(f folder, pack packer) (*journal, error) {
	if err := os.MkdirAll(f.path, 0o755); err != nil {
		return nil, &event.PermanentError{Err: fmt.Errorf("make the folder of the files: %w", err), Hint: "check folder below the file sink"}
	}
	lock, err := os.OpenFile(f.hidden("lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, &event.PermanentError{Err: fmt.Errorf("open the lock of the files: %w", err), Hint: "let the user that runs perigee write there"}
	}
	j := &journal{folder: f, pack: pack, lock: lock}
	return j, j.locked(func() error { return nil })
}

func (j *journal) close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	errs := []error{j.lock.Close()}
	for _, f := range []*os.File{j.file, j.data} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// locked runs f while nobody else has the files, and with what they did in the
// state.
func (j *journal) locked(f func() error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := lockFile(j.lock); err != nil {
		return fmt.Errorf("lock the files: %w", err)
	}
	defer unlockFile(j.lock)
	if err := j.catchUp(); err != nil {
		return fmt.Errorf("read the journal of the files: %w", err)
	}
	return f()
}

// catchUp reads what others have added to the journal, or the new one that they
// put in its place.
func (j *journal) catchUp() error {
	if err := j.current(); err != nil {
		return err
	}
	in := bufio.NewReader(io.NewSectionReader(j.file, j.read, 1<<62))
	for {
		line, err := in.ReadBytes('\n')
		if err == io.EOF && len(line) == 0 {
			return nil
		}
		if err == io.EOF {
			return j.file.Truncate(j.read) // what was cut short never counted
		}
		if err != nil {
			return err
		}
		var r record
		if !decode(line, &r) {
			return &event.PermanentError{
				Err:  fmt.Errorf("%s is damaged at byte %d", j.file.Name(), j.read),
				Hint: "restore it from a copy; without it nobody knows what the files hold",
			}
		}
		j.state.apply(&r)
		j.read += int64(len(line))
	}
}

// current opens the journal that is in the folder now.
func (j *journal) current() error {
	path := j.folder.hidden("journal")
	if j.file != nil {
		mine, err := j.file.Stat()
		if err != nil {
			return err
		}
		if now, err := os.Stat(path); err == nil && os.SameFile(mine, now) {
			return nil
		}
		_ = j.file.Close()
		j.file = nil
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	j.file, j.read, j.state = file, 0, state{Partitions: make(map[string]*partition)}
	return nil
}

// ours refuses files of another pipeline, whose partitions may have the same names.
func (j *journal) ours() error {
	if owner := j.state.Pipeline; owner != "" && owner != j.folder.pipeline {
		return &event.PermanentError{
			Err:  fmt.Errorf("the files %s in %s are those of %s", j.folder.name, j.folder.path, owner),
			Hint: "give this sink another name or folder",
		}
	}
	return nil
}

// note makes a record durable and part of the state.
func (j *journal) note(r record) error {
	line, err := encode(&r)
	if err != nil {
		return err
	}
	if _, err := j.file.WriteAt(line, j.read); err != nil {
		return fmt.Errorf("write the journal of the files: %w", err)
	}
	if err := j.file.Sync(); err != nil {
		_ = j.file.Truncate(j.read) // or it would be read back, though it may never reach the disk
		return fmt.Errorf("sync the journal of the files: %w", err)
	}
	j.read += int64(len(line))
	j.state.apply(&r)
	return nil
}

// A line is a CRC-32C of a record in hexadecimal digits, a space and the record.
func encode(r *record) ([]byte, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "%08x %s\n", crc32.Checksum(text, castagnoli), text), nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func decode(line []byte, r *record) bool {
	sum, text, found := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(" "))
	want, err := strconv.ParseUint(string(sum), 16, 32)
	return found && err == nil && uint32(want) == crc32.Checksum(text, castagnoli) && json.Unmarshal(text, r) == nil
}

// store appends rows to the open file and returns its size then. They count once
// the journal says so.
func (j *journal) store(rows *positions.Rows) (int64, error) {
	if err := j.rotate(); err != nil {
		return 0, err
	}
	j.lines = j.lines[:0]
	for _, i := range rows.Index {
		j.lines = appendLine(j.lines, rows.Output.Doc(i))
	}
	if len(j.lines) == 0 {
		return j.state.Size, nil
	}
	var err error
	if j.packed, err = j.pack.append(j.packed[:0], j.lines); err != nil {
		return 0, fmt.Errorf("pack rows: %w", err)
	}
	if err := j.data.Truncate(j.state.Size); err != nil {
		return 0, fmt.Errorf("cut off what does not count: %w", err)
	}
	if _, err := j.data.WriteAt(j.packed, j.state.Size); err != nil {
		return 0, fmt.Errorf("write rows: %w", err)
	}
	if err := j.data.Sync(); err != nil {
		return 0, fmt.Errorf("sync rows: %w", err)
	}
	return j.state.Size + int64(len(j.packed)), nil
}

// appendLine appends doc as one line. A line break in JSON is never part of a
// string, so a space says the same.
func appendLine(buf, doc []byte) []byte {
	start := len(buf)
	buf = append(buf, doc...)
	if bytes.ContainsAny(doc, "\r\n") {
		for i := start; i < len(buf); i++ {
			if buf[i] == '\n' || buf[i] == '\r' {
				buf[i] = ' '
			}
		}
	}
	return append(buf, '\n')
}

// rotate sees to it that data is the open file and has room.
func (j *journal) rotate() error {
	s := &j.state
	if s.File > 0 && j.full() {
		if err := j.finish(); err != nil {
			return err
		}
	}
	if s.File == 0 {
		if err := j.note(record{File: 1, Ending: j.folder.ending, When: time.Now().Unix()}); err != nil {
			return err
		}
	}
	if j.data == nil || j.number != s.File {
		if err := j.openData(); err != nil {
			return err
		}
	}
	info, err := j.data.Stat()
	if err == nil && info.Size() < s.Size {
		err = &event.PermanentError{
			Err:  fmt.Errorf("%s has %d bytes, of which the journal counts %d", j.data.Name(), info.Size(), s.Size),
			Hint: "rows that were durable are gone; restore the file, or move the pipeline's position back",
		}
	}
	return err
}

// full tells whether the open file is to be finished, or is already: then the
// finish was cut short before the journal knew.
func (j *journal) full() bool {
	s := &j.state
	if s.Size >= j.folder.bytes || j.ending() != j.folder.ending || s.Size > 0 && time.Since(time.Unix(s.Begun, 0)) >= j.folder.age {
		return true
	}
	_, err := os.Stat(j.folder.file(s.File, j.ending()))
	return err == nil
}

// ending is that of the open file, which may have been begun with other settings.
func (j *journal) ending() string { return cmp.Or(j.state.Ending, j.folder.ending) }

func (j *journal) openData() (err error) {
	if j.data != nil {
		_ = j.data.Close()
	}
	j.number = j.state.File
	if j.data, err = os.OpenFile(j.folder.file(j.number, j.folder.ending)+openEnding, os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return fmt.Errorf("open a file for rows: %w", err)
	}
	return syncFolder(j.folder.path)
}

// finish gives the open file its last name, and begins a journal with the state
// as its first record. A finish that was cut short is done again: until the new
// journal is in place, the old one says that the file is open.
func (j *journal) finish() error {
	s := &j.state
	full := j.folder.file(s.File, j.ending())
	open := full + openEnding
	if err := os.Truncate(open, s.Size); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("finish a file: %w", err)
	}
	if err := os.Rename(open, full); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("finish a file: %w", err)
	}
	next := *s
	next.File, next.Ending, next.Size, next.Begun = s.File+1, j.folder.ending, 0, time.Now().Unix()
	return j.renew(&next)
}

// renew replaces the journal by one that begins with a state.
func (j *journal) renew(s *state) error {
	line, err := encode(&record{State: s})
	if err != nil {
		return err
	}
	fresh := j.folder.hidden("journal.new")
	if err := writeSynced(fresh, line); err != nil {
		return fmt.Errorf("renew the journal of the files: %w", err)
	}
	if err := os.Rename(fresh, j.folder.hidden("journal")); err != nil {
		return fmt.Errorf("renew the journal of the files: %w", err)
	}
	if err := syncFolder(j.folder.path); err != nil {
		return err
	}
	return j.catchUp()
}

func writeSynced(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func syncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil && !errors.Is(err, errInvalid) {
		return err
	}
	return nil
}
