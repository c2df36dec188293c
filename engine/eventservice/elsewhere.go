//go:build linux && cgo

package eventservice

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/perigeedb/perigee/admin"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore"
	"github.com/perigeedb/perigee/internal/datafolder"
	"github.com/perigeedb/perigee/sink"
	eventsink "github.com/perigeedb/perigee/sink/eventstore"
)

// An elsewhere is the data folder of an event store that is not the engine's own.
type elsewhere struct {
	data   string
	remote bool      // an engine runs there, which writes the rows
	lock   io.Closer // of the folder, unless an engine runs there
}

func (e *elsewhere) close() error {
	if e == nil || e.lock == nil {
		return nil
	}
	return e.lock.Close()
}

// OpenElsewhere returns the event store of another data folder, for an engine that writes to
// tables there. If an engine runs in that folder, it writes the rows; otherwise no engine can
// start there until the Store is closed. tables are those that will be written, each with the
// table whose declaration it gets if it does not exist and has none.
func OpenElsewhere(ctx context.Context, data string, tables map[string]string) (*Store, error) {
	s := &Store{elsewhere: &elsewhere{data: data}}
	s.setData(data)
	request, err := json.Marshal(tables)
	if err != nil {
		return nil, err
	}
	err = admin.Post(ctx, data, "/writers/prepare", nil, bytes.NewReader(request), io.Discard, nil)
	switch {
	case err == nil:
		s.elsewhere.remote = true
		return s, nil
	case !errors.Is(err, admin.ErrNoEngine):
		return nil, fmt.Errorf("ask the engine in %s to write rows: %w", data, err)
	}
	s.elsewhere.lock, err = datafolder.Lock(data)
	return s, err
}

// A writerRequest opens a partition of a pipeline in a table.
type writerRequest struct {
	Table     string `json:"table"`
	Pipeline  string `json:"pipeline"`
	Partition string `json:"partition"`
}

// A writerAnswer is the owner of a partition, and what it has committed.
type writerAnswer struct {
	Owner string       `json:"owner"`
	Done  event.Ranges `json:"done"`
}

// A writerOutput is an output without its documents, which follow.
type writerOutput struct {
	writerRequest
	Owner string      `json:"owner"`
	Range event.Range `json:"range"`
	Ends  []uint32    `json:"ends"`
	From  []uint32    `json:"from"`
}

// A writerResult is what came of an output.
type writerResult struct {
	Fenced   bool          `json:"fenced,omitempty"`
	Rejected []rejectedRow `json:"rejected,omitempty"`
}

type rejectedRow struct {
	Row    int    `json:"row"`
	Stage  string `json:"stage"`
	Reason string `json:"reason"`
}

// A remoteSink writes to a table through the engine of its data folder.
type remoteSink struct {
	data   string
	target writerRequest // without a partition
}

// newRemoteSink returns a sink that writes through the engine of the data folder.
func (s *Store) newRemoteSink(env sink.Env, decode func(any) error) (sink.Sink, error) {
	var c eventsink.Config
	if err := decode(&c); err != nil {
		return nil, err
	}
	if err := eventstore.CheckTableName(c.Table); err != nil {
		return nil, err
	}
	return &remoteSink{s.elsewhere.data, writerRequest{Table: c.Table, Pipeline: env.Pipeline}}, nil
}

// Traits implements sink.Sink.
func (s *remoteSink) Traits() sink.Traits { return sink.Traits{Order: sink.AnyOrder} }

// Close implements sink.Sink.
func (s *remoteSink) Close() error { return nil }

// Open implements sink.Sink.
func (s *remoteSink) Open(ctx context.Context, partition string) (sink.Writer, event.Ranges, error) {
	target := s.target
	target.Partition = partition
	request, err := json.Marshal(target)
	if err != nil {
		return nil, nil, err
	}
	var answer writerAnswer
	if err := postWriter(ctx, s.data, "/writers/open", bytes.NewReader(request), &answer); err != nil {
		return nil, nil, err
	}
	return &remoteWriter{s.data, target, answer.Owner}, answer.Done, nil
}

