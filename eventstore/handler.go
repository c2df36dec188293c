//go:build linux && cgo

package eventstore

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/perigeedb/perigee/eventstore/output"
	"github.com/perigeedb/perigee/internal/httpserver"
)

var contentTypes = map[Format]string{
	FormatTable:   "text/plain; charset=utf-8",
	FormatJSON:    "application/json",
	FormatNDJSON:  "application/x-ndjson",
	FormatCSV:     "text/csv; charset=utf-8",
	FormatArrow:   "application/vnd.apache.arrow.stream",
	FormatParquet: "application/vnd.apache.parquet",
}

// truncatedTrailer is the trailer of an answer that says whether the query had more rows than
// its limit.
const truncatedTrailer = "Perigee-Truncated"

// An ErrorBody is what Handler answers with when it cannot answer the query.
type ErrorBody struct {
	Error  string `json:"error"`
	Hint   string `json:"hint,omitempty"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
}

// Handler answers SQL in the body of a POST. A body of type application/json is an object
// with the SQL and settings; any other is the SQL. The settings can stand in the address too:
// the format (json by default, or what the Accept header names), rows, time and memory as
// limits, and parameters as param.NAME or param.NAME:TYPE. most are the limits that a request
// may ask for; zero fields are no bound.
//
// A query that cannot be answered is status 400 with an ErrorBody. An error after the first
// rows breaks the connection off, so that half a result is never taken for one. The query ends
// when the client disconnects.
//
// A web page in a browser on this machine must not ask: it is refused by its origin, and
// by the name that it has for a loopback address.
func Handler(s *Store, most Limits) http.Handler {
	answer := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			writeError(w, http.StatusMethodNotAllowed, errors.New("send the SQL as the body of a POST"))
			return
		}
		q, err := readStatement(w, req)
		if err == nil {
			err = checkLimits(q.Limits, most)
		}
		if err != nil {
			writeError(w, http.StatusBadRequest, err)
			return
		}
		writeResult(req.Context(), w, s, q)
	})
	return httpserver.Protect(answer)
}

func writeResult(ctx context.Context, w http.ResponseWriter, s *Store, q Statement) {
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

// A counter counts the bytes of an answer, to know whether it has begun.
type counter struct {
	w io.Writer
	n int
}

func (c *counter) Write(p []byte) (int, error) {
	c.n += len(p)
	return c.w.Write(p)
}

func statusOf(err error) int {
	if _, ok := errors.AsType[*QueryError](err); ok {
		return http.StatusBadRequest
	}
	if errors.Is(err, ErrClosed) {
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

func writeError(w http.ResponseWriter, status int, err error) {
	body := ErrorBody{Error: err.Error()}
	if q, ok := errors.AsType[*QueryError](err); ok {
		body = ErrorBody{Error: q.Message, Hint: q.Hint, Line: q.Line, Column: q.Column}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(body) // the client may be gone
}
