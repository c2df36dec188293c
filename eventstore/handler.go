//go:build linux && cgo

package eventstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/perigeedb/perigee/internal/httpserver"
)

const sqlMax = 256 << 10 // bytes of a statement

var contentTypes = map[Format]string{
	FormatTable:  "text/plain; charset=utf-8",
	FormatJSON:   "application/json",
	FormatNDJSON: "application/x-ndjson",
	FormatCSV:    "text/csv; charset=utf-8",
}

// An ErrorBody is what Handler answers with when it cannot answer the query.
type ErrorBody struct {
	Error  string `json:"error"`
	Hint   string `json:"hint,omitempty"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
}

// Handler answers SQL in the body of a POST. ?format= or the Accept header
// choose the format, JSON by default; ?limit= bounds the rows. A query that
// cannot be answered is status 400 with an ErrorBody. An error after the first
// rows breaks the connection off, so that half a result is never taken for one.
//
// A web page in a browser on this machine must not ask: it is refused by its origin, and
// by the name that it has for a loopback address.
func Handler(s *Store) http.Handler {
	answer := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			writeError(w, http.StatusMethodNotAllowed, errors.New("send the SQL as the body of a POST"))
			return
		}
		format, limit, err := parseRequest(req)
		if err != nil {
			writeError(w, http.StatusBadRequest, err)
			return
		}
		sql, err := io.ReadAll(http.MaxBytesReader(w, req.Body, sqlMax+1))
		if err != nil {
			writeError(w, http.StatusBadRequest, fmt.Errorf("read the SQL: %w", err))
			return
		}
		writeResult(req.Context(), w, s, string(sql), format, limit)
	})
	return httpserver.CheckHost(http.NewCrossOriginProtection().Handler(answer))
}

func writeResult(ctx context.Context, w http.ResponseWriter, s *Store, sql string, format Format, limit int) {
	rows, err := s.Query(ctx, sql)
	if err != nil {
		writeError(w, statusOf(err), err)
		return
	}
	defer rows.Close()
	w.Header().Set("Content-Type", contentTypes[format])
	out := &counter{w: w}
	if err := Encode(out, rows, format, limit); err != nil {
		if out.n == 0 {
			writeError(w, statusOf(err), err)
			return
		}
		panic(http.ErrAbortHandler)
	}
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

func parseRequest(req *http.Request) (Format, int, error) {
	format, limit := FormatJSON, 0
	for _, accept := range strings.Split(req.Header.Get("Accept"), ",") {
		if name, _, err := mime.ParseMediaType(accept); err == nil {
			for f, contentType := range contentTypes {
				if strings.HasPrefix(contentType, name) {
					format = f
				}
			}
		}
	}
	if name := req.URL.Query().Get("format"); name != "" {
		if format = Format(name); !slices.Contains(Formats(), format) {
			return "", 0, fmt.Errorf("unknown format %q: one of %v", name, Formats())
		}
	}
	if text := req.URL.Query().Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return "", 0, fmt.Errorf("limit is %q, not a number of rows", text)
		}
		limit = n
	}
	return format, limit, nil
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