// postWriter sends a request to the engine and decodes its answer.
func postWriter(ctx context.Context, data, path string, body io.Reader, into any) error {
	var answer bytes.Buffer
	err := admin.Post(ctx, data, path, url.Values{}, body, &answer, nil)
	if errors.Is(err, admin.ErrNoEngine) {
		return event.WithHint(fmt.Errorf("the engine in %s has stopped, which writes the rows", data), "start it again")
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(answer.Bytes(), into)
}

type remoteWriter struct {
	data   string
	target writerRequest
	owner  string
}

// Verify implements sink.Writer. The engine alone owns its store.
func (w *remoteWriter) Verify(context.Context) error { return nil }

// Close implements sink.Writer. The engine forgets the writer, or has been restarted and never
// knew it.
func (w *remoteWriter) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	request, err := json.Marshal(writerOutput{writerRequest: w.target, Owner: w.owner})
	if err == nil {
		err = admin.Post(ctx, w.data, "/writers/close", nil, bytes.NewReader(request), io.Discard, nil)
	}
	if errors.Is(err, admin.ErrNoEngine) {
		return nil
	}
	return err
}

// closeTimeout bounds the wait for the engine when a writer is closed.
const closeTimeout = 5 * time.Second

// Write implements sink.Writer.
func (w *remoteWriter) Write(ctx context.Context, out *event.Output) error {
	head, err := json.Marshal(writerOutput{w.target, w.owner, out.Range, out.Ends, out.From})
	if err != nil {
		return err
	}
	body := io.MultiReader(bytes.NewReader(binary.LittleEndian.AppendUint32(nil, uint32(len(head)))), bytes.NewReader(head), bytes.NewReader(out.Data))
	var result writerResult
	if err := postWriter(ctx, w.data, "/writers/append", body, &result); err != nil {
		return err
	}
	if result.Fenced {
		return sink.ErrFenced
	}
	if len(result.Rejected) == 0 {
		return nil
	}
	rejected := &sink.RowErrors{}
	for _, r := range result.Rejected {
		rejected.Rows = append(rejected.Rows, sink.RowError{Row: r.Row, Stage: r.Stage, Err: errors.New(r.Reason)})
	}
	return rejected
}

// A partitionKey names a partition of a pipeline in a table.
type partitionKey struct{ table, pipeline, partition string }

func (r *writerRequest) key() partitionKey {
	return partitionKey{strings.ToLower(r.Table), r.Pipeline, r.Partition}
}

// A remotePartition is a partition that another process writes.
type remotePartition struct {
	owner  string
	writer sink.Writer
}

// handleWriters adds the routes of a remoteSink.
func (s *Store) handleWriters(handle handleFunc) {
	handle("POST /writers/prepare", admin.Handler(s.servePrepare))
	handle("POST /writers/open", admin.Handler(s.serveOpenWriter))
	handle("POST /writers/append", admin.Handler(s.serveAppend))
	handle("POST /writers/close", admin.Handler(s.serveCloseWriter))
}

// servePrepare creates the tables that OpenElsewhere is told.
func (s *Store) servePrepare(_ io.Writer, r *http.Request) error {
	var tables map[string]string
	if err := json.NewDecoder(r.Body).Decode(&tables); err != nil {
		return fmt.Errorf("decode the request: %w", err)
	}
	for table, like := range tables {
		if err := s.declareLike(table, like); err != nil {
			return err
		}
	}
	return nil
}

