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
)

// A Reader reads entries in order. It sees only what is on disk for good.
type Reader struct {
	s    *Spool
	file *os.File
	in   *bufio.Reader
	seg  uint64 // first position of the segment that is open
	at   uint64 // the position that comes next
	body []byte
	f    frame
	left int // the next document of the frame; len(f.entry.Ends) when it is used up
}

// Read returns a reader that begins at position from.
func (s *Spool) Read(from uint64) (*Reader, error) {
	r := &Reader{s: s, at: from}
	if first, end := s.Bounds(); from < first || from > end {
		return nil, fmt.Errorf("position %d is not in the spool, which holds [%d,%d)", from, first, end)
	}
	if err := r.open(); err != nil {
		return nil, err
	}
	return r, nil
}

// open opens the segment that position at is in, or will be.
func (r *Reader) open() error {
	r.s.mu.Lock()
	seg := r.s.last
	for _, c := range r.s.closed {
		if r.at < c.end {
			seg = c
			break
		}
	}
	r.s.mu.Unlock()
	if r.file != nil {
		_ = r.file.Close()
	}
	var err error
	if r.file, err = os.Open(r.s.path(seg.first, segmentSuffix)); err != nil {
		return fmt.Errorf("read the spool: %w", err)
	}
	r.seg = seg.first
	r.in = bufio.NewReaderSize(&durable{r.s, r.file, r.seg, int64(len(magic))}, 256<<10)
	r.f.entry.Ends, r.left = r.f.entry.Ends[:0], 0
	return nil
}

// durable reads the part of a segment that is on disk for good: what lies past
// it may be written anew.
type durable struct {
	s    *Spool
	file *os.File
	seg  uint64
	at   int64
}

func (d *durable) Read(p []byte) (int, error) {
	d.s.mu.Lock()
	end := int64(math.MaxInt64)
	if d.seg == d.s.last.first {
		end = d.s.last.bytes
	}
	d.s.mu.Unlock()
	if d.at >= end {
		return 0, io.EOF
	}
	n, err := d.file.ReadAt(p[:min(int64(len(p)), end-d.at)], d.at)
	d.at += int64(n)
	if n > 0 {
		err = nil
	}
	return n, err
}

// Next appends documents from position from on to b, up to the limits but at
// least one, none at or past stop. It waits for one; io.EOF says that the spool
// is closed and all was read.
func (r *Reader) Next(ctx context.Context, b *event.Batch, from, stop uint64, events, bytes int) error {
	for b.Len() < events {
		if err := r.load(ctx, from, b.Len() == 0); err != nil {
			if b.Len() > 0 && (err == io.EOF || errors.Is(err, errNothing)) {
				return nil
			}
			return err
		}
		doc := r.doc()
		if r.at >= stop || b.Len() > 0 && len(b.Data)+len(doc) > bytes {
			return nil
		}
		if b.Len() == 0 {
			b.Range.First = r.at
		}
		b.Append(doc)
		b.Range.Count++
		r.at++
		r.left++
		from = r.at
	}
	return nil
}

// errNothing says that there is nothing more on disk now.
var errNothing = errors.New("nothing more")

func (r *Reader) doc() []byte {
	begin := uint32(0)
	if r.left > 0 {
		begin = r.f.entry.Ends[r.left-1]
	}
	return r.f.entry.Data[begin:r.f.entry.Ends[r.left]]
}

// load makes position from the next document of the frame at hand.
func (r *Reader) load(ctx context.Context, from uint64, wait bool) error {
	for {
		if n := len(r.f.entry.Ends); n > 0 && from < r.f.end() && from >= r.f.first {
			r.left = int(from - r.f.first)
			r.at = from
			return nil
		}
		if err := r.await(ctx, max(from, r.at), wait); err != nil {
			return err
		}
		if err := r.nextFrame(); err != nil {
			return err
		}
	}
}

// await returns when position is on disk.
func (r *Reader) await(ctx context.Context, position uint64, wait bool) error {
	for {
		r.s.mu.Lock()
		end, more, shut := r.s.end, r.s.more, r.s.shut
		r.s.mu.Unlock()
		switch {
		case position < end:
			return nil
		case shut:
			return io.EOF
		case !wait:
			return errNothing
		}
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// nextFrame reads the frame after the one at hand, in this segment or the next.
func (r *Reader) nextFrame() error {
	if n := len(r.f.entry.Ends); n > 0 {
		r.at = r.f.end()
	}
	r.s.mu.Lock()
	ended := r.seg != r.s.last.first && r.segmentEnds(r.at)
	r.s.mu.Unlock()
	if ended {
		if err := r.open(); err != nil {
			return err
		}
	}
	err := readFrame(r.in, &r.f, &r.body)
	if err != nil {
		return fmt.Errorf("read the spool at position %d: %w", r.at, err)
	}
	return nil
}

// segmentEnds tells whether the open segment has nothing at or past position.
func (r *Reader) segmentEnds(position uint64) bool {
	for _, c := range r.s.closed {
		if c.first == r.seg {
			return position >= c.end
		}
	}
	return true
}

// Close frees the reader.
func (r *Reader) Close() error { return r.file.Close() }
