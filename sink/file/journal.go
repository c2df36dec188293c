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
	"syscall"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/durable"
)

// A journal holds the state of a fileSet, which all processes that write the files
// share: each reads what the others have appended before it appends. mu and, among
// processes, lock protect the other fields.
type journal struct {
	files       fileSet
	compression compression

	mu     sync.Mutex
	lock   *os.File
	file   *os.File // the journal
	read   int64    // bytes of it that are part of state
	state  state
	data   *os.File // the open file; nil when it must be opened again
	number uint64   // of data

	lines, compressed []byte // spare memory
}

func openJournal(f fileSet, c compression) (*journal, error) {
	if err := durable.MkdirAll(f.folder, f.folderAccess()); err != nil {
		return nil, openError(fmt.Errorf("make the folder of the files: %w", err), "check folder below the file sink")
	}
	lock, err := f.create(f.hidden("lock"))
	if err != nil {
		return nil, openError(fmt.Errorf("open the lock of the files: %w", err), "let the user that runs perigee write there")
	}
	j := &journal{files: f, compression: c, lock: lock}
	if err := j.withLock(j.checkNewest); err != nil {
		return nil, errors.Join(err, j.close())
	}
	return j, nil
}

// openError makes an error permanent with a hint, unless the disk is full: writing goes on
// when there is room.
func openError(err error, hint string) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return event.WithHint(err, "free space on the disk of the files")
	}
	return &event.PermanentError{Err: err, Hint: hint}
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

// withLock runs f while no other writer has the files, with everything that they
// did in state.
func (j *journal) withLock(f func() error) error {
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

// catchUp reads what others have appended to the journal, or the new journal that
// they have put in its place.
func (j *journal) catchUp() error {
	if err := j.openCurrent(); err != nil {
		return err
	}
	in := bufio.NewReader(io.NewSectionReader(j.file, j.read, 1<<62))
	for {
		line, err := in.ReadBytes('\n')
		if err == io.EOF && len(line) == 0 {
			return nil
		}
		if err == io.EOF {
			return j.file.Truncate(j.read) // an incomplete record never counted
		}
		if err != nil {
			return err
		}
		var r record
		if !decodeLine(line, &r) {
			if !hasRecord(in) {
				return j.file.Truncate(j.read) // a power cut tore the last record, which never counted
			}
			return &event.PermanentError{
				Err:  fmt.Errorf("%s is damaged at byte %d", j.file.Name(), j.read),
				Hint: "restore it from a copy: only the journal tells which rows of the files are committed",
			}
		}
		j.state.apply(&r)
		j.read += int64(len(line))
	}
}

// hasRecord reports whether one of the lines that follow is a record.
func hasRecord(in *bufio.Reader) bool {
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return false
		}
		if decodeLine(line, new(record)) {
			return true
		}
	}
}

// openCurrent opens the journal that is in the folder now, and makes its name durable: a
// process that was killed may have created or replaced it, and not done so.
func (j *journal) openCurrent() error {
	path := j.files.hidden("journal")
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
	file, err := j.files.create(path)
	if err != nil {
		return err
	}
	if err := durable.SyncDir(j.files.folder); err != nil {
		return errors.Join(err, file.Close())
	}
	j.file, j.read, j.state = file, 0, state{Partitions: make(map[string]*partition)}
	return nil
}

// checkPipeline refuses the files of another pipeline, whose partitions may have
// the same names.
func (j *journal) checkPipeline() error {
	if owner := j.state.Pipeline; owner != "" && owner != j.files.pipeline {
		return &event.PermanentError{
			Err:  fmt.Errorf("the files %s in %s belong to pipeline %s", j.files.name, j.files.folder, owner),
			Hint: "give this sink another name or folder",
		}
	}
	return nil
}

// behindMax is how many files a journal may be behind, at most. Greater numbers are taken for
// those of somebody else, such as dates.
const behindMax = 1000

// checkNewest refuses a journal that is older than the files, as after a power cut on a disk
// that says it has synced what it has not: it would write rows again that are in them, and
// replace sealed files.
func (j *journal) checkNewest() error {
	entries, err := os.ReadDir(j.files.folder)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if number, ok := j.files.parseName(e.Name()); ok && number > j.state.File && number-j.state.File <= behindMax {
			return journalTooOldError(filepath.Join(j.files.folder, e.Name()))
		}
	}
	return nil
}

// journalTooOldError says that a file has what the journal does not count.
func journalTooOldError(file string) error {
	return &event.PermanentError{
		Err:  fmt.Errorf("%s has rows that the journal of the files does not count: the journal is older than the files", file),
		Hint: "restore the journal from a copy; or move the files away that it does not count, and their rows are written again",
	}
}

// append makes a record durable and part of the state.
func (j *journal) append(r record) error {
	line, err := encodeLine(&r)
	if err != nil {
		return err
	}
	if _, err := j.file.WriteAt(line, j.read); err != nil {
		return fmt.Errorf("write the journal of the files: %w", err)
	}
	if err := j.file.Sync(); err != nil {
		_ = j.file.Truncate(j.read) // others would read it, though it may never reach the disk
		return fmt.Errorf("sync the journal of the files: %w", err)
	}
	j.read += int64(len(line))
	j.state.apply(&r)
	return nil
}

// replace puts a journal in place of this one that begins with a state.
func (j *journal) replace(s *state) error {
	line, err := encodeLine(&record{State: s})
	if err != nil {
		return err
	}
	path := j.files.hidden("journal")
	if err := errors.Join(durable.WriteFile(path, line, j.files.access), os.Chmod(path, j.files.access)); err != nil {
		return fmt.Errorf("replace the journal of the files: %w", err)
	}
	return j.catchUp()
}

// suffix is that of the open file, which may have been begun with other settings.
func (j *journal) suffix() string { return cmp.Or(j.state.Suffix, j.files.suffix) }

// A line of the journal is the CRC-32C of a record in hexadecimal digits, a space
// and the record.
func encodeLine(r *record) ([]byte, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "%08x %s\n", crc32.Checksum(text, castagnoli), text), nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func decodeLine(line []byte, r *record) bool {
	sum, text, found := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(" "))
	want, err := strconv.ParseUint(string(sum), 16, 32)
	return found && err == nil && uint32(want) == crc32.Checksum(text, castagnoli) && json.Unmarshal(text, r) == nil
}

// hidden is the path of a file beside those with rows.
func (f *fileSet) hidden(what string) string {
	return filepath.Join(f.folder, "."+f.name+"."+what)
}
