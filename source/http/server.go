package http

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/httpserver"
	"github.com/perigeedb/perigee/internal/spool"
	"github.com/perigeedb/perigee/source/format"
)

const (
	bodiesMax    = 4       // times max_body is the memory for all bodies together,
	bodiesMin    = 1 << 20 // and at least this
	keyMax       = 255     // bytes of an Idempotency-Key
	rejectedMax  = 100     // events that a response lists as refused
	eventsMax    = 100_000 // lines or elements of one body
	ratioMax     = 200     // by which a body may grow when it is decompressed, beyond ratioFrom
	ratioFrom    = 1 << 20
	partBytesMax = 64 << 10 // of a body that are read at once
	closeTime    = 3 * time.Second
)

// A server accepts posts and appends their events to a spool.
type server struct {
	config  Config
	format  format.Format
	spool   *spool.Spool
	log     *slog.Logger
	address net.Addr
	http    *http.Server
	bodies  *budget
	serving sync.WaitGroup
}

// newServer listens and serves until close.
func newServer(c Config, as format.Format, sp *spool.Spool, log *slog.Logger) (*server, error) {
	s := &server{config: c, format: as, spool: sp, log: log, bodies: newBudget(max(bodiesMax*int64(c.MaxBody), bodiesMin))}
	certificates, err := c.loadCertificates()
	if err != nil {
		return nil, err
	}
	l, err := c.listen(certificates)
	if err != nil {
		return nil, err
	}
	s.address = l.Addr()
	mux := http.NewServeMux()
	mux.Handle("POST "+c.Path, http.HandlerFunc(s.handlePost))
	s.http = httpserver.New(mux, log)
	s.serving.Go(func() { _ = s.http.Serve(l) })
	log.Info("accepting events over HTTP", "address", s.address, "path", c.Path)
	return s, nil
}

func (c *Config) listen(certificates []tls.Certificate) (net.Listener, error) {
	l, err := c.access().Open(certificates)
	if err != nil {
		return nil, &event.PermanentError{Err: err, Hint: "choose another address for listen below the http source, or stop the program that has this one"}
	}
	return l, nil
}

// loadCertificates returns the certificates that the server presents; none without TLS.
func (c *Config) loadCertificates() ([]tls.Certificate, error) {
	certificates, err := c.access().LoadCertificates()
	if err != nil {
		return nil, &event.PermanentError{Err: err, Hint: "check cert and key below the http source"}
	}
	return certificates, nil
}

func (s *server) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.http.Close()
	}
	s.serving.Wait()
	return err
}

// A response is the JSON that a client gets.
type response struct {
	Accepted int         `json:"taken"`
	Rejected []rejection `json:"refused,omitempty"`
	Unlisted int         `json:"refused_more,omitempty"` // events that were refused beyond those listed
	Repeated bool        `json:"repeated,omitempty"`     // the key is known: the events were accepted before
	Error    string      `json:"error,omitempty"`        // why no event was accepted
}

// handlePost accepts the events of one body.
func (s *server) handlePost(w http.ResponseWriter, r *http.Request) {
	if !s.config.access().Authorized(w, r) {
		writeResponse(w, http.StatusUnauthorized, response{Error: httpserver.ErrUnauthorized.Error()})
		return
	}
	key := r.Header.Get("Idempotency-Key")
	if len(key) > keyMax {
		writeResponse(w, http.StatusBadRequest, response{Error: fmt.Sprintf("the Idempotency-Key is longer than %d bytes", keyMax)})
		return
	}
	if r.ContentLength > int64(s.config.MaxBody) {
		writeResponse(w, http.StatusRequestEntityTooLarge, response{Error: s.tooLarge().Error()})
		return
	}
	status, answer := s.acceptBody(w, r, key)
	if status == 0 {
		return // the client is gone
	}
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	writeResponse(w, status, answer)
}

// acceptBody reads the body and makes its events durable. It has given the memory back
// when it returns the response. The status 0 means that nobody waits for one.
func (s *server) acceptBody(w http.ResponseWriter, r *http.Request, key string) (status int, answer response) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	control := http.NewResponseController(w)
	memory := s.bodies.open(func(cause error) {
		cancel(cause)
		_ = control.SetReadDeadline(time.Unix(1, 0)) // ends a read that waits
	})
	defer memory.close()
	body, status, err := s.readBody(ctx, r, memory)
	if err != nil {
		return status, response{Error: err.Error()}
	}
	if err := memory.grow(ctx, int64(len(body))); err != nil { // for the events in it
		return http.StatusServiceUnavailable, response{Error: err.Error() + "; try again later"}
	}
	grow := func(bytes int) error { return memory.grow(ctx, int64(bytes)) }
	posted, err := s.parse(body, r.Header.Get("Content-Type"), grow)
	switch {
	case errors.Is(err, errBusy), errors.Is(err, errEvicted):
		return http.StatusServiceUnavailable, response{Error: err.Error() + "; try again later"}
	case errors.Is(err, errTooMany):
		return http.StatusRequestEntityTooLarge, response{Error: err.Error()}
	case err != nil:
		return http.StatusBadRequest, response{Error: err.Error()}
	}
	return s.appendToSpool(r, key, body, posted)
}

