package spool

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/perigeedb/perigee/event"
)

// The folder of a spool:
//
//	spool.json               its name
//	head                     the position before which all has been given up
//	00000000000000000042.log a segment, named by its first position
//	00000000000000000000.keys the keys of one that may be gone
const (
	identityFile  = "spool.json"
	headFile      = "head"
	segmentSuffix = ".log"
	keysSuffix    = ".keys"
	magic         = "pgspool1"
)

// frameMax keeps a damaged length from being taken for a size of memory.
const frameMax = 1 << 30

// An identity is what the positions of a spool mean.
type identity struct {
	Name string      `json:"name"`
	Skip [][2]uint64 `json:"skip,omitempty"` // first and end of what counts as given up
	// Unverified is where the spool ended when it was opened, until Verified: others
	// can have nothing past it from here, in however many processes it grows meanwhile.
	Unverified *uint64 `json:"unverified,omitempty"`

	verified bool // in this process
}

func (i *identity) skipped() event.Ranges {
	var all event.Ranges
	for _, s := range i.Skip {
		all.Add(event.Range{First: s[0], Count: s[1] - s[0]})
	}
	return all
}

// A segment is a file of frames that follow each other.
type segment struct {
	first, end uint64
	bytes      int64
}

func (s *Spool) path(first uint64, suffix string) string {
	return filepath.Join(s.folder, fmt.Sprintf("%020d%s", first, suffix))
}

func (s *Spool) recover() error {
	if err := os.MkdirAll(s.folder, 0o700); err != nil {
		return err
	}
	if err := s.loadIdentity(); err != nil {
		return err
	}
	segments, err := s.list(segmentSuffix)
	if err != nil {
		return err
	}
	if err := s.loadKeys(); err != nil {
		return err
	}
	for i, first := range segments {
		if err := s.loadSegment(first, i == len(segments)-1); err != nil {
			return err
		}
	}
	s.head = s.loadHead()
	if s.file == nil {
		if s.file, err = s.create(s.head); err != nil {
			return err
		}
		s.last = segment{first: s.head, end: s.head, bytes: int64(len(magic))}
		s.bytes = s.last.bytes
	}
	s.end = s.last.end
	s.head = max(s.first(), min(s.head, s.end))
	s.recovered, s.assigned = s.end, s.end
	if before := s.identity.Unverified; before != nil {
		s.recovered = min(s.recovered, *before)
		return nil
	}
	s.identity.Unverified = &s.recovered
	return s.saveIdentity(s.identity)
}

