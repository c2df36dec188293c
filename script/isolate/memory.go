//go:build linux

package isolate

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
)

// Sizes of the areas. Pages take memory only once they are used.
const (
	requestBytes = 64 << 20 // a batch with its offsets, or the code
	textBytes    = 16 << 20 // a result without its rows, or the values of a call
	keptBytes    = 4 << 20  // shared memory that a worker keeps between batches
	pageBytes    = 64 << 10
)

// A layout is the division of the memory that a worker shares with its parent.
//
// The parent writes the request area, the worker the others. The worker can change all of them at
// any time, so the parent copies data before it checks it.
type layout struct {
	request int // bytes: for each piece of a batch, the ends of its documents, then the documents
	data    int // bytes: the documents of the rows
	rows    int // maximum number, for three arrays: their ends, events and sinks
	text    int // bytes
}

func newLayout(limits script.Limits) layout {
	data := roundUp(min(limits.Output, 1<<32-1-pageBytes))
	return layout{request: requestBytes, data: data, rows: roundUp(data/16 + 1<<16), text: textBytes}
}

func roundUp(n int) int { return (n + pageBytes - 1) / pageBytes * pageBytes }

func (l layout) size() int { return l.request + l.data + (4+4+8)*l.rows + l.text + pageBytes }

func (l layout) String() string { return fmt.Sprintf("%d,%d,%d,%d", l.request, l.data, l.rows, l.text) }

func parseLayout(text string) (l layout, err error) {
	_, err = fmt.Sscanf(text, "%d,%d,%d,%d", &l.request, &l.data, &l.rows, &l.text)
	return l, err
}

// memory is the shared memory, divided into its areas.
type memory struct {
	layout
	all     []byte
	request []byte
	data    []byte
	ends    []uint32
	from    []uint32
	to      []uint64
	text    []byte
	current *atomic.Uint32 // see script.Options.Current
}

// divide divides a mapping into its areas.
func (l layout) divide(all []byte) *memory {
	m := &memory{layout: l, all: all}
	next := func(n int) []byte {
		area := all[:n:n]
		all = all[n:]
		return area
	}
	m.request, m.data = next(l.request), next(l.data)
	m.ends = unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(next(4*l.rows)))), l.rows)
	m.from = unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(next(4*l.rows)))), l.rows)
	m.to = unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(next(8*l.rows)))), l.rows)
	m.text = next(l.text)
	m.current = (*atomic.Uint32)(unsafe.Pointer(unsafe.SliceData(next(pageBytes))))
	return m
}

// after returns the memory that remains after an answer for a piece. All pieces share the request
// area.
func (m *memory) after(text, data, rows int) *memory {
	rest := *m
	rest.text, rest.data = m.text[text:], m.data[data:]
	rest.ends, rest.from, rest.to = m.ends[rows:], m.from[rows:], m.to[rows:]
	return &rest
}

// createMemory creates the file of a shared memory. It is sealed, because a worker that shrank it
// could kill the parent by SIGBUS.
func createMemory(l layout) (*os.File, error) {
	fd, err := unix.MemfdCreate("perigee-script", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	file := os.NewFile(uintptr(fd), "perigee-script")
	if err := file.Truncate(int64(l.size())); err != nil {
		_ = file.Close()
		return nil, err
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		_ = file.Close()
		return nil, os.NewSyscallError("seal memory", err)
	}
	return file, nil
}

// mapMemory maps a shared memory.
func mapMemory(fd uintptr, l layout) (*memory, error) {
	all, err := unix.Mmap(int(fd), 0, l.size(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	return l.divide(all), nil
}

// release returns the pages to the system and discards their contents.
func (m *memory) release() { _ = unix.Madvise(m.all, unix.MADV_REMOVE) }

func (m *memory) unmap() { _ = unix.Munmap(m.all) }

// A message is the fixed-size content of the socket; longer data is in the shared memory. An answer
// has the number of its request.
type message struct {
	kind   messageKind
	number uint64
	a      uint64
	b      uint64
	c      uint64
	d      uint64
}

type messageKind uint64

const (
	// Sent by the parent.
	doLoad      messageKind = iota + 1 // a: bytes of the request
	doRun                              // a: events; the first piece is written
	restWritten                        // the other pieces are written, too
	results                            // of a call; a: bytes of text
	// Sent by the worker.
	loaded   // a: bytes of text
	ran      // a: bytes of text, b: events that ran, c: bytes of documents, d: rows, plus hasSinks and isPiece
	tooLarge // the result does not fit the memory
	failed   // a: bytes of text
	call     // a: bytes of text
)

// Flags of message.d. hasSinks: the rows have sinks. isPiece: more answers to the same request
// follow, so that the parent can check a piece while the worker runs the next one.
const (
	hasSinks = 1 << 63
	isPiece  = 1 << 62
)

// pieceEvents is the number of events that a worker runs per answer. An answer costs both processes
// about 25 µs, the time in which the parent checks 200 events.
const pieceEvents = 500

const messageBytes = 6 * 8

func (m *message) encode(b *[messageBytes]byte) {
	for i, n := range [...]uint64{uint64(m.kind), m.number, m.a, m.b, m.c, m.d} {
		binary.NativeEndian.PutUint64(b[8*i:], n)
	}
}

func (m *message) decode(b *[messageBytes]byte) {
	field := func(i int) uint64 { return binary.NativeEndian.Uint64(b[8*i:]) }
	*m = message{messageKind(field(0)), field(1), field(2), field(3), field(4), field(5)}
}

func send(socket int, m message) error {
	var b [messageBytes]byte
	m.encode(&b)
	for {
		err := unix.Send(socket, b[:], unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		if err != unix.EINTR {
			return os.NewSyscallError("send", err)
		}
	}
}

// noEvent in memory.current means that the current event is unknown.
const noEvent = ^uint32(0)

// requestEnds returns the ends at the start of a request area.
func requestEnds(request []byte, n int) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(request))), n)
}

// fits reports whether the request area holds a part of a batch.
func (m *memory) fits(in *event.Batch, p part) bool {
	return 4*(p.end-p.first)+len(documents(in, p)) <= len(m.request)
}

// writePieces writes the pieces that begin at events first up to end of a part of a batch.
func (m *memory) writePieces(in *event.Batch, p part, first, end int) {
	n := p.end - p.first
	ends := requestEnds(m.request, n)
	at := 4*n + len(documents(in, part{p.first, p.first + first}))
	for ; first < end; first += pieceEvents {
		piece := part{p.first + first, min(p.first+first+pieceEvents, p.end)}
		start := offset(in.Ends, piece.first)
		for i, e := range in.Ends[piece.first:piece.end] {
			ends[first+i] = e - start
		}
		at += copy(m.request[at:], documents(in, piece))
	}
}

// documents returns the documents of a part of a batch.
func documents(in *event.Batch, p part) []byte {
	return in.Data[offset(in.Ends, p.first):offset(in.Ends, p.end)]
}

// offset returns the start of document i.
func offset(ends []uint32, i int) uint32 {
	if i == 0 {
		return 0
	}
	return ends[i-1]
}