// parse splits a body into events. grow takes memory for documents that are larger than the
// records that they come from.
func (s *server) parse(body []byte, contentType string, grow func(bytes int) error) (*postedBody, error) {
	if s.format.IsJSON() {
		return parseBody(body, contentType)
	}
	return parseRecords(body, s.format, grow)
}

func (s *server) tooLarge() error {
	return fmt.Errorf("the body is larger than %d bytes: post it in parts", s.config.MaxBody)
}

// readBody reads and decompresses the body. The status is for the response to an error.
func (s *server) readBody(ctx context.Context, r *http.Request, memory *share) (body []byte, status int, err error) {
	compressed := &countingReader{r: r.Body}
	in := io.Reader(compressed)
	encoding := r.Header.Get("Content-Encoding")
	switch encoding {
	case "", "identity":
	case "gzip":
		decompressed, err := gzip.NewReader(in)
		if err != nil {
			return nil, statusOfRead(ctx, err), fmt.Errorf("decompress the body: %w", readError(ctx, err))
		}
		in = decompressed
	default:
		return nil, http.StatusUnsupportedMediaType, fmt.Errorf("unknown Content-Encoding %q: use gzip or none", encoding)
	}
	for {
		if body, err = growBody(ctx, body, memory); err != nil {
			return nil, http.StatusServiceUnavailable, fmt.Errorf("%w; try again later", err)
		}
		n, err := in.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case len(body) > s.config.MaxBody:
			return nil, http.StatusRequestEntityTooLarge, s.tooLarge()
		case int64(len(body)) > ratioFrom && int64(len(body)) > ratioMax*compressed.n:
			return nil, http.StatusRequestEntityTooLarge, fmt.Errorf("the body is more than %d times as large as its compressed form", ratioMax)
		case err == io.EOF && encoding != "gzip" && bytes.HasPrefix(body, []byte("\x1f\x8b")):
			return nil, http.StatusUnsupportedMediaType, errors.New("the body is gzip data: post it with Content-Encoding: gzip")
		case err == io.EOF:
			return body, 0, nil
		case err != nil:
			return nil, statusOfRead(ctx, err), fmt.Errorf("read the body: %w", readError(ctx, err))
		}
	}
}

// growBody makes room for another part, and takes the memory for it.
func growBody(ctx context.Context, body []byte, memory *share) ([]byte, error) {
	if len(body) < cap(body) {
		return body, nil
	}
	more := max(4<<10, min(len(body), 16*partBytesMax))
	if err := memory.grow(ctx, int64(more)); err != nil {
		return nil, err
	}
	return append(make([]byte, 0, len(body)+more), body...), nil
}

// statusOfRead returns the status of a response to a body that could not be read.
func statusOfRead(ctx context.Context, err error) int {
	switch {
	case errors.Is(context.Cause(ctx), errEvicted):
		return http.StatusServiceUnavailable
	case errors.Is(err, os.ErrDeadlineExceeded):
		return http.StatusRequestTimeout
	}
	return http.StatusBadRequest
}

// readError says why a read ended.
func readError(ctx context.Context, err error) error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errEvicted):
		return cause
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("no more of it arrived for %v, or all of it took longer than %v", httpserver.BodyIdle, httpserver.BodyTime)
	}
	return err
}

// A countingReader counts what is read.
type countingReader struct {
	r io.Reader
	n int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// appendToSpool makes the events durable and returns the response.
func (s *server) appendToSpool(r *http.Request, key string, body []byte, posted *postedBody) (int, response) {
	receipt, err := s.spool.Append(r.Context(), spool.Entry{
		Key: key, Sender: senderOf(r), Sum: xxhash.Sum64(body), Data: posted.data, Ends: posted.ends,
	})
	switch {
	case err == nil:
	case errors.Is(err, spool.ErrKeyReused):
		return http.StatusUnprocessableEntity, response{Error: "this Idempotency-Key was used before with another body"}
	case r.Context().Err() != nil:
		return 0, response{}
	default:
		s.log.Warn("cannot accept events over HTTP", "error", err)
		return http.StatusServiceUnavailable, response{Error: err.Error() + "; try again later"}
	}
	status := http.StatusOK
	if posted.count > 0 && posted.rejectedCount == posted.count {
		status = http.StatusBadRequest
	}
	return status, response{
		Accepted: len(posted.ends), Rejected: posted.rejected, Unlisted: posted.rejectedCount - len(posted.rejected), Repeated: receipt.Repeated,
	}
}

// senderOf returns the address of a client, without its port.
func senderOf(r *http.Request) string {
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	return host
}

func writeResponse(w http.ResponseWriter, status int, body response) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may be gone
}
