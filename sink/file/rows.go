package file

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/durable"
	"github.com/perigeedb/perigee/sink/internal/ndjson"
	"github.com/perigeedb/perigee/sink/internal/positions"
)

// A fileSet says where files are and when they are full.
type fileSet struct {
	folder, name, pipeline, suffix string
	bytesMax                       int64
	ageMax                         time.Duration
	access                         os.FileMode
}

// create opens a file, and creates it if it does not exist, with the permissions that
// are configured whatever the umask is.
func (f *fileSet) create(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, f.access)
	if err != nil {
		return nil, err
	}
	if info, err := file.Stat(); err == nil && info.Size() == 0 && info.Mode().Perm() != f.access {
		if err := file.Chmod(f.access); err != nil {
			return nil, errors.Join(err, file.Close())
		}
	}
	return file, nil
}

// folderAccess lets those who may read a file enter its folder, and those who may write
// one create it.
func (f *fileSet) folderAccess() os.FileMode { return f.access | f.access>>2&0o111 }

// path is that of a sealed file; the open one has openSuffix behind it.
func (f *fileSet) path(number uint64, suffix string) string {
	return filepath.Join(f.folder, fmt.Sprintf("%s-%08d%s", f.name, number, suffix))
}

const openSuffix = ".open"

// parseName returns the number of a file that path names, sealed or open, with any compression.
func (f *fileSet) parseName(name string) (number uint64, ok bool) {
	sealed := strings.TrimSuffix(name, openSuffix)
	rest, found := strings.CutPrefix(sealed, f.name+"-")
	digits, suffix, _ := strings.Cut(rest, ".")
	number, err := strconv.ParseUint(digits, 10, 64)
	if !found || err != nil || !slices.Contains(suffixes, "."+suffix) {
		return 0, false
	}
	return number, filepath.Base(f.path(number, "."+suffix)) == sealed
}

// appendRows appends rows to the open file and returns the size that it has then.
// They count once the journal says so.
func (j *journal) appendRows(rows *positions.Rows) (int64, error) {
	j.lines = j.lines[:0]
	for _, i := range rows.Index {
		j.lines = ndjson.AppendLine(j.lines, rows.Output.Doc(i))
	}
	if len(j.lines) == 0 {
		return j.state.Size, nil
	}
	if err := j.prepareFile(); err != nil {
		return 0, err
	}
	var err error
	if j.compressed, err = j.compression.append(j.compressed[:0], j.lines); err != nil {
		return 0, fmt.Errorf("compress rows: %w", err)
	}
	if err := j.data.Truncate(j.state.Size); err != nil {
		return 0, fmt.Errorf("cut off rows that were not committed: %w", err)
	}
	if _, err := j.data.WriteAt(j.compressed, j.state.Size); err != nil {
		return 0, fmt.Errorf("write rows: %w", err)
	}
	if err := j.data.Sync(); err != nil {
		return 0, fmt.Errorf("sync rows: %w", err)
	}
	return j.state.Size + int64(len(j.compressed)), nil
}

// prepareFile makes data an open file that has room.
func (j *journal) prepareFile() error {
	if err := j.sealIfFull(); err != nil {
		return err
	}
	s := &j.state
	if s.File == 0 {
		if err := j.append(record{File: 1, Suffix: j.files.suffix, When: time.Now().Unix()}); err != nil {
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
			Err:  fmt.Errorf("%s has %d bytes, but the journal counts %d", j.data.Name(), info.Size(), s.Size),
			Hint: "rows that were durable are gone; restore the file, or move the pipeline's position back",
		}
	}
	return err
}

// openData opens the open file. No row goes into it before its name is durable.
func (j *journal) openData() error {
	if j.data != nil {
		_ = j.data.Close()
		j.data = nil
	}
	data, err := j.files.create(j.files.path(j.state.File, j.files.suffix) + openSuffix)
	if err != nil {
		return fmt.Errorf("open a file for rows: %w", err)
	}
	if err := durable.SyncDir(j.files.folder); err != nil {
		return errors.Join(err, data.Close())
	}
	j.data, j.number = data, j.state.File
	return nil
}

// sealIfFull seals the open file when nothing more may be written to it, and when
// an earlier seal was interrupted before the journal knew of it.
func (j *journal) sealIfFull() error {
	s := &j.state
	if s.File == 0 {
		return nil
	}
	if s.Size < j.files.bytesMax && j.suffix() == j.files.suffix && !j.aged(time.Now()) {
		if _, err := os.Stat(j.files.path(s.File, j.suffix())); err != nil {
			return nil
		}
	}
	return j.seal()
}

func (j *journal) aged(now time.Time) bool { return j.state.Size > 0 && j.untilAged(now) <= 0 }

func (j *journal) untilAged(now time.Time) time.Duration {
	return time.Unix(j.state.Begun, 0).Add(j.files.ageMax).Sub(now)
}

// sealIfAged seals the open file if it is old enough, and returns when to look
// again.
func (j *journal) sealIfAged() (next time.Duration, err error) {
	err = j.withLock(func() error {
		now := time.Now()
		next = j.files.ageMax
		if j.aged(now) {
			return j.seal()
		}
		if j.state.Size > 0 {
			next = j.untilAged(now)
		}
		return nil
	})
	return next, err
}

// sealAtEnd seals the open file, if there is one.
func (j *journal) sealAtEnd() error {
	return j.withLock(func() error {
		if j.state.Size == 0 {
			// A write that failed may have left a file without rows that count.
			if _, err := os.Stat(j.files.path(j.state.File, j.suffix()) + openSuffix); err != nil {
				return nil
			}
		}
		return j.seal()
	})
}

// seal gives the open file its final name, then begins a journal that says so. A
// seal that is interrupted in between is repeated: until the new journal is in
// place, the old one says that the file is open. The name is synced before the
// journal is written, because the journal says nothing of sealed files.
func (j *journal) seal() error {
	s := &j.state
	sealed := j.files.path(s.File, j.suffix())
	err := rename(sealed+openSuffix, sealed, s.Size)
	if err == nil {
		err = durable.SyncDir(j.files.folder)
	}
	if err != nil {
		return fmt.Errorf("seal a file: %w", err)
	}
	next := *s
	next.File, next.Suffix, next.Size, next.Begun = s.File+1, j.files.suffix, 0, time.Now().Unix()
	return j.replace(&next)
}

// rename renames a file whose first size bytes count, or removes it when none does.
// A file that does not exist was renamed by a seal that was interrupted, at that size.
func rename(open, sealed string, size int64) error {
	err := trim(open, size)
	if err == nil && size == 0 {
		err = os.Remove(open)
	} else if err == nil {
		if _, err := os.Stat(sealed); err == nil {
			return journalTooOldError(sealed)
		}
		err = os.Rename(open, sealed)
	}
	if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if info, err := os.Stat(sealed); err == nil && info.Size() > size {
		return journalTooOldError(sealed)
	}
	return nil
}

// trim cuts off rows that were not committed.
func trim(name string, size int64) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && info.Size() > size {
		if err = f.Truncate(size); err == nil {
			err = f.Sync()
		}
	}
	return errors.Join(err, f.Close())
}