// serveOpenWriter takes a partition over and answers with a writerAnswer.
func (s *Store) serveOpenWriter(w io.Writer, r *http.Request) error {
	var request writerRequest
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		return fmt.Errorf("decode the request: %w", err)
	}
	kind := eventsink.Kind(s.openTable, s.reportUndeclared)
	local, err := kind.New(sink.Env{Pipeline: request.Pipeline, Data: s.host.Data}, func(into any) error {
		into.(*eventsink.Config).Table = request.Table
		return nil
	})
	if err != nil {
		return err
	}
	writer, done, err := local.Open(r.Context(), request.Partition)
	if err != nil {
		return err
	}
	owner := rand.Text()
	s.mu.Lock()
	if s.writing == nil {
		s.writing = map[partitionKey]*remotePartition{}
	}
	before := s.writing[request.key()]
	s.writing[request.key()] = &remotePartition{owner, writer}
	s.mu.Unlock()
	if before != nil {
		before.writer.Close()
	}
	return json.NewEncoder(w).Encode(writerAnswer{owner, done})
}

// declareLike creates a table that is not declared and does not exist, with the declaration of
// another.
func (s *Store) declareLike(table, like string) error {
	store, err := s.open()
	if err != nil || like == "" || store.FindTable(table) != nil {
		return err
	}
	s.mu.Lock()
	declared, found := declaredAs(s.tables, like), declaredAs(s.tables, table)
	s.mu.Unlock()
	switch {
	case found != nil || declared == nil:
		return nil
	case len(declared.Computed) > 0:
		return event.WithHint(fmt.Errorf("table %s computes columns, and the running engine does not know those of the new table %s", like, table),
			fmt.Sprintf("declare %s below tables in the configuration of the engine, and reload it with SIGHUP", table))
	}
	_, err = store.Table(table, tableConfig(declared))
	return err
}

// serveAppend appends an output and answers with a writerResult.
func (s *Store) serveAppend(w io.Writer, r *http.Request) error {
	head, out, err := readOutput(io.LimitReader(r.Body, importBytesMax))
	if err != nil {
		return fmt.Errorf("decode the request: %w", err)
	}
	s.mu.Lock()
	p := s.writing[head.key()]
	s.mu.Unlock()
	var result writerResult
	if p == nil || p.owner != head.Owner { // the engine was restarted, or another process has taken over
		result.Fenced = true
		return json.NewEncoder(w).Encode(result)
	}
	err = p.writer.Write(r.Context(), out)
	rejected, isRejected := errors.AsType[*sink.RowErrors](err)
	switch {
	case isRejected:
		for _, row := range rejected.Rows {
			result.Rejected = append(result.Rejected, rejectedRow{row.Row, row.Stage, row.Err.Error()})
		}
	case errors.Is(err, sink.ErrFenced):
		result.Fenced = true
	case err != nil:
		return err
	}
	return json.NewEncoder(w).Encode(result)
}

// serveCloseWriter forgets a writer that no other has replaced.
func (s *Store) serveCloseWriter(_ io.Writer, r *http.Request) error {
	var request writerOutput
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		return fmt.Errorf("decode the request: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.writing[request.key()]
	if p == nil || p.owner != request.Owner {
		return nil
	}
	delete(s.writing, request.key())
	return p.writer.Close()
}

// readOutput reads an output that remoteWriter.Write has sent.
func readOutput(in io.Reader) (head writerOutput, out *event.Output, err error) {
	var size [4]byte
	if _, err := io.ReadFull(in, size[:]); err != nil {
		return head, nil, err
	}
	text, err := io.ReadAll(io.LimitReader(in, int64(binary.LittleEndian.Uint32(size[:]))))
	if err != nil {
		return head, nil, err
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return head, nil, err
	}
	out = &event.Output{Partition: head.Partition, Range: head.Range, Ends: head.Ends, From: head.From}
	if out.Data, err = io.ReadAll(in); err != nil {
		return head, nil, err
	}
	before := uint32(0)
	for i, end := range out.Ends {
		if end < before || int(end) > len(out.Data) || len(out.From) != len(out.Ends) || uint64(out.From[i]) >= out.Range.Count {
			return head, nil, errors.New("the documents are incomplete")
		}
		before = end
	}
	return head, out, nil
}
