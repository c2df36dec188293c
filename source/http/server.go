package http

import (
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
	bodiesMax    = 4       // times max_body that all bodies in memory may have together
	requestBytes = 4 << 10 // that a request takes besides its body
	keyMax       = 255     // bytes of an Idempotency-Key
	headerTime   = 10 * time.Second
	bodyTime     = time.Minute // for a sender to say all it has to say
	closeTime    = 3 * time.Second
)

// A server is the listener before a spool.
type server struct {
	config  Config
	spool   *spool.Spool
	log     *slog.Logger
	address net.Addr
	http    http.Server
	bodies  *semaphore.Weighted
	serving sync.WaitGroup
}

// listen begins to serve.
func listen(c Config, sp *spool.Spool, log *slog.Logger) (*server, error) {
	s := &server{config: c, spool: sp, log: log, bodies: semaphore.NewWeighted(bodiesMax * int64(c.MaxBody))}
	pairs, err := c.certificates()
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return nil, &event.PermanentError{Err: err, Hint: "choose another address below http.listen"}
	}
	if len(pairs) > 0 {
		l = tls.NewListener(l, &tls.Config{Certificates: pairs, MinVersion: tls.VersionTLS12})
	}
	s.address = l.Addr()
	mux := http.NewServeMux()
	mux.Handle("POST "+c.Path, http.HandlerFunc(s.post))
	// A page in a browser on this machine reaches loopback too, and must not post.
	handler := http.NewCrossOriginProtection().Handler(mux)
	s.http = http.Server{Handler: handler, ReadHeaderTimeout: headerTime, ReadTimeout: bodyTime, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	s.serving.Go(func() { _ = s.http.Serve(l) })
	log.Info("taking events over HTTP", "address", s.address, "path", c.Path)
	return s, nil
}

// certificates are those that the listener shows, if any.
func (c *Config) certificates() ([]tls.Certificate, error) {
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

// An answer is what a sender is told.
type answer struct {
	Taken    int       `json:"taken"`
	Refused  []refusal `json:"refused,omitempty"`
	Repeated bool      `json:"repeated,omitempty"` // the key was known: the events were taken before
	Error    string    `json:"error,omitempty"`    // why nothing was taken
}

// post takes the events of one body.
func (s *server) post(w http.ResponseWriter, r *http.Request) {
	if !s.allowed(r) {
		w.Header().Set("WWW-Authenticate", "Bearer")
		reply(w, http.StatusUnauthorized, answer{Error: "show the token as Authorization: Bearer TOKEN"})
		return
	}
	key := r.Header.Get("Idempotency-Key")
	if len(key) > keyMax {
		reply(w, http.StatusBadRequest, answer{Error: fmt.Sprintf("an Idempotency-Key has at most %d bytes", keyMax)})
		return
	}
	weight := s.weight(r)
	if err := s.bodies.Acquire(r.Context(), weight); err != nil {
		return // the sender has gone
	}
	defer s.bodies.Release(weight)
	body, status, err := s.body(w, r)
	if err != nil {
		reply(w, status, answer{Error: err.Error()})
		return
	}
	in, err := split(body, r.Header.Get("Content-Type"))
	if err != nil {
		reply(w, http.StatusBadRequest, answer{Error: err.Error()})
		return
	}
	s.keep(w, r, key, body, in)
}

func (s *server) allowed(r *http.Request) bool {
	if s.config.Token == "" {
		return true
	}
	want, got := sha256.Sum256([]byte("Bearer "+s.config.Token)), sha256.Sum256([]byte(r.Header.Get("Authorization")))
	return subtle.ConstantTimeCompare(want[:], got[:]) == 1
}

// weight is the memory that a request is let in with: as much as it says to need,
// or the most that it can need.
func (s *server) weight(r *http.Request) int64 {
	most := int64(s.config.MaxBody)
	if r.ContentLength < 0 || r.Header.Get("Content-Encoding") != "" {
		return most
	}
	return min(r.ContentLength+requestBytes, most)
}

// body reads what was posted, unpacked.
func (s *server) body(w http.ResponseWriter, r *http.Request) ([]byte, int, error) {
	most := int64(s.config.MaxBody)
	in := io.Reader(http.MaxBytesReader(w, r.Body, most))
	switch encoding := r.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
	case "gzip":
		unpacked, err := gzip.NewReader(in)
		if err != nil {
			return nil, http.StatusBadRequest, fmt.Errorf("unpack the body: %w", err)
		}
		in = unpacked
	default:
		return nil, http.StatusUnsupportedMediaType, fmt.Errorf("Content-Encoding %q is unknown; gzip or none", encoding)
	}
	body, err := io.ReadAll(io.LimitReader(in, most+1))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large) || int64(len(body)) > most:
		return nil, http.StatusRequestEntityTooLarge, fmt.Errorf("a body has at most %d bytes; post it in parts", most)
	case err != nil:
		return nil, http.StatusBadRequest, fmt.Errorf("read the body: %w", err)
	}
	return body, 0, nil
}

// keep makes the events durable and answers.
func (s *server) keep(w http.ResponseWriter, r *http.Request, key string, body []byte, in *intake) {
	receipt, err := s.spool.Append(r.Context(), spool.Entry{Key: key, Sum: xxhash.Sum64(body), Data: in.data, Ends: in.ends})
	switch {
	case err == nil:
	case errors.Is(err, spool.ErrKeyReused):
		reply(w, http.StatusUnprocessableEntity, answer{Error: "this Idempotency-Key came before with another body"})
		return
	case r.Context().Err() != nil:
		return
	default:
		s.log.Warn("refused events over HTTP", "error", err)
		w.Header().Set("Retry-After", "1")
		reply(w, http.StatusServiceUnavailable, answer{Error: err.Error() + "; come again"})
		return
	}
	status := http.StatusOK
	if in.seen > 0 && len(in.refused) == in.seen {
		status = http.StatusBadRequest
	}
	reply(w, status, answer{Taken: len(in.ends), Refused: in.refused, Repeated: receipt.Repeated})
}

func reply(w http.ResponseWriter, status int, a answer) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(a) // a sender that has gone needs no answer
}
