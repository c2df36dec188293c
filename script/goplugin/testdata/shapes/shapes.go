// Package main is a plugin for tests: functions that do what the event asks for.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"
)

// Shapes returns what row["what"] names.
func Shapes(row map[string]any) (any, error) {
	switch row["what"] {
	case "event":
		return row, nil
	case "several":
		return []map[string]any{row, nil, {"html": "<&>"}}, nil
	case "none":
		return []map[string]any{}, nil
	case "typed nil":
		return map[string]any(nil), nil
	case "drop":
		return nil, nil
	case "number":
		return 5, nil
	case "list":
		return []any{row}, nil
	case "error":
		return row, errors.New("not today")
	case "NaN":
		return []map[string]any{{"good": 1}, {"bad": math.NaN()}}, nil
	case "deep":
		deep := map[string]any{}
		for range 600 {
			deep = map[string]any{"d": deep}
		}
		return []map[string]any{{"good": 1}, deep}, nil
	case "marshal":
		return map[string]any{"x": rude{}}, nil
	}
	return outer(row)
}

func outer(row map[string]any) (any, error) { return inner(row["list"].([]any)), nil }

//go:noinline
func inner(list []any) any { return list[3] }

type rude struct{}

func (rude) MarshalJSON() ([]byte, error) { panic("rude") }

// Kinds names the Go type of each value.
func Kinds(row map[string]any) (any, error) {
	kinds := map[string]any{}
	for key, value := range row {
		kinds[key] = fmt.Sprintf("%T %v", value, value)
	}
	return kinds, nil
}

// Copies repeats the text of the event.
func Copies(row map[string]any) (any, error) {
	n := row["n"].(int64)
	return map[string]any{"text": string(bytes.Repeat([]byte("x"), int(n)))}, nil
}

// Spoil changes all it can reach, and fails.
func Spoil(row map[string]any) (any, error) {
	delete(row, "gone")
	row["n"] = 0
	row["object"].(map[string]any)["in"] = 0
	row["list"].([]any)[0].(map[string]any)["in"] = 0
	return nil, errors.New("spoiled")
}

// Value returns a value of the kind that row["what"] names.
func Value(row map[string]any) (any, error) {
	switch row["what"] {
	case "row":
		return row, nil
	case "text":
		return "<text>", nil
	case "bytes":
		return []byte("{}"), nil
	case "raw":
		return json.RawMessage("[1.0]"), nil
	case "time":
		return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), nil
	case "func":
		return func() {}, nil
	case "error":
		return nil, errors.New("no value")
	}
	return nil, nil
}

// Crash fails with a panic.
func Crash(map[string]any) (any, error) { panic("crash") }

// Same emits each document as it is.
func Same(docs [][]byte, emit func(int, []byte), fail func(int, error)) {
	for i, doc := range docs {
		emit(i, doc)
	}
}

type request struct {
	What string
	N    float64
}

// Batch does with each event what it asks for.
func Batch(docs [][]byte, emit func(int, []byte), fail func(int, error)) {
	for i, doc := range docs {
		var r request
		if err := json.Unmarshal(doc, &r); err != nil {
			fail(i, err)
			continue
		}
		switch r.What {
		case "event":
			emit(i, doc)
		case "in place":
			emit(i, append(doc[:0], `{"short":1}`...))
		case "several":
			emit(i, doc)
			emit(i, []byte(`{"more":true}`))
		case "error":
			fail(i, errors.New("not today"))
			fail(i, errors.New("again"))
		case "no reason":
			fail(i, nil)
		case "both":
			emit(i, doc)
			fail(i, errors.New("after all"))
			emit(i, doc)
		case "no document":
			emit(i, []byte(`{"good":1}`))
			emit(i, []byte(`{"bad"`))
		case "panic":
			emit(i, doc)
			panic("at the disco")
		case "beyond":
			emit(len(docs), doc)
		case "before":
			fail(-1, errors.New("before"))
		case "caught":
			func() {
				defer func() { _ = recover() }()
				emit(len(docs), doc)
			}()
		case "text":
			emit(i, fmt.Appendf(nil, `{"text":"%s"}`, bytes.Repeat([]byte("x"), int(r.N))))
		}
	}
}

// Routed returns rows by the names of their sinks, which are in the event.
func Routed(row map[string]any) (any, error) {
	routed := map[string][]map[string]any{}
	for _, name := range row["to"].([]any) {
		routed[name.(string)] = append(routed[name.(string)], row)
	}
	return routed, nil
}

// BatchRouted emits each document for the sinks that it names, and once more for
// nobody in particular when it wants that.
func BatchRouted(docs [][]byte, emit func(int, []byte, ...string), fail func(int, error)) {
	for i, doc := range docs {
		var r struct {
			To   []string
			Also bool
		}
		if err := json.Unmarshal(doc, &r); err != nil {
			fail(i, err)
			continue
		}
		emit(i, doc, r.To...)
		if r.Also {
			emit(i, []byte(`{"also":1}`))
		}
	}
}

// Backwards emits the last event first.
func Backwards(docs [][]byte, emit func(int, []byte), fail func(int, error)) {
	for i := len(docs) - 1; i >= 0; i-- {
		emit(i, docs[i])
	}
}

var late func(int, []byte)

// Late emits what a call before it was given.
func Late(docs [][]byte, emit func(int, []byte), fail func(int, error)) {
	if late != nil {
		late(0, docs[0])
	}
	late = emit
}

// Other is no function for events.
func Other(int) string { return "" }

// Variable is no function.
var Variable = 1

func main() {}
