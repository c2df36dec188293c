package script

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/event"
)

// An echo returns what it was told to return, or the row.
type echo struct {
	code   Code
	closed *int // how often the code "count me" was closed; others are closed whenever nobody has them
}

func (e echo) Run(_ context.Context, in *event.Batch, res *event.Result) error {
	out := &res.Outputs[0]
	switch text := string(e.code.Text); {
	case text == "broken now":
		return errors.New("broken")
	case strings.HasPrefix(text, "dead "):
		res.Dead = append(res.Dead, event.DeadLetter{Error: text[len("dead "):], Traceback: "main"})
	case strings.HasPrefix(text, "give "):
		out.Data, out.Ends = []byte(text[len("give "):]), []uint32{uint32(len(text) - len("give "))}
	default:
		out.Data, out.Ends = in.Doc(0), []uint32{uint32(len(in.Doc(0)))}
	}
	return nil
}

func (e echo) String() string { return e.code.Name }

func (e echo) Close() error {
	if string(e.code.Text) == "count me" {
		*e.closed++
	}
	return errors.New("closing")
}

// echoes is a language that loads every code except "fault".
func echoes(closed *int) Language {
	return Language{Name: "echo", Load: func(_ context.Context, code Code, opts Options) (Script, error) {
		if !opts.ReturnsValue || len(opts.Sinks) != 1 {
			return nil, errors.New("not loaded for values")
		}
		if string(code.Text) == "fault here" {
			return nil, &Error{Script: code.Name, Line: 1, Message: "fault"}
		}
		return echo{code, closed}, nil
	}}
}

func TestHandlerFindsCode(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "with space.lua")
	for name, text := range map[string]string{"with space.lua": "give 1", "lib.lua": "beside"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for uriOrCode, want := range map[string]string{
		"return event":              "code: return event",
		"a\nb":                      "code: a\nb",
		"see http://x y":            "code: see http://x y",
		path:                        path + ": give 1",
		"file://" + path:            path + ": give 1",
		"http://host/a.lua":         "unsupported scheme http://",
		"s3://bucket/a.lua":         "unsupported scheme s3://",
		folder + "/none":            "no such file",
		"file://" + folder + "/a b": "no such file",
		"nothing":                   "no such file",
	} {
		code, err := codeOf(uriOrCode)
		if err != nil {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, want %q", uriOrCode, err, want)
			}
			continue
		}
		if got := code.Name + ": " + string(code.Text); got != want {
			t.Errorf("%q is %q, want %q", uriOrCode, got, want)
		}
		if (code.Files != nil) != strings.HasPrefix(want, path) {
			t.Errorf("%q can require files: %v", uriOrCode, code.Files != nil)
		}
		if code.Files != nil {
			if text, err := code.Files("lib.lua"); string(text) != "beside" || err != nil {
				t.Errorf("%q requires %q, %v", uriOrCode, text, err)
			}
		}
	}
}