// list returns the first positions of the files with a suffix, ascending.
func (s *Spool) list(suffix string) ([]uint64, error) {
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

// loadSegment reads a segment for where it ends and for its keys. Only the last
// can have been cut short by the end of a process.
func (s *Spool) loadSegment(first uint64, last bool) error {
	name := s.path(first, segmentSuffix)
	file, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	seg, err := s.scan(file, first)
	if err == nil && len(s.closed) > 0 && s.closed[len(s.closed)-1].end != first {
		err = fmt.Errorf("%w: it ends at %d", errFrame, s.closed[len(s.closed)-1].end)
	}
	if err != nil && (!last || !errors.Is(err, errFrame) || seg.first != first) {
		_ = file.Close()
		return fmt.Errorf("%s: %w", name, err)
	}
	s.bytes += seg.bytes
	if !last {
		s.closed = append(s.closed, seg)
		return file.Close()
	}
	if err := file.Truncate(seg.bytes); err != nil {
		_ = file.Close()
		return fmt.Errorf("cut off what was not written whole: %w", err)
	}
	s.file, s.last = file, seg
	return nil
}

// scan returns the part of a segment that is whole, and an error about the rest.
func (s *Spool) scan(file *os.File, first uint64) (segment, error) {
	seg := segment{first: first, end: first, bytes: int64(len(magic))}
	in := bufio.NewReaderSize(file, 1<<20)
	begin := make([]byte, len(magic))
	if _, err := io.ReadFull(in, begin); err != nil || string(begin) != magic {
		return s.blank(file, seg, begin)
	}
	var f frame
	var body []byte
	for {
		err := readFrame(in, &f, &body)
		if err == io.EOF {
			return seg, nil
		}
		if err == nil && f.first != seg.end {
			err = errFrame
		}
		if err != nil {
			return seg, err
		}
		if f.entry.Key != "" {
			s.keys.known[f.entry.Key] = known{
				Key: f.entry.Key, Sum: f.entry.Sum, First: f.first, Count: uint64(len(f.entry.Ends)), When: f.when.Unix(),
			}
		}
		seg.end = f.end()
		seg.bytes += f.size()
	}
}

// blank makes a segment whose beginning never reached the disk an empty one.
func (s *Spool) blank(file *os.File, seg segment, begin []byte) (segment, error) {
	if !bytes.Equal(bytes.Trim(begin, "\x00"), nil) && !strings.HasPrefix(magic, string(bytes.TrimRight(begin, "\x00"))) {
		return segment{}, errors.New("not a segment of a spool")
	}
	if err := file.Truncate(0); err != nil {
		return segment{}, err
	}
	if _, err := file.WriteAt([]byte(magic), 0); err != nil {
		return segment{}, err
	}
	return seg, errFrame
}

// readFrame reads one frame; io.EOF says that there is none, errFrame that there
// is a part of one.
func readFrame(in io.Reader, f *frame, body *[]byte) error {
	var prefix [prefixSize]byte
	switch _, err := io.ReadFull(in, prefix[:]); {
	case err == io.EOF:
		return io.EOF
	case err == io.ErrUnexpectedEOF:
		return errFrame
	case err != nil:
		return err
	}
	size := binary.LittleEndian.Uint32(prefix[:])
	if size < fixedSize || size > frameMax {
		return errFrame
	}
	if cap(*body) < int(size) {
		*body = make([]byte, size)
	}
	*body = (*body)[:size]
	if _, err := io.ReadFull(in, *body); err == io.EOF || err == io.ErrUnexpectedEOF {
		return errFrame
	} else if err != nil {
		return err
	}
	return f.decode(*body, binary.LittleEndian.Uint32(prefix[4:]))
}

func (s *Spool) loadIdentity() error {
	text, err := os.ReadFile(filepath.Join(s.folder, identityFile))
	if errors.Is(err, os.ErrNotExist) {
		return s.rename(nil)
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &s.identity); err != nil || s.identity.Name == "" {
		return fmt.Errorf("%s is damaged; without it nobody knows what the positions mean", identityFile)
	}
	return nil
}

// rename gives the spool a new name, under which skip counts as given up.
func (s *Spool) rename(skip event.Ranges) error {
	fresh := identity{Name: rand.Text()}
	for _, r := range skip {
		fresh.Skip = append(fresh.Skip, [2]uint64{r.First, r.End()})
	}
	if err := s.saveIdentity(fresh); err != nil {
		return err
	}
	s.identity = fresh
	return nil
}

func (s *Spool) saveIdentity(i identity) error {
	text, err := json.Marshal(i)
	if err != nil {
		return err
	}
	return s.replace(filepath.Join(s.folder, identityFile), text, true)
}

func (s *Spool) loadHead() uint64 {
	text, _ := os.ReadFile(filepath.Join(s.folder, headFile))
	head, _ := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return head // at worst too early: what was given up comes again, and sinks know it
}

func (s *Spool) saveHead() error {
	s.saved = time.Now()
	return s.replace(filepath.Join(s.folder, headFile), strconv.AppendUint(nil, s.head, 10), false)
}

// replace writes a file so that either the old or the new one is there.
func (s *Spool) replace(path string, text []byte, durable bool) error {
	fresh, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = fresh.Write(text)
	if err == nil && durable {
		err = fresh.Sync()
	}
	err = errors.Join(err, fresh.Close())
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err == nil && durable {
		err = syncFolder(s.folder)
	}
	return err
}

// saveKeys keeps the keys of a segment beyond its life.
func (s *Spool) saveKeys(seg segment) error {
	all := s.keys.of(seg.first, seg.end)
	if len(all) == 0 {
		return nil
	}
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return s.replace(s.path(seg.first, keysSuffix), text, true)
}

// loadKeys reads the keys that were kept, and removes the files of those that
// are over.
func (s *Spool) loadKeys() error {
	files, err := s.list(keysSuffix)
	if err != nil {
		return err
	}
	now := time.Now()
	for _, first := range files {
		name := s.path(first, keysSuffix)
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		var all []known
		if err := json.Unmarshal(text, &all); err != nil {
			return fmt.Errorf("%s is damaged; delete it to forget which keys were used", name)
		}
		all = slices.DeleteFunc(all, func(k known) bool { return s.keys.over(k.When, now) })
		if len(all) == 0 {
			if err := os.Remove(name); err != nil {
				return err
			}
		}
		for _, k := range all {
			s.keys.known[k.Key] = k
		}
	}
	return nil
}
