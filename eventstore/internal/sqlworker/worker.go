//go:build linux && cgo

package sqlworker

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perigeedb/perigee/eventstore/internal/bloom"
	"github.com/perigeedb/perigee/eventstore/internal/logscan"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/statement"
	"github.com/perigeedb/perigee/internal/child"
	"github.com/perigeedb/perigee/internal/document"
)

// Run serves the parent and does not return if this process was started as a SQL worker. In
// every other process it does nothing.
//
// Call it first in main: workers execute everything that precedes it too.
func Run() {
	text, found := os.LookupEnv(protocol.WorkerVariable)
	if !found {
		return
	}
	if err := serve(text); err != nil {
		fmt.Fprintln(os.Stderr, "sql worker:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// A worker is the process that runs DuckDB.
type worker struct {
	settings   protocol.Settings
	databases  databases
	statements statement.Cache
	manifests  manifests
	log        *logscan.Files
	blooms     bloom.Cache
	memory     *memoryWatch
	pipes      atomic.Int64 // number of pipes created, for their names
}

// serve answers requests until the parent ends.
func serve(text string) error {
	var s protocol.Settings
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return fmt.Errorf("read the settings: %w", err)
	}
	if err := confine(s); err != nil {
		return err
	}
	w := &worker{settings: s, log: logscan.NewFiles(manifest.LogFolder(s.Folder)), memory: newMemoryWatch(s.Memory)}
	w.databases.settings = s
	for _, f := range s.Functions {
		statement.Allow(f.Name)
	}
	w.manifests.reader = manifest.NewReader(s.Folder)
	w.manifests.loaded = func(m *manifest.Manifest) { w.blooms.Keep(s.Folder, m) }
	go w.memory.run()
	for {
		socket, err := receiveSocket()
		if err != nil || socket == nil {
			return err
		}
		go w.serveJob(socket)
	}
}

// receiveSocket waits for the socket of the next request. It returns nil when the parent has
// closed the connection.
func receiveSocket() (*os.File, error) {
	var b [1]byte
	control := make([]byte, unix.CmsgSpace(4))
	for {
		n, controlSize, _, _, err := unix.Recvmsg(child.SocketFile, b[:], control, unix.MSG_CMSG_CLOEXEC)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return nil, os.NewSyscallError("recvmsg", err)
		case n == 0:
			return nil, nil
		}
		messages, err := unix.ParseSocketControlMessage(control[:controlSize])
		if err != nil || len(messages) != 1 {
			return nil, protocol.ErrInvalidMessage
		}
		files, err := unix.ParseUnixRights(&messages[0])
		if err != nil || len(files) != 1 {
			return nil, protocol.ErrInvalidMessage
		}
		return os.NewFile(uintptr(files[0]), "request"), nil
	}
}

// A job is a request on its socket.
type job struct {
	socket *os.File
	in     *protocol.Reader
	out    *protocol.Writer
	cancel context.CancelCauseFunc
	values chan []byte // results of the current function call
	here   chan []byte // answer to the current FilesNeeded
}

// serveJob answers one request.
func (w *worker) serveJob(socket *os.File) {
	defer socket.Close()
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	j := &job{socket: socket, in: protocol.NewReader(socket), out: protocol.NewWriter(socket), cancel: cancel, values: make(chan []byte, 1), here: make(chan []byte, 1)}
	context.AfterFunc(ctx, j.setCloseDeadline)
	release := w.memory.add(cancel)
	err := w.answer(ctx, j)
	release()
	if w.settings.Role != protocol.QueryRole {
		document.TrimAllocator() // before the next request, which has the whole limit again
	}
	if err != nil {
		err = j.out.WriteJSON(protocol.FailedMessage, protocol.NewFailure(err))
	}
	if err == nil {
		_ = j.out.Flush() // the parent may be gone
	}
}

// setCloseDeadline is called when an answer is cut short, so that a parent that does not read
// cannot block the worker.
func (j *job) setCloseDeadline() { _ = j.socket.SetDeadline(time.Now().Add(time.Second)) }

func (w *worker) answer(ctx context.Context, j *job) error {
	kind, text, err := j.in.Read()
	if err != nil {
		return protocol.ErrCanceled // the parent canceled before it sent a request
	}
	if kind != protocol.RequestMessage {
		return protocol.ErrInvalidMessage
	}
	if err := j.out.Write(protocol.BegunMessage); err != nil {
		return err
	}
	if err := j.out.Flush(); err != nil {
		return protocol.ErrCanceled // the parent is gone
	}
	var q protocol.Request
	if err := json.Unmarshal(text, &q); err != nil {
		return err
	}
	if q.Query != nil {
		return w.query(ctx, q.Query, j)
	}
	if _, _, err := j.nextRows(); err != nil {
		return err
	}
	switch {
	case q.Segment != nil:
		return w.writeSegment(ctx, q.Segment, j)
	case q.Merge != nil:
		return w.merge(ctx, q.Merge, j)
	case q.Recompute != nil:
		return w.recompute(ctx, q.Recompute, j)
	case q.Check != nil:
		return w.checkPredicate(ctx, q.Check, j)
	case q.Read != nil:
		return w.read(ctx, q.Read, j)
	case q.Tail != nil:
		return w.tail(ctx, q.Tail, j)
	}
	return protocol.ErrInvalidMessage
}

// nextRows returns the next rows of an external table, or nil at the end of the request.
// After that, the end of the stream cancels the job.
func (j *job) nextRows() (table int, rows []byte, err error) {
	kind, body, err := j.in.Read()
	switch {
	case err != nil:
		return 0, nil, protocol.ErrCanceled
	case kind == protocol.EndOfRequest:
		go j.readValues()
		return 0, nil, nil
	case kind != protocol.RowsMessage || len(body) < 4:
		return 0, nil, protocol.ErrInvalidMessage
	}
	return int(binary.LittleEndian.Uint32(body)), body[4:], nil
}

// readValues reads the results of function calls and requests for files until the parent closes
// its side.
func (j *job) readValues() {
	for {
		kind, body, err := j.in.Read()
		switch {
		case err == nil && kind == protocol.ValuesMessage:
			j.values <- body
		case err == nil && kind == protocol.FilesHere:
			j.here <- body
		default:
			j.cancel(protocol.ErrCanceled)
			return
		}
	}
}

// fetch asks the parent for files of a lake, and waits until they are on disk. The parent keeps
// them there until the job ends or asks again, for files that need not be the same.
func (j *job) fetch(ctx context.Context, files []protocol.NeededFile) error {
	if len(files) == 0 {
		return nil
	}
	if err := j.out.WriteJSON(protocol.FilesNeeded, files); err != nil {
		return err
	}
	if err := j.out.Flush(); err != nil {
		return err
	}
	select {
	case body := <-j.here:
		if len(body) == 0 {
			return nil
		}
		var f protocol.Failure
		if err := json.Unmarshal(body, &f); err != nil {
			return protocol.ErrInvalidMessage
		}
		return f.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// manifests caches the newest manifest that was read.
type manifests struct {
	mu     sync.Mutex
	reader *manifest.Reader
	newest *manifest.Manifest
	loaded func(*manifest.Manifest) // is called with each new one
}

// load returns the manifest of the given version or a newer one. The parent keeps the files
// of all versions from version on.
func (m *manifests) load(version uint64) (*manifest.Manifest, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.newest != nil && m.newest.Version >= version {
		return m.newest, nil
	}
	read, err := m.reader.Load()
	if err != nil {
		return nil, err
	}
	if read.Version < version {
		return nil, fmt.Errorf("the manifest has version %d; want version %d or newer", read.Version, version)
	}
	m.newest = read
	m.loaded(read)
	return read, nil
}

// last returns the newest manifest that was read, or nil.
func (m *manifests) last() *manifest.Manifest {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.newest
}

// table returns a table from the given version of the manifest or a newer one.
func (w *worker) table(version uint64, id uint32) (*manifest.Table, error) {
	m, err := w.manifests.load(version)
	if err != nil {
		return nil, err
	}
	if t := m.TableByID(id); t != nil {
		return t, nil
	}
	return nil, fmt.Errorf("no table %d", id)
}
