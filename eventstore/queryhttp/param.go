//go:build linux && cgo

package queryhttp

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore"
)

// paramTypes are the parameter types: the column types.
var paramTypes = []string{"bool", "int32", "int64", "float64", "decimal", "string", "timestamp", "timestamp_ns", "json", "bytes"}

// ParseParam parses a parameter. A name may end in a colon and a type, as in user:int64.
// Without a type the parameter is a string, which SQL casts to the type that it is compared
// with. The name of a positional parameter is a number.
func ParseParam(name, text string) (eventstore.Param, error) {
	name, kind, _ := strings.Cut(name, ":")
	value, err := parseValue(kind, text)
	if err != nil {
		return eventstore.Param{}, &event.Fault{Message: fmt.Sprintf("parameter %s: %v", name, err), Hint: "types are " + strings.Join(paramTypes, ", ")}
	}
	if name == "" {
		return eventstore.Param{}, &event.Fault{Message: "a parameter has no name"}
	}
	return eventstore.Param{Name: name, Value: value}, nil
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
		return eventstore.TimestampNS(nanos), err
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
func DecodeParams(text json.RawMessage) ([]eventstore.Param, error) {
	text = bytes.TrimSpace(text)
	if len(text) == 0 || string(text) == "null" {
		return nil, nil
	}
	var places []json.RawMessage
	var names map[string]json.RawMessage
	if json.Unmarshal(text, &places) != nil && json.Unmarshal(text, &names) != nil {
		return nil, &event.Fault{Message: "params are neither an array nor an object"}
	}
	var params []eventstore.Param
	for i, value := range places {
		decoded, err := decodeValue(value)
		if err != nil {
			return nil, &event.Fault{Message: fmt.Sprintf("parameter %d: %v", i+1, err), Hint: "types are " + strings.Join(paramTypes, ", ")}
		}
		params = append(params, eventstore.Param{Value: decoded})
	}
	for name, value := range names {
		decoded, err := decodeValue(value)
		if err != nil {
			return nil, &event.Fault{Message: fmt.Sprintf("parameter %s: %v", name, err), Hint: "types are " + strings.Join(paramTypes, ", ")}
		}
		params = append(params, eventstore.Param{Name: name, Value: decoded})
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
