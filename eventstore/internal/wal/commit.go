package wal

import (
	"context"
	"errors"
	"syscall"
	"time"
)

// A preparedFile is the file after the active one, or the error of preparing it.
type preparedFile struct {
	file *file
	err  error
}

// commit makes the frames of a group of changes durable, all or none. Calls are not
// concurrent.
func (l *Log) commit(group []*change) error {
	if err := l.writable(); err != nil {
		return err
	}
	size := int64(0)
	for _, c := range group {
		if c.rotate != 0 {
			c.err = l.rotate(c.rotate)
		}
		if c.scrub {
			c.err = l.scrub()
		}
		size += int64(len(c.frames))
	}
	if size == 0 {
		return nil
	}
	if err := l.makeRoom(size); err != nil {
		return explain("begin a file of the event log", err)
	}
	return l.write(group)
}

// rotate closes the file with the given number if it is the active file and has entries.
func (l *Log) rotate(number uint64) error {
	a := l.active
	if a == nil || !a.hasEntries() || number != anyFile && number != a.number {
		return nil
	}
	if err := l.beginNext(); err != nil {
		return explain("close a file of the event log", err)
	}
	return nil
}

// scrub removes the spare file, and replaces files that reuse the blocks of a removed file.
func (l *Log) scrub() error {
	if l.preparing != nil {
		prepared := <-l.preparing
		if prepared.file != nil {
			_ = prepared.file.Close()
		}
	}
	l.preparing = nil
	l.mu.Lock()
	l.hasSpare = false
	err := removeUnused(l.folder)
	l.mu.Unlock()
	if a := l.active; err == nil && a != nil && a.reused {
		err = l.scrubActive()
	}
	if a := l.active; a != nil && a.hasEntries() {
		l.prepareNext()
	}
	l.finishing.Wait() // finishing truncates closed files to their entries
	if err != nil {
		return explain("scrub the event log", err)
	}
	return nil
}

// scrubActive replaces the active file with a new file.
func (l *Log) scrubActive() error {
	if l.active.hasEntries() {
		return l.beginNext()
	}
	return l.abandonActive()
}

// makeRoom starts the next file if the active one has no room for size bytes. A file without
// entries accepts any size.
func (l *Log) makeRoom(size int64) error {
	if a := l.active; a != nil && (!a.hasEntries() || a.end+size <= l.options.FileSize) {
		return nil
	}
	return l.beginNext()
}

// beginNext makes the next file the active one and closes the previous one.
func (l *Log) beginNext() error {
	next, err := l.takeNext()
	if err != nil {
		return err
	}
	if err := nameFile(l.folder, next); err != nil {
		return errors.Join(err, next.Close())
	}
	if old := l.active; old != nil {
		l.previousEnd = old.end
		l.finishInBackground(old)
	}
	l.active, l.next = next, next.number+1
	l.publishActive()
	return nil
}

// takeNext returns the next file, which was prepared while the active one was filled. If
// preparing failed, it tries again, because the disk may have room now.
func (l *Log) takeNext() (*file, error) {
	if l.preparing != nil {
		prepared := <-l.preparing
		l.preparing = nil
		if prepared.err == nil {
			return prepared.file, nil
		}
	}
	return l.prepareFile(l.next)
}

// prepareNext prepares the file after the active one in the background, so that no commit
// waits for it.
func (l *Log) prepareNext() {
	prepared, number := make(chan preparedFile, 1), l.next
	l.preparing = prepared
	go func() {
		next, err := l.prepareFile(number)
		prepared <- preparedFile{next, err}
	}()
}

// finishInBackground finishes a file that is about to be published as closed, so that no
// commit waits for it.
func (l *Log) finishInBackground(f *file) {
	l.mu.Lock()
	l.unfinished[f.number] = true
	l.mu.Unlock()
	l.finishing.Go(func() {
		l.finishFile(f)
		l.mu.Lock()
		delete(l.unfinished, f.number)
		l.mu.Unlock()
	})
}

// finishFile marks a file as closed, so that recovery can detect the loss of the next one. It
// also frees unused space if there is much of it or if it holds old entries. Errors are
// ignored: the first commit of the next file records the end of this one.
func (l *Log) finishFile(f *file) {
	closed := (&mark{kind: endMark, at: time.Now()}).appendFrame(nil)
	stamp(closed, trailer{commit: f.end, offset: f.end, key: f.key})
	if _, err := f.WriteAt(closed, f.end); err == nil {
		if end := f.end + int64(len(closed)); f.reused || end < l.options.FileSize*3/4 {
			_ = f.Truncate(end)
		}
		_ = syncData(f.File)
	}
	_ = f.Close()
}

// write writes the frames of a group to the active file and syncs them.
func (l *Log) write(group []*change) error {
	a := l.active
	begins := !a.hasEntries()
	end := a.end
	a.buffers = a.buffers[:0]
	add := func(frames []byte) Position {
		begin := end
		for rest := frames; len(rest) > 0; {
			n, _ := frameSize(rest)
			stamp(rest[:n], trailer{commit: a.end, offset: end, key: a.key})
			rest, end = rest[n:], end+int64(n)
		}
		a.buffers = append(a.buffers, frames)
		return Position{File: a.number, Offset: begin}
	}
	if begins {
		add((&mark{kind: beginMark, previousEnd: l.previousEnd, at: time.Now()}).appendFrame(nil))
	}
	for _, c := range group {
		if len(c.frames) > 0 {
			c.position = add(c.frames)
		}
	}
	err := writeBuffers(a.File, a.buffers, a.end)
	clear(a.buffers) // they belong to the callers
	if err != nil {
		_ = l.abandonActive()
		return explain("write to the event log, file "+a.name(), err)
	}
	if err := syncData(a.File); err != nil {
		_ = l.abandonActive()
		return explain("sync the event log, file "+a.name(), err)
	}
	a.end = end
	l.publishEnd(end)
	if begins {
		l.prepareNext()
		l.ageTimer = l.closeAfter(a.number, l.options.FileAge)
	}
	return nil
}

// abandonActive truncates the active file after its last durable entry. After a failed write
// or sync, the page cache may show the data and treat it as written. Without the truncation,
// a reopened log would accept that data.
//
// The next commit starts another file: the next one, or a replacement for a file without
// entries. The returned error is that of the truncation.
func (l *Log) abandonActive() error {
	a := l.active
	l.active = nil
	err := a.Truncate(a.end)
	_ = a.Close()
	if a.hasEntries() {
		l.previousEnd = a.end
	} else {
		l.next = a.number
	}
	return err
}

// closeAfter closes a file after the given time if it is still the active one.
func (l *Log) closeAfter(number uint64, age time.Duration) *time.Timer {
	return time.AfterFunc(age, func() {
		c := &change{rotate: number}
		if err := l.commits.Commit(context.Background(), c); err == nil && c.err != nil {
			l.closeAfter(number, rotateRetry)
		}
	})
}

// publishEnd publishes the durable end of the active file to readers.
func (l *Log) publishEnd(end int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.files[len(l.files)-1].End = end
	l.notify()
}

// publishActive publishes a new active file to readers, and marks the previous one as closed.
func (l *Log) publishActive() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.files); n > 0 {
		if l.files[n-1].Number == l.active.number {
			return // it replaces a file that failed
		}
		l.files[n-1].Closed = true
		l.signalClosed()
	}
	l.files = append(l.files, FileEnd{Number: l.active.number, End: headerSize})
}

func (l *Log) signalClosed() {
	select {
	case l.fileClosed <- struct{}{}:
	default: // a signal is already pending
	}
}

func isDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
