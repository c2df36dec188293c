package file

import (
	"context"
	"math"
	"os"
	"sync"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/source"
)

// A stream can be read once. It keeps the lines that were read and are not yet
// acknowledged for the reader that comes after. It has one reader at a time.
type stream struct {
	name  string
	in    *os.File
	lines *lines

	// A read of standard input cannot be taken back, so a goroutine does the
	// reading. What it reads after a reader gave up is for the next one.
	wanted chan struct{}
	chunks chan chunk
	asked  bool // for a chunk that has not come
	rest   []byte
	err    error           // how the stream ended
	ctx    context.Context // of the Read that is under way

	mu    sync.Mutex
	held  []line
	acked event.Ranges
}

// A chunk is what one read of the stream gave.
type chunk struct {
	data []byte
	err  error
}

// A line that was read and may have to be read again.
type line struct {
	position uint64
	text     []byte
}

func newStream(name string, in *os.File) *stream {
	s := &stream{name: name, in: in, wanted: make(chan struct{}, 1), chunks: make(chan chunk, 1)}
	s.lines = newLines(s)
	s.lines.hasty = true
	go s.pump()
	return s
}

// pump reads a chunk whenever one is wanted.
func (s *stream) pump() {
	for range s.wanted {
		buf := make([]byte, readBuffer)
		n, err := s.in.Read(buf)
		s.chunks <- chunk{buf[:n], err}
	}
}

// close ends the goroutine, unless it waits in a read that nothing can end.
func (s *stream) close() error {
	close(s.wanted)
	if s.in == os.Stdin {
		_ = s.in.SetReadDeadline(time.Unix(1, 0)) // works for a pipe only
		return nil
	}
	return s.in.Close()
}

// Read implements io.Reader for as long as the reader's context allows.
func (s *stream) Read(p []byte) (int, error) {
	if len(s.rest) == 0 && s.err == nil {
		if !s.asked {
			s.wanted <- struct{}{}
			s.asked = true
		}
		select {
		case c := <-s.chunks:
			s.asked, s.rest, s.err = false, c.data, c.err
		case <-s.ctx.Done():
			return 0, s.ctx.Err()
		}
	}
	if len(s.rest) == 0 {
		return 0, s.err
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// keep remembers what is in b.
func (s *stream) keep(b *event.Batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	copied := event.Batch{Data: append([]byte(nil), b.Data...), Ends: b.Ends}
	for i := range b.Len() {
		s.held = append(s.held, line{b.Range.First + uint64(i), copied.Doc(i)})
	}
}

// ack lets go of the lines at the front that are settled.
func (s *stream) ack(r event.Range) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acked.Add(event.Range{First: r.First, Count: r.Count})
	for len(s.held) > 0 && s.acked.Has(s.held[0].position) {
		s.held = s.held[1:]
	}
}

// A streamReader reads again what the stream holds, then what comes.
type streamReader struct {
	stream *stream
	limits source.Limits
	next   uint64       // position
	done   event.Ranges // in the sinks
}

// Read implements source.Reader.
func (r *streamReader) Read(ctx context.Context, b *event.Batch) error {
	b.Reset()
	b.Partition = r.stream.name
	r.replay(b)
	if b.Len() == 0 {
		r.stream.ctx = ctx
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := r.stream.lines.fill(b, r.limits, math.MaxUint64, true); err != nil {
			return err
		}
		r.stream.keep(b)
	}
	r.next = b.Range.End()
	return nil
}

// replay puts into b the next lines that were read before and are not settled.
func (r *streamReader) replay(b *event.Batch) {
	s := r.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.held {
		settled := l.position < r.next || r.done.Has(l.position) || s.acked.Has(l.position)
		if b.Len() == 0 && settled {
			continue
		}
		if b.Len() == 0 {
			b.Range.First = l.position
		}
		full := b.Len() == r.limits.Events || b.Len() > 0 && len(b.Data)+len(l.text) > r.limits.Bytes
		if settled || full || l.position != b.Range.First+uint64(b.Len()) {
			break
		}
		b.Append(l.text)
	}
	b.Range.Count = uint64(b.Len())
}

// Ack implements source.Reader.
func (r *streamReader) Ack(_ context.Context, done event.Range) error {
	r.stream.ack(done)
	return nil
}

// Lag implements source.Reader: what a stream still holds is unknown.
func (r *streamReader) Lag() uint64 { return 0 }

// Close implements source.Reader.
func (r *streamReader) Close(context.Context) error { return nil }
