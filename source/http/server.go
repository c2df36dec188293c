package http

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/cespare/xxhash/v2"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/spool"
)

const (
	bodiesMax    = 4       // times max_body is the memory for all bodies together
	requestBytes = 4 << 10 // of memory for a request besides its body
	keyMax       = 255     // bytes of an Idempotency-Key
	headerTime   = 10 * time.Second
	bodyTime     = time.Minute // for a client to send a whole request
	closeTime    = 3 * time.Second
)

// A server accepts posts and appends their events to a spool.
type server struct {
	config  Config
	spool   *spool.Spool
	log     *slog.Logger
	address net.Addr
	http    http.Server
	bodies  *semaphore.Weighted
	serving sync.WaitGroup
}

// newServer listens and serves until close.
func newServer(c Config, sp *spool.Spool, log *slog.Logger) (*server, error) {
	s := &server{config: c, spool: sp, log: log, bodies: semaphore.NewWeighted(bodiesMax * int64(c.MaxBody))}
	certificates, err := c.loadCertificates()
	if err != nil {
		return nil, err
	}
	l, err := c.listen()
	if err != nil {
		return nil, err
	}
	if len(certificates) > 0 {
		l = tls.NewListener(l, &tls.Config{Certificates: certificates, MinVersion: tls.VersionTLS12})
	}
	s.address = l.Addr()
	mux := http.NewServeMux()
	mux.Handle("POST "+c.Path, http.HandlerFunc(s.handlePost))
	// A web page in a browser on this machine reaches loopback too, and must not post.
	handler := http.NewCrossOriginProtection().Handler(mux)
	s.http = http.Server{Handler: handler, ReadHeaderTimeout: headerTime, ReadTimeout: bodyTime, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	s.serving.Go(func() { _ = s.http.Serve(l) })
	log.Info("accepting events over HTTP", "address", s.address, "path", c.Path)
	return s, nil
}

func (c *Config) listen() (net.Listener, error) {
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return nil, &event.PermanentError{Err: err, Hint: "choose another address for listen below the http source, or stop the program that has this one"}
	}
	return l, nil
}

// loadCertificates returns the certificates that the server presents; none without TLS.
func (c *Config) loadCertificates() ([]tls.Certificate, error) {
	if c.Cert == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
	if err != nil {
		return nil, &event.PermanentError{Err: fmt.Errorf("read the certificate: %w", err), Hint: "check cert and key below the http source"}
	}
	return []tls.Certificate{pair}, nil
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
	Repeated bool        `json:"repeated,omitempty"` // the key is known: the events were accepted before
	Error    string      `json:"error,omitempty"`    // why no event was accepted
}

// handlePost accepts the events of one body.
func (s *server) handlePost(w http.ResponseWriter, r *http.Request) {
	if !s.isAuthorized(r) {
		w.Header().Set("WWW-Authenticate", "Bearer")
		writeResponse(w, http.StatusUnauthorized, response{Error: "send the token as Authorization: Bearer TOKEN"})
		return
	}
	key := r.Header.Get("Idempotency-Key")
	if len(key) > keyMax {
		writeResponse(w, http.StatusBadRequest, response{Error: fmt.Sprintf("the Idempotency-Key is longer than %d bytes", keyMax)})
		return
	}
	memory := s.memoryFor(r)
	if err := s.bodies.Acquire(r.Context(), memory); err != nil {
		return // the client is gone
	}
	defer s.bodies.Release(memory)
	body, status, err := s.readBody(w, r)
	if err != nil {
		writeResponse(w, status, response{Error: err.Error()})
		return
	}
	posted, err := parseBody(body, r.Header.Get("Content-Type"))
	if err != nil {
		writeResponse(w, http.StatusBadRequest, response{Error: err.Error()})
		return
	}
	s.appendToSpool(w, r, key, body, posted)
}

func (s *server) isAuthorized(r *http.Request) bool {
	if s.config.Token == "" {
		return true
	}
	want, got := sha256.Sum256([]byte("Bearer "+s.config.Token)), sha256.Sum256([]byte(r.Header.Get("Authorization")))
	return subtle.ConstantTimeCompare(want[:], got[:]) == 1
}

// memoryFor returns the memory to reserve for a request: what its length says, or the
// maximum where that is unknown.
func (s *server) memoryFor(r *http.Request) int64 {
	bodyMax := int64(s.config.MaxBody)
	if r.ContentLength < 0 || r.Header.Get("Content-Encoding") != "" {
		return bodyMax
	}
	return min(r.ContentLength+requestBytes, bodyMax)
}

// readBody reads and decompresses the body. The status is for the response to an error.
func (s *server) readBody(w http.ResponseWriter, r *http.Request) (body []byte, status int, err error) {
	bodyMax := int64(s.config.MaxBody)
	in := io.Reader(http.MaxBytesReader(w, r.Body, bodyMax))
	encoding := r.Header.Get("Content-Encoding")
	switch encoding {
	case "", "identity":
	case "gzip":
		decompressed, err := gzip.NewReader(in)
		if err != nil {
			return nil, http.StatusBadRequest, fmt.Errorf("decompress the body: %w", err)
		}
		in = decompressed
	default:
		return nil, http.StatusUnsupportedMediaType, fmt.Errorf("unknown Content-Encoding %q: use gzip or none", encoding)
	}
	body, err = io.ReadAll(io.LimitReader(in, bodyMax+1))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large) || int64(len(body)) > bodyMax:
		return nil, http.StatusRequestEntityTooLarge, fmt.Errorf("the body is larger than %d bytes: post it in parts", bodyMax)
	case err != nil:
		return nil, http.StatusBadRequest, fmt.Errorf("read the body: %w", err)
	case encoding != "gzip" && bytes.HasPrefix(body, []byte("\x1f\x8b")):
		return nil, http.StatusUnsupportedMediaType, errors.New("the body is gzip data: post it with Content-Encoding: gzip")
	}
	return body, 0, nil
}

// appendToSpool makes the events durable and responds.
func (s *server) appendToSpool(w http.ResponseWriter, r *http.Request, key string, body []byte, posted *postedBody) {
	receipt, err := s.spool.Append(r.Context(), spool.Entry{Key: key, Sum: xxhash.Sum64(body), Data: posted.data, Ends: posted.ends})
	switch {
	case err == nil:
	case errors.Is(err, spool.ErrKeyReused):
		writeResponse(w, http.StatusUnprocessableEntity, response{Error: "this Idempotency-Key was used before with another body"})
		return
	case r.Context().Err() != nil:
		return
	default:
		s.log.Warn("cannot accept events over HTTP", "error", err)
		w.Header().Set("Retry-After", "1")
		writeResponse(w, http.StatusServiceUnavailable, response{Error: err.Error() + "; try again later"})
		return
	}
	status := http.StatusOK
	if posted.count > 0 && len(posted.rejected) == posted.count {
		status = http.StatusBadRequest
	}
	writeResponse(w, status, response{Accepted: len(posted.ends), Rejected: posted.rejected, Repeated: receipt.Repeated})
}

func writeResponse(w http.ResponseWriter, status int, body response) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may be gone
}
