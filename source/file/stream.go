package file

import (
	"context"
	"math"
	"os"
	"sync"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/source"
	"github.com/perigeedb/perigee/source/format"
)

// A stream can be read once. It keeps the lines that were read and not acknowledged
// for the next reader. It has one reader at a time.
type stream struct {
	name    string // of the partition
	in      *os.File
	lines   *lineReader
	decoder *format.Decoder

	// A read of standard input cannot be cancelled, so a goroutine reads. A chunk that
	// arrives after a reader gave up is for the next reader.
	requests  chan struct{}
	chunks    chan chunk
	requested bool // a chunk that has not arrived
	rest      []byte
	err       error           // how the stream ended
	ctx       context.Context // of the Read in progress

	mu      sync.Mutex
	unacked []streamLine
	acked   event.Ranges
}

// A chunk is the result of one read of the stream.
type chunk struct {
	data []byte
	err  error
}

type streamLine struct {
	position uint64
	text     []byte
}

func newStream(name string, in *os.File, as format.Format) *stream {
	s := &stream{name: name, in: in, decoder: as.NewDecoder(), requests: make(chan struct{}, 1), chunks: make(chan chunk, 1)}
	s.lines = newLineReader(s, as)
	s.lines.noWait = true
	go s.readChunks()
	return s
}

// readChunks reads a chunk for each request until the stream is closed.
func (s *stream) readChunks() {
	for range s.requests {
		buf := make([]byte, readBuffer)
		n, err := s.in.Read(buf)
		s.chunks <- chunk{buf[:n], err}
	}
}

// close ends the goroutine, unless it is in a read that cannot be interrupted.
func (s *stream) close() error {
	close(s.requests)
	if s.in == os.Stdin {
		_ = s.in.SetReadDeadline(time.Unix(1, 0)) // works for a pipe only
		return nil
	}
	return s.in.Close()
}

// Read implements io.Reader for the lineReader. It ends with the context of the
// reader's Read.
func (s *stream) Read(p []byte) (int, error) {
	if len(s.rest) == 0 && s.err == nil {
		if !s.requested {
			s.requests <- struct{}{}
			s.requested = true
		}
		select {
		case c := <-s.chunks:
			s.requested, s.rest, s.err = false, c.data, c.err
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

// retainBatch copies the lines of b to unacked.
func (s *stream) retainBatch(b *event.Batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	copied := event.Batch{Data: append([]byte(nil), b.Data...), Ends: b.Ends}
	for i := range b.Len() {
		s.unacked = append(s.unacked, streamLine{b.Range.First + uint64(i), copied.Doc(i)})
	}
}

// ack drops the acknowledged lines at the front of unacked.
func (s *stream) ack(r event.Range) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acked.Add(event.Range{First: r.First, Count: r.Count})
	for len(s.unacked) > 0 && s.acked.Has(s.unacked[0].position) {
		s.unacked = s.unacked[1:]
	}
}

// A streamReader reads the unacknowledged lines of a stream, then new ones.
type streamReader struct {
	stream *stream
	limits source.Limits
	next   uint64       // position
	done   event.Ranges // committed by the sinks
}

// Read implements source.Reader.
func (r *streamReader) Read(ctx context.Context, b *event.Batch) error {
	b.Reset()
	b.Partition = r.stream.name
	r.rereadUnacked(b)
	if b.Len() == 0 {
		r.stream.ctx = ctx
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := r.stream.lines.readHeader(r.stream.decoder, true); err != nil {
			return err
		}
		if err := r.stream.lines.readBatch(b, r.stream.decoder, r.limits, math.MaxUint64, true); err != nil {
			return err
		}
		r.stream.retainBatch(b)
	}
	r.next = b.Range.End()
	return nil
}

// rereadUnacked fills b with lines that an earlier reader read.
func (r *streamReader) rereadUnacked(b *event.Batch) {
	s := r.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.unacked {
		skip := l.position < r.next || r.done.Has(l.position) || s.acked.Has(l.position)
		if b.Len() == 0 && skip {
			continue
		}
		if b.Len() == 0 {
			b.Range.First = l.position
		}
		full := b.Len() == r.limits.Events || b.Len() > 0 && len(b.Data)+len(l.text) > r.limits.Bytes
		if skip || full || l.position != b.Range.First+uint64(b.Len()) {
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

// Lag implements source.Reader. It returns 0: the length of a stream is unknown.
func (r *streamReader) Lag() uint64 { return 0 }

// Close implements source.Reader.
func (r *streamReader) Close(context.Context) error { return nil }
