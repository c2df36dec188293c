package spool

import (
	"fmt"
	"io"
	"os"
	"syscall"
)

// write is the goroutine that brings commits to disk, one at a time.
func (s *Spool) write() {
	for range s.wake {
		s.writeNext()
	}
	s.writeNext()
}

func (s *Spool) writeNext() {
	s.mu.Lock()
	c := s.next
	s.next = nil
	if c == nil {
		s.mu.Unlock()
		return
	}
	err := s.broken
	if err == nil && s.last.bytes >= s.opts.Segment {
		err = s.roll()
	}
	at := s.last.bytes
	s.mu.Unlock()
	if err == nil {
		err = s.store(c.frames, at)
	}
	s.settle(c, err)
}

// store writes and syncs frames at an offset of the last segment. What was
// written in vain is cut off; what was not synced may or may not be there, which
// breaks the spool.
func (s *Spool) store(frames []byte, at int64) error {
	if _, err := s.file.WriteAt(frames, at); err != nil {
		if cut := s.file.Truncate(at); cut != nil {
			s.fail(cut)
		}
		return fmt.Errorf("write to the spool: %w", err)
	}
	if err := s.file.Sync(); err != nil {
		s.fail(err)
		return fmt.Errorf("sync the spool: %w", err)
	}
	return nil
}

func (s *Spool) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = fmt.Errorf("the spool in %s failed and must be opened again: %w", s.folder, err)
}

// settle answers the senders of a commit. When it failed, those after it do too:
// their positions follow ones that are not there.
func (s *Spool) settle(c *commit, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.last.bytes += int64(len(c.frames))
		s.end, s.last.end = c.end, c.end
		s.keys.settle(c, true)
		close(c.done)
		if !s.shut {
			close(s.more)
			s.more = make(chan struct{})
		}
		return
	}
	failed := []*commit{c}
	if s.next != nil {
		failed = append(failed, s.next)
		s.next = nil
	}
	for _, c := range failed {
		c.err = err
		s.bytes -= int64(len(c.frames))
		s.keys.settle(c, false)
		close(c.done)
	}
	s.assigned = s.end
}

// roll begins a new segment. The keys of the old one get a file of their own,
// which outlives it.
func (s *Spool) roll() error {
	if err := s.saveKeys(s.last); err != nil {
		return err
	}
	fresh := segment{first: s.end, end: s.end, bytes: int64(len(magic))}
	file, err := s.create(fresh.first)
	if err != nil {
		return err
	}
	s.bytes += fresh.bytes
	_ = s.file.Close() // everything in it is synced
	s.file = file
	s.closed, s.last = append(s.closed, s.last), fresh
	return nil
}

// create makes an empty segment.
func (s *Spool) create(first uint64) (*os.File, error) {
	file, err := os.OpenFile(s.path(first, segmentSuffix), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("begin a segment of the spool: %w", err)
	}
	if _, err = io.WriteString(file, magic); err == nil {
		err = file.Sync()
	}
	if err == nil {
		err = syncFolder(s.folder)
	}
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("begin a segment of the spool: %w", err)
	}
	return file, nil
}

// syncFolder makes the names in a folder durable, where the system can.
func syncFolder(folder string) error {
	f, err := os.Open(folder)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil && err.(*os.PathError).Err != syscall.EINVAL {
		return err
	}
	return nil
}
