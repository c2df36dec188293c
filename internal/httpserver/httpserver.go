// Package httpserver makes the HTTP servers of an engine, which all have the same
// bounds: a client that sends nothing, sends slowly or reads no answer holds a
// connection for a limited time, and nothing else.
package httpserver

import (
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// The bounds of every connection.
const (
	HeaderTime     = 10 * time.Second // to send the header of a request
	BodyTime       = time.Minute      // to send its body
	BodyIdle       = 10 * time.Second // between two parts of a body
	AnswerTime     = 10 * time.Second // to read a part of the answer
	KeepAliveTime  = time.Minute      // between two requests
	headerBytesMax = 16 << 10
	answerPart     = 64 << 10 // of an answer, which a client must read within AnswerTime
	ConnectionsMax = 1000
)

// New returns a server of handler. The caller serves and closes it.
func New(handler http.Handler, log *slog.Logger) *http.Server {
	c := &connections{idle: map[net.Conn]bool{}}
	return &http.Server{
		Handler:           Protect(withDeadlines(handler)),
		ReadHeaderTimeout: HeaderTime,
		IdleTimeout:       KeepAliveTime,
		MaxHeaderBytes:    headerBytesMax,
		ConnState:         c.observe,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// connections bounds how many connections a server has. One that is idle makes room for
// a new one; when none is, the new one is closed.
type connections struct {
	mu   sync.Mutex
	idle map[net.Conn]bool // all, and whether they wait for a request
}

func (c *connections) observe(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateClosed, http.StateHijacked:
		delete(c.idle, conn)
		return
	case http.StateNew:
		if len(c.idle) >= ConnectionsMax && !c.closeIdle() {
			conn.Close()
		}
	}
	c.idle[conn] = state != http.StateActive
}

// closeIdle closes a connection that waits for a request, and reports whether there was
// one.
func (c *connections) closeIdle() bool {
	for conn, idle := range c.idle {
		if idle {
			delete(c.idle, conn)
			conn.Close()
			return true
		}
	}
	return false
}

// withDeadlines gives each part of a body and of an answer a deadline of its own, so that
// a long answer to a client that reads takes as long as it needs.
func withDeadlines(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		out := &timedWriter{ResponseWriter: w, control: control}
		if r.ContentLength != 0 {
			now := time.Now()
			_ = control.SetReadDeadline(now.Add(BodyIdle))
			out.unread = &timedBody{body: r.Body, control: control, end: now.Add(BodyTime)}
			r.Body = out.unread
		}
		next.ServeHTTP(out, r)
	})
}

// A timedBody is a body whose parts must arrive in time.
type timedBody struct {
	body interface {
		Read([]byte) (int, error)
		Close() error
	}
	control *http.ResponseController
	end     time.Time
	ended   bool
}

func (b *timedBody) Read(p []byte) (int, error) {
	next := time.Now().Add(BodyIdle)
	if next.After(b.end) {
		next = b.end
	}
	_ = b.control.SetReadDeadline(next)
	n, err := b.body.Read(p)
	if b.ended = err != nil; b.ended { // from now on the server reads only to notice that the client has gone
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

func (b *timedBody) Close() error { return b.body.Close() }

// A timedWriter is an answer whose parts must be read in time. One that comes before the
// end of the body ends the connection: otherwise it would wait for the rest.
type timedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	unread  *timedBody // nil without a body, and once the answer has begun
}

// Unwrap is for http.ResponseController.
func (w *timedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *timedWriter) WriteHeader(status int) {
	w.begin()
	w.ResponseWriter.WriteHeader(status)
}

// Write writes in parts, so that a slow client gets a whole answer that a handler writes at once.
func (w *timedWriter) Write(p []byte) (n int, err error) {
	for {
		part := p[n:min(n+answerPart, len(p))]
		w.begin()
		written, err := w.ResponseWriter.Write(part)
		if n += written; err != nil || n >= len(p) {
			return n, err
		}
	}
}

func (w *timedWriter) begin() {
	if w.unread != nil && !w.unread.ended {
		w.Header().Set("Connection", "close")
	}
	w.unread = nil
	_ = w.control.SetWriteDeadline(time.Now().Add(AnswerTime))
}
