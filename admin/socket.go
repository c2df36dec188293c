package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"syscall"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/datafolder"
)

// routePrefix precedes the name of an operation in its route.
const routePrefix = "/admin/"

type pauseRequest struct {
	Pipeline string `json:"pipeline"`
	Reason   string `json:"reason,omitempty"`
}

type codeRequest struct {
	Pipeline string `json:"pipeline"`
}

// Handlers returns the routes of an engine's socket, by pattern of http.ServeMux. Other
// processes use them through Open.
func (a *Admin) Handlers() map[string]http.Handler {
	handlers := map[string]http.Handler{
		"status": Handle(func(ctx context.Context, _ struct{}) ([]Status, error) { return a.Status(ctx) }),
		"pause": Handle(func(ctx context.Context, r pauseRequest) (struct{}, error) {
			return struct{}{}, a.Pause(ctx, r.Pipeline, r.Reason)
		}),
		"resume": Handle(func(ctx context.Context, r pauseRequest) (struct{}, error) {
			return struct{}{}, a.Resume(ctx, r.Pipeline)
		}),
		"running-code": Handle(func(ctx context.Context, r codeRequest) (Code, error) {
			return a.RunningCode(ctx, r.Pipeline)
		}),
		"shadow": Handle(func(ctx context.Context, r shadowRequest) (ShadowReport, error) {
			return a.Shadow(ctx, r.Pipeline, r.Reset)
		}),
		"promote": Handle(func(ctx context.Context, r shadowRequest) (Promotion, error) {
			return a.Promote(ctx, r.Pipeline, r.Force)
		}),
		"dead-letters":       handleStream(a.DeadLetters),
		"count-dead-letters": Handle(a.CountDeadLetters),
		"purge-dead-letters": Handle(a.PurgeDeadLetters),
		"retry-dead-letters": Handle(a.RetryDeadLetters),
		"dead-letter-queue":  Handle(func(ctx context.Context, _ struct{}) (Queue, error) { return a.DeadLetterQueue(ctx) }),
		"tap":                a.handleTap(),
		"log-level": Handle(func(ctx context.Context, r logLevelRequest) (slog.Level, error) {
			return a.SetLogLevel(ctx, r.Level)
		}),
		"states":         Handle(a.States),
		"state-nodes":    handleStream(a.StateNodes),
		"state-verify":   handleStream(a.VerifyState),
		"state-snapshot": handleStream(a.SnapshotState),
		"state-timers":   Handle(a.StateTimers),
		"positions":      Handle(a.Positions),
		"set-position":   Handle(a.SetPosition),
	}
	routes := make(map[string]http.Handler, len(handlers))
	for name, h := range handlers {
		routes["POST "+routePrefix+name] = h
	}
	return routes
}

// Handle returns a handler for an operation whose request and result are JSON.
func Handle[In, Out any](operation func(context.Context, In) (Out, error)) http.Handler {
	return Handler(func(w io.Writer, r *http.Request) error {
		var in In
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			return fmt.Errorf("decode the request: %w", err)
		}
		out, err := operation(r.Context(), in)
		if err != nil {
			return err
		}
		return json.NewEncoder(w).Encode(out)
	})
}

// handleStream returns a handler for an operation that writes its results as one JSON
// document per line.
func handleStream[In, Out any](operation func(context.Context, In) iter.Seq2[Out, error]) http.Handler {
	return Handler(func(w io.Writer, r *http.Request) error {
		var in In
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			return fmt.Errorf("decode the request: %w", err)
		}
		encoder := json.NewEncoder(w)
		for out, err := range operation(r.Context(), in) {
			if err != nil {
				return err
			}
			if err := encoder.Encode(out); err != nil {
				return err
			}
			if step, ok := any(out).(StateStep); ok && step.Progress != nil {
				w.(http.Flusher).Flush() // a terminal shows it
			}
		}
		return nil
	})
}

// Handler returns a handler for a function that writes an answer. An error before the
// first byte becomes a status with an event.Fault. A later error breaks the connection, so that
// no client takes a part of an answer for the whole.
func Handler(answer func(io.Writer, *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := &startedWriter{w: w}
		err := answer(out, r)
		switch {
		case err == nil:
		case out.started:
			panic(http.ErrAbortHandler)
		default:
			w.WriteHeader(http.StatusInternalServerError)
			json.NewEncoder(w).Encode(event.FaultOf(err)) // the client may be gone
		}
	})
}

// A startedWriter records whether anything was written.
type startedWriter struct {
	w       http.ResponseWriter
	started bool
}

func (s *startedWriter) Write(p []byte) (int, error) {
	s.started = s.started || len(p) > 0
	return s.w.Write(p)
}

// Flush implements http.Flusher: a long answer reaches its reader piece by piece.
func (s *startedWriter) Flush() {
	_ = http.NewResponseController(s.w).Flush() // the next write fails if the client is gone
}

