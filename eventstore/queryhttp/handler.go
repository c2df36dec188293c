//go:build linux && cgo

// Package queryhttp answers SQL over HTTP: it reads statements from requests, and writes results
// and errors as responses. Its functions are safe for concurrent use.
package queryhttp

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore"
	"github.com/perigeedb/perigee/eventstore/output"
	"github.com/perigeedb/perigee/internal/httpserver"
)

var contentTypes = map[eventstore.Format]string{
	eventstore.FormatTable:   "text/plain; charset=utf-8",
	eventstore.FormatJSON:    "application/json",
	eventstore.FormatNDJSON:  "application/x-ndjson",
	eventstore.FormatCSV:     "text/csv; charset=utf-8",
	eventstore.FormatArrow:   "application/vnd.apache.arrow.stream",
	eventstore.FormatParquet: "application/vnd.apache.parquet",
}

// truncatedTrailer is the HTTP trailer that reports whether the row limit truncated the
// result.
const truncatedTrailer = "Perigee-Truncated"

// Handler returns an http.Handler that answers SQL sent in the body of a POST request. A body
// of type application/json is an object with the SQL and settings; any other body is the SQL
// itself. The URL may hold settings too: the format (by default the one that the Accept
// header names, else json), the limits rows, time and memory, and parameters as param.NAME or
// param.NAME:TYPE. limits are the maximum limits that a request may ask for; its zero fields are
// unlimited.
//
// Handler answers an invalid query with status 400 and an event.Fault as JSON. An error after the first
// rows aborts the connection, so that clients never take a partial result for a complete one.
// The query is canceled when the client disconnects.
//
// Handler rejects requests from web pages in a local browser: it checks the Origin header,
// and the Host header on loopback addresses.
func Handler(s *eventstore.Store, limits eventstore.Limits) http.Handler {
	answer := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			writeError(w, http.StatusMethodNotAllowed, errors.New("send the SQL as the body of a POST"))
			return
		}
		q, err := readStatement(w, req)
		if err == nil {
			err = checkLimits(q.Limits, limits)
		}
		if err != nil {
			writeError(w, http.StatusBadRequest, err)
			return
		}
		writeResult(req.Context(), w, s, q)
	})
	return httpserver.Protect(answer)
}

func writeResult(ctx context.Context, w http.ResponseWriter, s *eventstore.Store, q eventstore.Statement) {
	rows, err := s.Execute(ctx, q)
	if err != nil {
		writeError(w, statusOf(err), err)
		return
	}
	defer rows.Close()
	w.Header().Set("Content-Type", contentTypes[q.Format])
	w.Header().Set("Trailer", truncatedTrailer)
	out := &counter{w: w}
	if err := output.Write(out, rows); err != nil {
		if out.n == 0 {
			w.Header().Del("Trailer")
			writeError(w, statusOf(err), err)
			return
		}
		panic(http.ErrAbortHandler)
	}
	truncated := "false"
	if rows.Truncated() {
		truncated = "true"
	}
	w.Header().Set(truncatedTrailer, truncated)
}

// A counter counts the bytes of a response, which tells whether it has begun.
type counter struct {
	w io.Writer
	n int
}

func (c *counter) Write(p []byte) (int, error) {
	c.n += len(p)
	return c.w.Write(p)
}

func statusOf(err error) int {
	if _, ok := errors.AsType[*event.Fault](err); ok {
		return http.StatusBadRequest
	}
	if errors.Is(err, eventstore.ErrClosed) {
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

func writeError(w http.ResponseWriter, status int, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(event.FaultOf(err)) // the client may be gone
}
