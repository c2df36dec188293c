package spool

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/durable"
)

// A Reader reads entries in order. It sees only what is synced.
type Reader struct {
	spool    *Spool
	file     *os.File
	in       *bufio.Reader
	segment  uint64 // first position of the segment that is open
	position uint64 // of the next document
	buffer   []byte
	stored   storedEntry // that holds the next document; without ends at first
	doc      int         // index of the next document in stored
}

// NewReader returns a reader that begins at a position.
func (s *Spool) NewReader(from uint64) (*Reader, error) {
	r := &Reader{spool: s, position: from}
	if first, end := s.Bounds(); from < first || from > end {
		return nil, fmt.Errorf("position %d is not in the spool, which holds [%d,%d)", from, first, end)
	}
	if err := r.openSegment(); err != nil {
		return nil, err
	}
	return r, nil
}

// openSegment opens the segment that holds the next document, or will.
func (r *Reader) openSegment() error {
	r.spool.mu.Lock()
	seg := r.spool.active
	for _, s := range r.spool.sealed {
		if r.position < s.end {
			seg = s
			break
		}
	}
	r.spool.mu.Unlock()
	if r.file != nil {
		_ = r.file.Close()
	}
	var err error
	if r.file, err = durable.Open(r.spool.path(seg.first, segmentSuffix)); err != nil {
		return fmt.Errorf("read the spool: %w", err)
	}
	r.segment = seg.first
	r.in = bufio.NewReaderSize(&syncedPart{r.spool, r.file, r.segment, int64(len(magic))}, 256<<10)
	r.stored.entry.Ends, r.doc = r.stored.entry.Ends[:0], 0
	return nil
}

// A syncedPart reads a segment up to where it is synced. Bytes after that may
// still be cut off and written again.
type syncedPart struct {
	spool   *Spool
	file    *os.File
	segment uint64
	offset  int64
}

func (p *syncedPart) Read(b []byte) (int, error) {
	p.spool.mu.Lock()
	end := int64(math.MaxInt64)
	if p.segment == p.spool.active.first {
		end = p.spool.active.bytes
	}
	p.spool.mu.Unlock()
	if p.offset >= end {
		return 0, io.EOF
	}
	n, err := p.file.ReadAt(b[:min(int64(len(b)), end-p.offset)], p.offset)
	p.offset += int64(n)
	if n > 0 {
		err = nil
	}
	return n, err
}

// Limits bound what ReadBatch adds to a batch, which is at least one document.
type Limits struct {
	Stop          uint64 // position of the first document that must not be read
	Events, Bytes int
}

// ReadBatch appends documents from a position on to b. It waits for the first;
// io.EOF says that the spool is closed and all was read.
func (r *Reader) ReadBatch(ctx context.Context, b *event.Batch, from uint64, l Limits) error {
	for b.Len() < l.Events {
		if err := r.seek(ctx, from, b.Len() == 0); err != nil {
			if b.Len() > 0 && (err == io.EOF || errors.Is(err, errAtEnd)) {
				return nil
			}
			return err
		}
		doc := r.nextDoc()
		if r.position >= l.Stop || b.Len() > 0 && len(b.Data)+len(doc) > l.Bytes {
			return nil
		}
		if b.Len() == 0 {
			b.Range.First = r.position
		}
		b.Append(doc)
		b.Range.Count++
		r.position++
		r.doc++
		from = r.position
	}
	return nil
}

func (r *Reader) nextDoc() []byte {
	begin := uint32(0)
	if r.doc > 0 {
		begin = r.stored.entry.Ends[r.doc-1]
	}
	return r.stored.entry.Data[begin:r.stored.entry.Ends[r.doc]]
}

// seek makes the document at a position the next one.
func (r *Reader) seek(ctx context.Context, position uint64, wait bool) error {
	for {
		if f := &r.stored; len(f.entry.Ends) > 0 && position >= f.first && position < f.end() {
			r.doc = int(position - f.first)
			r.position = position
			return nil
		}
		if err := r.awaitPosition(ctx, max(position, r.position), wait); err != nil {
			return err
		}
		if err := r.readNextEntry(); err != nil {
			return err
		}
	}
}

// errAtEnd says that nothing more is on disk now.
var errAtEnd = errors.New("at the end of the spool")

// awaitPosition returns once a position is on disk.
func (r *Reader) awaitPosition(ctx context.Context, position uint64, wait bool) error {
	for {
		r.spool.mu.Lock()
		end, grown, closed := r.spool.end, r.spool.grown, r.spool.closed
		r.spool.mu.Unlock()
		switch {
		case position < end:
			return nil
		case closed:
			return io.EOF
		case !wait:
			return errAtEnd
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// readNextEntry reads the entry after the current one, in this segment or the next.
func (r *Reader) readNextEntry() error {
	if len(r.stored.entry.Ends) > 0 {
		r.position = r.stored.end()
	}
	if r.atSegmentEnd() {
		if err := r.openSegment(); err != nil {
			return err
		}
	}
	if err := readEntry(r.in, &r.stored, &r.buffer); err != nil {
		return fmt.Errorf("read the spool at position %d: %w", r.position, err)
	}
	return nil
}

// atSegmentEnd tells whether the next document is in a later segment than the one
// that is open. A segment that was removed holds nothing more.
func (r *Reader) atSegmentEnd() bool {
	r.spool.mu.Lock()
	defer r.spool.mu.Unlock()
	if r.segment == r.spool.active.first {
		return false
	}
	for _, s := range r.spool.sealed {
		if s.first == r.segment {
			return r.position >= s.end
		}
	}
	return true
}

// Close frees the reader.
func (r *Reader) Close() error { return r.file.Close() }
