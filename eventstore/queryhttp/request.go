//go:build linux && cgo

package queryhttp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore"
	"github.com/perigeedb/perigee/eventstore/output"
	"github.com/perigeedb/perigee/internal/sqltext"
)

// bodyMax is the maximum size of a request, in bytes: up to 256 KiB of SQL, and the parameter
// values.
const bodyMax = 4 << 20

// A requestBody is a JSON request body. The URL may hold the same keys.
type requestBody struct {
	SQL    string          `json:"sql"`
	Params json.RawMessage `json:"params"` // an array, or an object by name
	Format string          `json:"format"`
	Rows   int64           `json:"rows"`
	Time   string          `json:"time"`   // such as 10s
	Memory string          `json:"memory"` // such as 64MiB
}

// readStatement parses a request into a statement.
func readStatement(w http.ResponseWriter, req *http.Request) (eventstore.Statement, error) {
	q := eventstore.Statement{Client: ClientOf(req), Format: acceptedFormat(req)}
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, bodyMax))
	if err != nil {
		return q, fmt.Errorf("read the SQL: %w", err)
	}
	if kind, _, err := mime.ParseMediaType(req.Header.Get("Content-Type")); err == nil && kind == "application/json" {
		err = readJSON(&q, body)
		if err != nil {
			return q, err
		}
	} else {
		q.SQL = string(body)
	}
	if err := readAddress(&q, req.URL.Query()); err != nil {
		return q, err
	}
	if !slices.Contains(eventstore.Formats(), q.Format) {
		return q, fmt.Errorf("unknown format %q: one of %v", q.Format, eventstore.Formats())
	}
	return q, nil
}

// ClientOf returns the sender of a request, for the field Client of statements and tails.
func ClientOf(req *http.Request) string {
	if req.RemoteAddr == "" || req.RemoteAddr == "@" {
		return "socket"
	}
	return req.RemoteAddr
}

// acceptedFormat returns the format that the Accept header names, or JSON by default.
func acceptedFormat(req *http.Request) eventstore.Format {
	for _, accept := range strings.Split(req.Header.Get("Accept"), ",") {
		name, _, err := mime.ParseMediaType(accept)
		for f, contentType := range contentTypes {
			if kind, _, _ := strings.Cut(contentType, ";"); err == nil && kind == name {
				return f
			}
		}
	}
	return eventstore.FormatJSON
}

// readJSON parses a body of type application/json.
func readJSON(q *eventstore.Statement, body []byte) error {
	var b requestBody
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&b); err != nil {
		return &event.Fault{Message: "the body is not the JSON of a request: " + err.Error(), Hint: `send {"sql": "…", "params": {…}}, or the SQL alone as text/plain`}
	}
	if _, err := decoder.Token(); err != io.EOF {
		return &event.Fault{Message: "the body has more than one JSON object"}
	}
	q.SQL = b.SQL
	settings := url.Values{}
	for key, value := range map[string]string{"format": b.Format, "time": b.Time, "memory": b.Memory} {
		if value != "" {
			settings.Set(key, value)
		}
	}
	if b.Rows != 0 {
		settings.Set("rows", strconv.FormatInt(b.Rows, 10))
	}
	if err := readAddress(q, settings); err != nil {
		return err
	}
	params, err := DecodeParams(b.Params)
	q.Params = params
	return err
}

// readAddress parses the settings in the URL of a request.
func readAddress(q *eventstore.Statement, settings url.Values) (err error) {
	for key, values := range settings {
		text := values[0]
		switch key {
		case "format":
			q.Format = eventstore.Format(text)
		case "rows":
			if q.Limits.Rows, err = strconv.ParseInt(text, 10, 64); err != nil || q.Limits.Rows < 1 {
				err = fmt.Errorf("invalid rows %q: use a whole number above 0", text)
			}
		case "shown":
			if q.Shown, err = strconv.Atoi(text); err != nil || q.Shown < 1 || q.Shown > output.TableRowsMax {
				err = fmt.Errorf("invalid shown %q: use a whole number from 1 to %d", text, output.TableRowsMax)
			}
		case "time":
			if q.Limits.Time, err = time.ParseDuration(text); err != nil || q.Limits.Time <= 0 {
				err = fmt.Errorf("invalid time %q: use a duration such as 10s", text)
			}
		case "memory":
			if q.Limits.Memory, err = sqltext.ParseSize(text); err != nil {
				err = fmt.Errorf("memory: %w", err)
			}
		default:
			name, ok := strings.CutPrefix(key, "param.")
			if !ok {
				return fmt.Errorf("unknown setting %q: format, rows, time, memory and param.NAME are known", key)
			}
			var p eventstore.Param
			if p, err = ParseParam(name, text); err == nil {
				q.Params = append(q.Params, p)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkLimits rejects limits above the allowed maximum.
func checkLimits(asked, limits eventstore.Limits) error {
	switch {
	case limits.Time > 0 && asked.Time > limits.Time:
		return &event.Fault{
			Message: fmt.Sprintf("the query asks for %v; the limit is %v", asked.Time, limits.Time),
			Hint:    "raise time below query in the engine's configuration",
		}
	case limits.Rows > 0 && asked.Rows > limits.Rows:
		return &event.Fault{Message: fmt.Sprintf("the query asks for %d rows; the limit is %d", asked.Rows, limits.Rows)}
	}
	return nil
}
