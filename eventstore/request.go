//go:build linux && cgo

package eventstore

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

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
func readStatement(w http.ResponseWriter, req *http.Request) (Statement, error) {
	q := Statement{Client: ClientOf(req), Format: acceptedFormat(req)}
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, bodyMax))
	if err != nil {
		return q, fmt.Errorf("read the SQL: %w", err)
	}
	if kind, _, err := mime.ParseMediaType(req.Header.Get("Content-Type")); err == nil && kind == "application/json" {
		err = q.readJSON(body)
		if err != nil {
			return q, err
		}
	} else {
		q.SQL = string(body)
	}
	if err := q.readAddress(req.URL.Query()); err != nil {
		return q, err
	}
	if !slices.Contains(Formats(), q.Format) {
		return q, fmt.Errorf("unknown format %q: one of %v", q.Format, Formats())
	}
	return q, nil
}

// ClientOf returns the sender of a request, for Statement.Client and TailRequest.Client.
func ClientOf(req *http.Request) string {
	if req.RemoteAddr == "" || req.RemoteAddr == "@" {
		return "socket"
	}
	return req.RemoteAddr
}

// acceptedFormat returns the format that the Accept header names, or JSON by default.
func acceptedFormat(req *http.Request) Format {
	for _, accept := range strings.Split(req.Header.Get("Accept"), ",") {
		name, _, err := mime.ParseMediaType(accept)
		for f, contentType := range contentTypes {
			if kind, _, _ := strings.Cut(contentType, ";"); err == nil && kind == name {
				return f
			}
		}
	}
	return FormatJSON
}

// readJSON parses a body of type application/json.
func (q *Statement) readJSON(body []byte) error {
	var b requestBody
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&b); err != nil {
		return &QueryError{Message: "the body is not the JSON of a request: " + err.Error(), Hint: `send {"sql": "…", "params": {…}}, or the SQL alone as text/plain`}
	}
	if _, err := decoder.Token(); err != io.EOF {
		return &QueryError{Message: "the body has more than one JSON object"}
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
	if err := q.readAddress(settings); err != nil {
		return err
	}
	params, err := DecodeParams(b.Params)
	q.Params = params
	return err
}

