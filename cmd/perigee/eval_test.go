package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
)

// A typist types one line after another, and looks at what has happened before each and at the end.
type typist struct {
	lines []string
	look  func(typed int)
	typed int
}

func (p *typist) Read(b []byte) (int, error) {
	p.look(p.typed)
	if p.typed == len(p.lines) {
		return 0, io.EOF
	}
	p.typed++
	return copy(b, p.lines[p.typed-1]), nil
}

// TestEvalAnswersAtOnce: eval prints the result of a line before it reads the next one.
func TestEvalAnswersAtOnce(t *testing.T) {
	lines := []string{`{"n":1}` + "\n", `{"n":2}` + "\n"}
	var out, errs bytes.Buffer
	in := &typist{lines: lines, look: func(typed int) {
		if want := strings.Join(lines[:typed], ""); out.String() != want {
			t.Errorf("after %d lines the output is %q, want %q", typed, &out, want)
		}
	}}
	if code := perigee([]string{"eval", "-e", "return event"}, console{in, &out, &errs, os.LookupEnv, nil}); code != 0 {
		t.Errorf("exit code %d: %s", code, &errs)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("nobody reads") }

// TestEvalOutputFails: no more lines are read once the results of one cannot be written.
func TestEvalOutputFails(t *testing.T) {
	in := &typist{lines: []string{"{}\n", "{}\n"}, look: func(int) {}}
	var errs bytes.Buffer
	code := perigee([]string{"eval", "-e", "return event"}, console{in, brokenWriter{}, &errs, os.LookupEnv, nil})
	if code != exitFailure || in.typed != 1 || !strings.Contains(errs.String(), "perigee: error: write standard output: nobody reads") {
		t.Errorf("exit code %d after %d lines: %s", code, in.typed, &errs)
	}
}