func TestHandler(t *testing.T) {
	closed := 0
	h := NewHandler(echoes(&closed), Options{})
	if _, err := h.Value(nil); err == nil || !strings.Contains(err.Error(), "call Load first") || h.String() != "echo" {
		t.Errorf("%s without code: %v", h, err)
	}
	if err := h.(interface{ Close() error }).Close(); err != nil || closed != 0 {
		t.Errorf("closing without code: %v", err)
	}
	for _, code := range []string{"fault here", "file:///none"} {
		if loaded, err := h.Load(code); err == nil || loaded != nil {
			t.Errorf("%s: loaded %v, %v", code, loaded, err)
		}
	}
	for code, want := range map[string]any{
		"the row":                           map[string]any{"a": 1.0},
		"give 1":                            1.0,
		"give 1.5":                          1.5,
		"give 9007199254740993":             int64(9007199254740993),
		"give 9007199254740992":             9007199254740992.0,
		"give 1e400":                        "an infinity",
		"give [1,{\"a\":9007199254740993}]": []any{1.0, map[string]any{"a": int64(9007199254740993)}},
		"give null":                         nil,
		"give \"x\"":                        "x",
		"give oops":                         "decode value: invalid character",
		"broken now":                        "broken",
		"dead a:b.lua:7: no: really":        &Error{Script: "a:b.lua", Line: 7, Message: "no: really", Traceback: "main"},
		"dead no place":                     "no place",
		"dead a.lua:x: no":                  "a.lua:x: no",
		"dead 7: no":                        "7: no",
	} {
		loaded, err := h.Load(code)
		if err != nil {
			if text, ok := want.(string); !ok || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v", code, err)
			}
			continue
		}
		got, err := loaded.Value(map[string]any{"a": 1})
		if err != nil {
			if fault, ok := want.(*Error); ok {
				if diff := cmp.Diff(fault, err); diff != "" {
					t.Errorf("%s: %s", code, diff)
				}
			} else if text, ok := want.(string); !ok || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v, want %v", code, err, want)
			}
			continue
		}
		if want == "an infinity" {
			want = got
			if fmt.Sprint(got) != "+Inf" {
				t.Errorf("%s is %v", code, got)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", code, diff)
		}
	}
	loaded, err := h.Load("count me")
	if err != nil {
		t.Fatal(err)
	}
	if v, err := loaded.Value(nil); err != nil || !cmp.Equal(v, map[string]any{}) {
		t.Errorf("no row is %v, %v", v, err)
	}
	if _, err := loaded.Value(map[string]any{"f": func() {}}); err == nil || !strings.Contains(err.Error(), "encode row") {
		t.Errorf("a row that is no JSON: %v", err)
	}
	if err := loaded.(interface{ Close() error }).Close(); err == nil || err.Error() != "closing" || closed != 1 {
		t.Errorf("closed %d times, %v", closed, err)
	}
}

// A closer is a script that says when it is closed.
type closer struct {
	Script
	closed chan struct{}
}

func (c closer) Close() error {
	close(c.closed)
	return nil
}

// TestHandlerThatNobodyHas: the collector closes the script of a handler that nobody closed.
func TestHandlerThatNobodyHas(t *testing.T) {
	closed := make(chan struct{})
	h := NewHandler(Language{Load: func(context.Context, Code, Options) (Script, error) { return closer{echo{}, closed}, nil }}, Options{})
	if _, err := h.Load("the row"); err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		runtime.GC()
		select {
		case <-closed:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
	t.Error("the script stays open")
}

// A collected is a script during whose runs the collector works. Its run fails if the script is
// closed meanwhile.
type collected struct{ closer }

func (c collected) Run(ctx context.Context, in *event.Batch, res *event.Result) error {
	for range 3 {
		collect()
	}
	select {
	case <-c.closed:
		return errors.New("closed while it runs")
	default:
		return c.closer.Run(ctx, in, res)
	}
}

// collect frees what nobody refers to, and waits until a cleanup of it has run.
//
//go:noinline
func collect() {
	cleaned := make(chan struct{})
	runtime.AddCleanup(new([8]*int), func(done chan struct{}) { close(done) }, cleaned)
	runtime.GC()
	<-cleaned
}

// TestHandlerInUseStaysOpen calls Value on a handler that nobody refers to after the call.
func TestHandlerInUseStaysOpen(t *testing.T) {
	closed := make(chan struct{})
	h := NewHandler(Language{Load: func(context.Context, Code, Options) (Script, error) {
		return collected{closer{echo{}, closed}}, nil
	}}, Options{})
	loaded, err := h.Load("the row")
	if err != nil {
		t.Fatal(err)
	}
	if v, err := loaded.Value(map[string]any{"a": 1}); err != nil || !cmp.Equal(v, map[string]any{"a": 1.0}) {
		t.Errorf("the value is %v, %v", v, err)
	}
}