// readAddress parses the settings in the URL of a request.
func (q *Statement) readAddress(settings url.Values) (err error) {
	for key, values := range settings {
		text := values[0]
		switch key {
		case "format":
			q.Format = Format(text)
		case "rows":
			if q.Limits.Rows, err = strconv.ParseInt(text, 10, 64); err != nil || q.Limits.Rows < 1 {
				err = fmt.Errorf("rows is %q, not a number of rows", text)
			}
		case "shown":
			if q.Shown, err = strconv.Atoi(text); err != nil || q.Shown < 1 || q.Shown > output.TableRowsMax {
				err = fmt.Errorf("shown is %q, not a number of rows up to %d", text, output.TableRowsMax)
			}
		case "time":
			if q.Limits.Time, err = time.ParseDuration(text); err != nil || q.Limits.Time <= 0 {
				err = fmt.Errorf("time is %q, not a duration such as 10s", text)
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
			var p Param
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
func checkLimits(asked, most Limits) error {
	switch {
	case most.Time > 0 && asked.Time > most.Time:
		return &QueryError{
			Message: fmt.Sprintf("the query asks for %v, and may take %v", asked.Time, most.Time),
			Hint:    "raise time below query in the engine's configuration",
		}
	case most.Rows > 0 && asked.Rows > most.Rows:
		return &QueryError{Message: fmt.Sprintf("the query asks for %d rows, and may have %d", asked.Rows, most.Rows)}
	}
	return nil
}

// paramTypes are the parameter types: the column types.
var paramTypes = []string{"bool", "int32", "int64", "float64", "decimal", "string", "timestamp", "timestamp_ns", "json", "bytes"}

// ParseParam parses a parameter. A name may end in a colon and a type, as in user:int64.
// Without a type the parameter is a string, which SQL casts to the type that it is compared
// with. The name of a positional parameter is a number.
func ParseParam(name, text string) (Param, error) {
	name, kind, _ := strings.Cut(name, ":")
	value, err := parseValue(kind, text)
	if err != nil {
		return Param{}, &QueryError{Message: fmt.Sprintf("parameter %s: %v", name, err), Hint: "types are " + strings.Join(paramTypes, ", ")}
	}
	if name == "" {
		return Param{}, &QueryError{Message: "a parameter has no name"}
	}
	return Param{Name: name, Value: value}, nil
}

// timeLayouts are the accepted timestamp formats. The default zone is UTC.
var timeLayouts = []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999", "2006-01-02"}

func parseTime(text string) (t time.Time, err error) {
	for _, layout := range timeLayouts {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC(), nil
		}
	}
	return t, fmt.Errorf("%q is not a time such as 2026-01-02T03:04:05Z", text)
}

func parseValue(kind, text string) (any, error) {
	switch kind {
	case "", "string", "decimal", "json":
		return text, nil
	case "bool":
		switch text {
		case "true":
			return true, nil
		case "false":
			return false, nil
		}
		return nil, fmt.Errorf("%q is not true or false", text)
	case "int32":
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("%q is not a whole number of 32 bits", text)
		}
		return n, nil
	case "int64":
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%q is not a whole number of 64 bits", text)
		}
		return n, nil
	case "float64":
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("%q is not a number", text)
		}
		return n, nil
	case "timestamp":
		return parseTime(text)
	case "timestamp_ns":
		t, err := parseTime(text)
		nanos := t.UnixNano()
		if err == nil && !time.Unix(0, nanos).Equal(t) {
			err = fmt.Errorf("%q is not between the years 1677 and 2262, as a timestamp_ns must be", text)
		}
		return TimestampNS(nanos), err
	case "bytes":
		b, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil, fmt.Errorf("%q is not base64", text)
		}
		return b, nil
	}
	return nil, fmt.Errorf("unknown type %q", kind)
}

// DecodeParams parses parameters from JSON: an array of values by position, or an object of
// values by name. A value is null, true, false, a number, a string, or an object with a type
// and a value as text.
func DecodeParams(text json.RawMessage) ([]Param, error) {
	text = bytes.TrimSpace(text)
	if len(text) == 0 || string(text) == "null" {
		return nil, nil
	}
	var places []json.RawMessage
	var names map[string]json.RawMessage
	if json.Unmarshal(text, &places) != nil && json.Unmarshal(text, &names) != nil {
		return nil, &QueryError{Message: "params are neither an array nor an object"}
	}
	var params []Param
	for i, value := range places {
		decoded, err := decodeValue(value)
		if err != nil {
			return nil, &QueryError{Message: fmt.Sprintf("parameter %d: %v", i+1, err), Hint: "types are " + strings.Join(paramTypes, ", ")}
		}
		params = append(params, Param{Value: decoded})
	}
	for name, value := range names {
		decoded, err := decodeValue(value)
		if err != nil {
			return nil, &QueryError{Message: fmt.Sprintf("parameter %s: %v", name, err), Hint: "types are " + strings.Join(paramTypes, ", ")}
		}
		params = append(params, Param{Name: name, Value: decoded})
	}
	return params, nil
}

// decodeValue parses the value of a parameter.
func decodeValue(text json.RawMessage) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	switch value := value.(type) {
	case nil, bool, string:
		return value, nil
	case json.Number:
		if strings.ContainsAny(value.String(), ".eE") {
			return parseValue("float64", value.String())
		}
		return parseValue("int64", value.String())
	case map[string]any:
		kind, typed := value["type"].(string)
		text, isText := value["value"].(string)
		if !typed || !isText || len(value) != 2 {
			return nil, errors.New(`an object must be {"type": "…", "value": "…"}, with the value as text`)
		}
		return parseValue(kind, text)
	}
	return nil, errors.New("a list is not a value")
}
