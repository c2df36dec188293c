package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/durable"
	"github.com/perigeedb/perigee/internal/frame"
)

// A scannedFile is a log file in the state in which recovery finds it.
type scannedFile struct {
	reader *Reader
	begin  *mark // of its first commit; nil if it is missing

	end     int64 // after the last complete entry
	commit  int64 // start of that entry's commit
	closed  bool  // it has an endMark
	scanned bool  // only the scan determines its end: data after end must be truncated
	spans   []Span
}

// recover reads all files and syncs them: a killed process may have written data without
// syncing it.
func (l *Log) recover(visit func(Position, *Entry) error) error {
	files, err := l.openFiles()
	defer func() {
		for _, f := range files {
			_ = f.reader.Close()
		}
	}()
	if err != nil {
		return err
	}
	for i, f := range files {
		known := int64(-1)
		if i+1 < len(files) && files[i+1].begin != nil && files[i+1].number() == f.number()+1 {
			known = files[i+1].begin.previousEnd
		}
		if err := l.scan(f, known, visit); err != nil {
			return err
		}
		l.files = append(l.files, FileEnd{Number: f.number(), End: f.end, Closed: i+1 < len(files), Damaged: f.spans})
	}
	l.next = l.options.First
	if n := len(files); n > 0 {
		l.next = files[n-1].number() + 1
		if last := files[n-1]; last.closed {
			l.addDamage(Damage{Path: Path(l.folder, l.next), What: "is missing, and the file before it is closed"})
		}
	}
	switch {
	case l.options.ReadOnly:
		return nil
	case len(l.damage) > 0:
		return &DamageError{l.damage}
	}
	return l.resume(files)
}

func (l *Log) addDamage(d Damage) { l.damage = append(l.damage, d) }

func (f *scannedFile) number() uint64 { return f.reader.header.number }

// openFiles opens the needed files, removes the others, and records missing ones. It creates
// the folder if it is missing.
func (l *Log) openFiles() (files []*scannedFile, err error) {
	if !l.options.ReadOnly {
		if err := durable.MkdirAll(l.folder, 0o700); err != nil {
			return nil, err
		}
		if err := removeUnused(l.folder); err != nil {
			return nil, err
		}
	}
	numbers, err := listFiles(l.folder)
	if err != nil {
		return nil, err
	}
	expected := l.options.First
	for _, number := range numbers {
		if number < l.options.First {
			if !l.options.ReadOnly {
				err = errors.Join(err, removeIfThere(Path(l.folder, number)))
			}
			continue
		}
		l.addMissing(expected, number)
		expected = number + 1
		f, openErr := l.openScanned(number)
		if openErr != nil {
			return files, errors.Join(err, openErr)
		}
		if f != nil {
			files = append(files, f)
		}
	}
	if l.options.First > 1 && expected == l.options.First {
		l.addMissing(expected, expected+1)
	}
	return files, err
}

// addMissing records that the files from first up to, but not including, end are missing.
func (l *Log) addMissing(first, end uint64) {
	if first < end {
		what := "is missing"
		if end-first > 1 {
			what = fmt.Sprintf("and the %d files after it are missing", end-first-1)
		}
		l.addDamage(Damage{Path: Path(l.folder, first), What: what})
	}
}

// openScanned opens a file and reads its header and beginMark. It returns nil for a file with
// a damaged header, because its frames cannot be told from those of an earlier use.
func (l *Log) openScanned(number uint64) (*scannedFile, error) {
	r, err := openFile(l.folder, number)
	if err != nil {
		return nil, err
	}
	if r.header, err = r.readHeader(number); err == nil && r.header.store != l.options.Store {
		err = fmt.Errorf("it belongs to another store, %s", r.header.store)
	}
	if errors.Is(err, errFormat) {
		err = event.WithHint(fmt.Errorf("%s: %w", r.file.Name(), err), "perigee.format in the data folder may name the version to use")
		return nil, errors.Join(err, r.Close())
	}
	if err != nil {
		l.addDamage(Damage{Path: r.file.Name(), What: err.Error()})
		return nil, r.Close()
	}
	f := &scannedFile{reader: r}
	info, err := r.file.Stat()
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	r.window.limit = info.Size()
	if record, _, err := r.readRecord(headerSize); err == nil {
		if m, ok := parseMark(record, beginMark); ok {
			f.begin = &m
		}
	}
	return f, nil
}

