package spool

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/perigeedb/perigee/internal/durable"
	"github.com/perigeedb/perigee/internal/frame"
)

// The folder of a spool:
//
//	spool.json               its identity
//	head                     the low watermark
//	00000000000000000042.log a segment, named by its first position
//	00000000000000000000.keys the keys of a segment, which may be gone
const (
	identityFile     = "spool.json"
	lowWatermarkFile = "head"
	segmentSuffix    = ".log"
	keysSuffix       = ".keys"
	magic            = "pgspool1"
)

// A segment is a file of frames that follow each other.
type segment struct {
	first, end uint64
	bytes      int64
}

func (s *Spool) path(first uint64, suffix string) string {
	return filepath.Join(s.folder, fmt.Sprintf("%020d%s", first, suffix))
}

// listFiles returns the first positions of the files with a suffix, ascending.
func (s *Spool) listFiles(suffix string) ([]uint64, error) {
	entries, err := os.ReadDir(s.folder)
	if err != nil {
		return nil, err
	}
	var all []uint64
	for _, e := range entries {
		name, found := strings.CutSuffix(e.Name(), suffix)
		if first, err := strconv.ParseUint(name, 10, 64); found && err == nil {
			all = append(all, first)
		}
	}
	slices.Sort(all)
	return all, nil
}

// recover reads the folder.
func (s *Spool) recover() error {
	if err := durable.MkdirAll(s.folder, 0o700); err != nil {
		return err
	}
	if err := s.loadIdentity(); err != nil {
		return err
	}
	if err := s.loadKeys(); err != nil {
		return err
	}
	segments, err := s.listFiles(segmentSuffix)
	if err != nil {
		return err
	}
	for i, first := range segments {
		if err := s.loadSegment(first, i == len(segments)-1); err != nil {
			return err
		}
	}
	s.lowWatermark = s.loadLowWatermark()
	if s.file == nil {
		if s.file, err = s.createSegment(s.lowWatermark); err != nil {
			return err
		}
		s.active = emptySegment(s.lowWatermark)
		s.bytes = s.active.bytes
	}
	s.end = s.active.end
	s.lowWatermark = max(s.first(), min(s.lowWatermark, s.end))
	s.recoveredEnd = s.end
	if before := s.identity.Unverified; before != nil {
		s.recoveredEnd = min(s.recoveredEnd, *before)
		return nil
	}
	s.identity.Unverified = &s.recoveredEnd
	return s.saveIdentity(s.identity)
}

// loadSegment reads a segment for its end and its keys. Only the last can have
// been cut short by a crash.
func (s *Spool) loadSegment(first uint64, last bool) error {
	name := s.path(first, segmentSuffix)
	file, err := durable.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	seg, err := s.scanSegment(file, first)
	if n := len(s.sealed); n > 0 && s.sealed[n-1].end != first {
		err = fmt.Errorf("the segment before it ends at position %d: one is missing", s.sealed[n-1].end)
	}
	if err != nil && !(last && errors.Is(err, frame.ErrDamaged)) {
		_ = file.Close()
		return fmt.Errorf("%s: %w", name, err)
	}
	s.bytes += seg.bytes
	if !last {
		s.sealed = append(s.sealed, seg)
		return file.Close()
	}
	// A process that was killed may have left an entry that is whole and not synced, whose
	// sender hears from now on that it is stored, and a segment whose name is not synced.
	if err := errors.Join(file.Truncate(seg.bytes), file.Sync(), durable.SyncDir(s.folder)); err != nil {
		_ = file.Close()
		return fmt.Errorf("cut off an incomplete entry: %w", err)
	}
	s.file, s.active = file, seg
	return nil
}

// scanSegment returns the part of a segment that is whole, and an error about the
// rest.
func (s *Spool) scanSegment(file *os.File, first uint64) (segment, error) {
	seg := emptySegment(first)
	in := bufio.NewReaderSize(file, 1<<20)
	begin := make([]byte, len(magic))
	if _, err := io.ReadFull(in, begin); err != nil || string(begin) != magic {
		return seg, restoreMagic(file, begin)
	}
	var f storedEntry
	var buffer []byte
	for {
		err := readEntry(in, &f, &buffer)
		if err == io.EOF {
			return seg, nil
		}
		if err == nil && f.first != seg.end {
			err = frame.ErrDamaged
		}
		if err != nil {
			return seg, err
		}
		s.keys.add(&f)
		seg.end = f.end()
		seg.bytes += f.size()
	}
}

var errNotSegment = errors.New("not a segment of a spool")

// restoreMagic writes the first bytes of a segment again and returns frame.ErrDamaged, when a crash
// kept them from reaching the disk: nothing behind them counts.
func restoreMagic(file *os.File, begin []byte) error {
	if !strings.HasPrefix(magic, string(bytes.TrimRight(begin, "\x00"))) {
		return errNotSegment
	}
	if _, err := file.WriteAt([]byte(magic), 0); err != nil {
		return err
	}
	return frame.ErrDamaged
}

func emptySegment(first uint64) segment {
	return segment{first: first, end: first, bytes: int64(len(magic))}
}

// rollIfFull seals the active segment when it is full, and begins another.
func (s *Spool) rollIfFull() error {
	if s.active.bytes < s.options.SegmentBytes {
		return nil
	}
	if err := s.saveKeys(s.active); err != nil {
		return err
	}
	file, err := s.createSegment(s.end)
	if err != nil {
		return err
	}
	_ = s.file.Close() // everything in it is synced
	s.file = file
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sealed, s.active = append(s.sealed, s.active), emptySegment(s.end)
	s.bytes += s.active.bytes
	return nil
}

func (s *Spool) createSegment(first uint64) (*os.File, error) {
	file, err := durable.OpenFile(s.path(first, segmentSuffix), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("begin a segment of the spool: %w", err)
	}
	if _, err = io.WriteString(file, magic); err == nil { // synced with the first entry
		err = durable.SyncDir(s.folder)
	}
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("begin a segment of the spool: %w", err)
	}
	return file, nil
}

// loadLowWatermark may return one that is too early, after a crash of the machine:
// entries that were trimmed are then read again, and sinks know them.
func (s *Spool) loadLowWatermark() uint64 {
	text, _ := durable.ReadFile(filepath.Join(s.folder, lowWatermarkFile))
	position, _ := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return position
}

func (s *Spool) saveLowWatermark() error {
	s.savedAt = time.Now()
	return durable.WriteFileNoSync(filepath.Join(s.folder, lowWatermarkFile), strconv.AppendUint(nil, s.lowWatermark, 10), 0o600)
}