// A client sends requests to a running engine.
type client struct {
	where  string  // "in FOLDER" or "at ADDRESS"
	base   url.URL // before the path of a route
	header http.Header
	http   http.Client
}

// dial returns a client of the engine in a data folder, or nil if none runs there.
func dial(data string) (*client, error) {
	conn, err := net.Dial("unix", filepath.Join(data, datafolder.SocketName))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("connect to the engine in %s: %w", data, err)
	}
	conn.Close()
	return newClient(data), nil
}

// IsRunning reports whether an engine runs in a data folder.
func IsRunning(data string) (bool, error) {
	c, err := dial(data)
	return c != nil, err
}

func newClient(data string) *client {
	return &client{where: "in " + data, base: url.URL{Scheme: "http", Host: "engine"}, http: http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(data, datafolder.SocketName))
		},
	}}}
}

func (c *client) close() { c.http.CloseIdleConnections() }

// post sends a request and returns the body of the answer, which the caller closes.
func (c *client) post(ctx context.Context, path string, query url.Values, body io.Reader) (io.ReadCloser, error) {
	target := c.base
	target.Path, target.RawQuery = c.base.Path+path, query.Encode()
	var response *http.Response
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), body)
	if err == nil {
		maps.Copy(request.Header, c.header)
		response, err = c.http.Do(request)
	}
	if err != nil {
		return nil, fmt.Errorf("send a request to the engine %s: %w", c.where, err)
	}
	if response.StatusCode == http.StatusOK {
		return response.Body, nil
	}
	defer response.Body.Close()
	var answer event.Fault
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || answer.Message == "" {
		return nil, fmt.Errorf("the engine %s answered with status %s", c.where, response.Status)
	}
	return nil, &answer
}

// call runs an operation in the engine.
func call[Out any](ctx context.Context, c *client, name string, in any) (out Out, err error) {
	if in == nil {
		in = struct{}{}
	}
	body, err := json.Marshal(in)
	if err != nil {
		return out, err
	}
	answer, err := c.post(ctx, routePrefix+name, nil, bytes.NewReader(body))
	if err != nil {
		return out, err
	}
	defer answer.Close()
	if err := json.NewDecoder(answer).Decode(&out); err != nil {
		return out, brokenOff(err)
	}
	return out, nil
}

// stream runs an operation with many results in the engine.
func stream[Out any](ctx context.Context, c *client, name string, in any) iter.Seq2[Out, error] {
	return func(yield func(Out, error) bool) {
		var none Out
		body, err := json.Marshal(in)
		if err != nil {
			yield(none, err)
			return
		}
		answer, err := c.post(ctx, routePrefix+name, nil, bytes.NewReader(body))
		if err != nil {
			yield(none, err)
			return
		}
		defer answer.Close()
		for decoder := json.NewDecoder(answer); ; {
			var out Out
			err := decoder.Decode(&out)
			if err == io.EOF {
				return
			}
			if err != nil {
				yield(none, brokenOff(err))
				return
			}
			if !yield(out, nil) {
				return
			}
		}
	}
}

func brokenOff(err error) error {
	return event.WithHint(fmt.Errorf("the engine ended the connection during its answer: %w", err), "read the reason in the log of the engine")
}

// Post sends a request to a route of the engine's socket and copies the answer to out. If no
// engine runs in the data folder, it calls local instead, or returns ErrNoEngine if local is
// nil.
func Post(ctx context.Context, data, path string, query url.Values, body io.Reader, out io.Writer, local func() error) error {
	c, err := dial(data)
	if err != nil {
		return err
	}
	switch {
	case c == nil && local == nil:
		return ErrNoEngine
	case c == nil:
		return local()
	}
	defer c.close()
	answer, err := c.post(ctx, path, query, body)
	if err != nil {
		return err
	}
	defer answer.Close()
	if _, err := io.Copy(out, answer); err != nil {
		return brokenOff(err)
	}
	return nil
}

// Perform sends an operation to a route of the engine's socket. in and the answer are JSON. If
// no engine runs in the data folder, it calls local with the same request instead, or returns
// ErrNoEngine if local is nil.
func Perform[Out any](ctx context.Context, data, path string, in any, local func(request []byte) (answer []byte, err error)) (out Out, err error) {
	request, err := json.Marshal(in)
	if err != nil {
		return out, err
	}
	var answer bytes.Buffer
	err = Post(ctx, data, path, nil, bytes.NewReader(request), &answer, nil)
	if errors.Is(err, ErrNoEngine) && local != nil {
		var here []byte
		here, err = local(request)
		answer.Write(here)
	}
	if err != nil {
		return out, err
	}
	return out, json.Unmarshal(answer.Bytes(), &out)
}