// scan visits the entries of a file up to known, the end of its entries. If known is
// negative, it stops at the first place without a complete frame.
func (l *Log) scan(f *scannedFile, known int64, visit func(Position, *Entry) error) error {
	limit := known
	if known < 0 {
		f.scanned, limit = true, f.reader.window.limit
	}
	f.reader.window.limit = limit
	f.end, f.commit = headerSize, headerSize
	for f.end < limit {
		record, size, err := f.reader.readRecord(f.end)
		if errors.Is(err, frame.ErrDamaged) {
			if f.skipDamage(l, limit) {
				continue
			}
			return nil
		}
		if err != nil {
			return err
		}
		if _, ok := parseMark(record, endMark); ok && known < 0 {
			f.closed, f.scanned = true, false
			return nil
		}
		f.commit = parseTrailer(record).commit
		at := Position{File: f.number(), Offset: f.end}
		f.end += size
		if Kind(record[0]) >= beginMark {
			continue
		}
		if err := f.reader.entry.Decode(record); err != nil {
			return fmt.Errorf("%s: offset %d: %w", f.reader.file.Name(), at.Offset, err)
		}
		if err := visit(at, &f.reader.entry); err != nil {
			return err
		}
	}
	return nil
}

// skipDamage examines the data after a place without a complete frame. It returns false at
// the end of the file's entries: nothing follows, or only remains of the last, unacknowledged
// commit. Otherwise acknowledged entries are damaged, and it moves end past them.
func (f *scannedFile) skipDamage(l *Log, limit int64) (goOn bool) {
	next, later := f.findFrame(f.end, limit)
	if f.scanned && !later && f.reader.window.unreadable == nil {
		return false
	}
	damaged := Span{Begin: f.end, End: next}
	what := "hold no readable entries"
	if err := f.reader.window.unreadable; err != nil {
		what = fmt.Sprintf("cannot be read (%v)", err)
	}
	f.spans = append(f.spans, damaged)
	l.addDamage(Damage{Path: f.reader.file.Name(), Span: damaged, What: what})
	f.end = next
	return true
}

// findFrame returns the offset of the first complete frame after from, or limit. It also
// reports whether a frame of a later commit follows than the one at from. It searches for the
// file's key, which ends every frame and which senders of events cannot know.
func (f *scannedFile) findFrame(from, limit int64) (first int64, later bool) {
	key := binary.LittleEndian.AppendUint64(nil, f.reader.header.key)
	first = limit
	for at := from + frame.PrefixSize; at < limit; {
		chunk := f.reader.window.readSome(at)
		i := bytes.Index(chunk, key)
		if i < 0 {
			at += int64(max(len(chunk)&^7, 8))
			continue
		}
		behind := at + int64(i+len(key))
		if i%8 == 0 {
			if t, whole := f.frameBefore(behind); whole && t.offset > from {
				first = min(first, t.offset)
				if t.commit > from {
					return first, true
				}
			}
		}
		at = (behind + 7) &^ 7
	}
	return first, false
}

// frameBefore returns the trailer of the complete frame that ends at an offset.
func (f *scannedFile) frameBefore(end int64) (t trailer, whole bool) {
	content, err := f.reader.window.read(end-trailerSize, trailerSize)
	if err != nil {
		return trailer{}, false
	}
	t = parseTrailer(content)
	if t.offset < headerSize {
		return trailer{}, false
	}
	_, size, err := f.reader.readRecord(t.offset)
	return t, err == nil && t.offset+size == end
}

// resume repairs the files with an end determined by the scan, and makes the last file the
// active one.
func (l *Log) resume(files []*scannedFile) error {
	n := len(files)
	for i, f := range files {
		if f.scanned && f.begin != nil {
			if err := l.repair(f, i == n-1); err != nil {
				return fmt.Errorf("repair %s: %w", f.reader.file.Name(), err)
			}
		}
	}
	if n == 0 {
		return nil
	}
	last := files[n-1]
	if n > 1 {
		l.signalClosed()
		l.previousEnd = files[n-2].end
	}
	if last.begin == nil { // it may have remains of a commit, so replace it
		l.next = last.number()
		return nil
	}
	out, err := durable.OpenFile(last.reader.file.Name(), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	l.active = &file{File: out, number: last.number(), key: last.reader.header.key, end: last.end}
	l.prepareNext()
	l.ageTimer = l.closeAfter(last.number(), time.Until(last.begin.at.Add(l.options.FileAge)))
	return nil
}

// repair truncates the file after the last complete entry. It also rewrites the last commit:
// if its sync failed before the process was killed, the page cache treats the data as
// written.
func (l *Log) repair(f *scannedFile, active bool) error {
	out, err := durable.OpenFile(f.reader.file.Name(), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	err = errors.Join(out.Truncate(f.end), rewrite(out, f.commit, f.end))
	if err == nil && active {
		_ = allocate(out, l.options.FileSize) // the next commit reports a full disk
	}
	if err == nil {
		err = out.Sync()
	}
	return errors.Join(err, out.Close())
}

// rewrite writes part of a file back in place.
func rewrite(f *os.File, begin, end int64) error {
	buffer := make([]byte, 1<<20)
	for begin < end {
		part := buffer[:min(int64(len(buffer)), end-begin)]
		if _, err := f.ReadAt(part, begin); err != nil && err != io.EOF {
			return err
		}
		if _, err := f.WriteAt(part, begin); err != nil {
			return err
		}
		begin += int64(len(part))
	}
	return nil
}
