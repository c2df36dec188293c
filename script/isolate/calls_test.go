//go:build linux

package isolate

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
)

// faultyLanguage is a language whose scripts fail whole batches, as engines do when they run out of
// memory.
func faultyLanguage() script.Language {
	return script.Language{Name: "faulty", Load: func(context.Context, script.Code, script.Options) (script.Script, error) {
		return faulty{}, nil
	}}
}

type faulty struct{}

func (faulty) String() string { return "faulty" }
func (faulty) Close() error   { return nil }

func (faulty) Run(_ context.Context, in *event.Batch, res *event.Result) error {
	res.Reset()
	out := &res.Outputs[0]
	for i := range in.Len() {
		if strings.Contains(string(in.Doc(i)), "bad") {
			res.Reset()
			return errors.New("the engine has no memory")
		}
		out.Data = append(out.Data, in.Doc(i)...)
		out.Ends, out.From = append(out.Ends, uint32(len(out.Data))), append(out.From, uint32(i))
	}
	res.Ran = in.Len()
	return nil
}

// TestFailedRun makes the engine of a worker fail at one event: the event becomes a dead letter,
// and all others succeed.
func TestFailedRun(t *testing.T) {
	s := load(t, faultyLanguage(), script.Code{Name: "faulty"}, script.Options{})
	docs := make([]string, 20)
	for i := range docs {
		docs[i] = fmt.Sprintf(`{"n":%d}`, i)
	}
	docs[7] = `{"bad":true}`
	for range 2 {
		res := runDocs(t, s, docs...)
		if len(res.Dead) != 1 || res.Dead[0].Position != firstPosition+7 || !strings.Contains(res.Dead[0].Error, "no memory") {
			t.Fatalf("dead letters are %v, want that of event 7", res.Dead)
		}
		if got := res.Outputs[0].Len(); got != 19 {
			t.Errorf("%d events came out, want 19", got)
		}
	}
}

// newCallee returns a script whose parent answers calls: for a file lib/a.lua and two functions.
func newCallee() *isolatedScript {
	echo := func(_ context.Context, args []any) ([]any, error) { return args, nil }
	module := script.Module{Name: "host", Functions: map[string]script.Func{"wait": echo}, Pure: map[string]script.Func{"echo": echo}}
	opts := script.Options{Limits: script.Limits{}.WithDefaults(), Modules: []script.Module{module}}
	return &isolatedScript{opts: opts, modules: map[string]script.Module{"host": module}}
}

// encodeCall encodes a worker's call.
func encodeCall(kind uint64, texts ...string) []byte {
	size := 16
	for _, text := range texts {
		size += 16 + len(text)
	}
	e := &encoder{buf: make([]byte, 0, size)}
	e.uint(kind)
	for _, text := range texts {
		e.text(text)
	}
	return e.buf
}

// TestForgedCalls makes calls as a worker could whose script has taken control: none may read a
// file that a script cannot require, or any file after loading, and none may cost much memory.
func TestForgedCalls(t *testing.T) {
	var read []string
	files := func(path string) ([]byte, error) {
		read = append(read, path)
		if path == "lib/a.lua" {
			return []byte("text"), nil
		}
		return nil, fs.ErrNotExist
	}
	values := func(value byte, n int) []byte { // a list of n empty lists or maps
		text := binary.AppendUvarint(encodeCall(callFunction, "host", "echo"), uint64(n))
		return append(text, strings.Repeat(string([]byte{value, 0}), n)...)
	}
	long := strings.Repeat("a", 7<<20)
	for _, test := range []struct {
		name             string
		text             []byte
		loading, running bool // the parent answers it
	}{
		{"a file", encodeCall(callFile, "lib/a.lua"), true, false},
		{"a missing file", encodeCall(callFile, "lib/b.lua"), true, false},
		{"a configuration", encodeCall(callFile, "pipeline.yaml"), false, false},
		{"no name", encodeCall(callFile, ""), false, false},
		{"an absolute path", encodeCall(callFile, "/etc/passwd"), false, false},
		{"a path out of the folder", encodeCall(callFile, "../a.lua"), false, false},
		{"a path in a circle", encodeCall(callFile, "lib/../lib/a.lua"), false, false},
		{"a hidden file", encodeCall(callFile, ".secret.lua"), false, false},
		{"a long name", encodeCall(callFile, long+".lua"), false, false},
		{"a long path", encodeCall(callFile, strings.Repeat("a/", 1<<20)+"a.lua"), false, false},
		{"more than a name", append(encodeCall(callFile, "lib/a.lua"), 0), false, false},
		{"its memory", encodeCall(callMapped), true, false},
		{"a function", append(encodeCall(callFunction, "host", "echo"), 0), true, true},
		{"a function that waits", append(encodeCall(callFunction, "host", "wait"), 0), true, true},
		{"an unknown function", append(encodeCall(callFunction, "host", "exit"), 0), false, false},
		{"a function of a long name", append(encodeCall(callFunction, "host", long), 0), false, false},
		{"many empty lists", values(valueList, 4<<20), false, false},
		{"many empty maps", values(valueMap, 4<<20), false, false},
		{"an unknown call", encodeCall(99), false, false},
		{"nothing", nil, false, false},
	} {
		s := newCallee()
		for when, serve := range map[string]server{"while it loads": s.serveLoading(t.Context(), os.Getpid(), files), "while it runs": s.serve(t.Context())} {
			want := map[string]bool{"while it loads": test.loading, "while it runs": test.running}[when]
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			reply, _, err := serve(test.text)
			runtime.ReadMemStats(&after)
			if (err == nil) != want {
				t.Errorf("%s %s: error %v, want an answer: %v", test.name, when, err, want)
			}
			if err != nil && !errors.Is(err, errFrame) {
				t.Errorf("%s %s: error %v, want that of an invalid frame", test.name, when, err)
			}
			if taken := after.TotalAlloc - before.TotalAlloc; taken > 80<<20 || len(reply) > 1<<20 {
				t.Errorf("%s %s: took %d bytes, and answered %d", test.name, when, taken, len(reply))
			}
		}
	}
	for _, path := range read {
		if path != "lib/a.lua" && path != "lib/b.lua" {
			t.Errorf("%.100q was read", path)
		}
	}
}

// TestEndlessFiles requests files without end: the parent reads a limited number.
func TestEndlessFiles(t *testing.T) {
	for name, text := range map[string][]byte{"small": []byte("x"), "missing": nil, "large": make([]byte, 1<<20)} {
		reads, bytes := 0, 0
		serve := newCallee().serveLoading(t.Context(), os.Getpid(), func(string) ([]byte, error) {
			reads++
			bytes += len(text)
			if text == nil {
				return nil, fs.ErrNotExist
			}
			return text, nil
		})
		for i := range 3 * filesMax {
			if _, _, err := serve(encodeCall(callFile, fmt.Sprintf("f%d.lua", i))); err != nil {
				t.Fatal(err)
			}
		}
		if reads > filesMax || bytes > script.RequiredBytesMax+1<<20 {
			t.Errorf("%s files: %d of %d bytes were read, want at most %d of %d", name, reads, bytes, filesMax, script.RequiredBytesMax)
		}
	}
}

// FuzzCall answers arbitrary calls of a worker, while it loads and while it runs.
func FuzzCall(f *testing.F) {
	f.Add(encodeCall(callFile, "lib/a.lua"))
	f.Add(encodeCall(callFile, "../a.lua"))
	f.Add(encodeCall(callMapped))
	f.Add(append(encodeCall(callFunction, "host", "echo"), 2, valueTrue, valueMap, 1, 1, 'k', valueList, 0))
	f.Fuzz(func(t *testing.T, text []byte) {
		s := newCallee()
		loading := s.serveLoading(t.Context(), os.Getpid(), func(path string) ([]byte, error) {
			if !script.IsModulePath(path) {
				t.Errorf("%q was read", path)
			}
			return []byte("text"), nil
		})
		for _, serve := range []server{loading, s.serve(t.Context())} {
			if reply, _, err := serve(text); err != nil && !errors.Is(err, errFrame) || err == nil && len(reply) > 2*len(text)+4<<10 {
				t.Errorf("error %v, an answer of %d bytes", err, len(reply))
			}
		}
	})
}

// FuzzLoaded reads arbitrary answers to a request to load code.
func FuzzLoaded(f *testing.F) {
	for _, fault := range []error{errors.New("no"), &script.Error{Script: "a.lua", Line: 3, Message: "no"}, event.WithHint(errors.New("no"), "try")} {
		e := &encoder{buf: make([]byte, 0, 1000)}
		writeFailure(e, fault)
		f.Add(uint64(failed), e.buf)
	}
	e := &encoder{buf: make([]byte, 0, 1000)}
	e.text("a.lua@1")
	e.int(1)
	e.text("no Landlock")
	(&effects{lines: []logLine{{text: "line"}}}).encode(e)
	f.Add(uint64(loaded), e.buf)
	f.Fuzz(func(t *testing.T, kind uint64, text []byte) {
		name, missing, done, err := readLoaded(&message{kind: messageKind(kind)}, text)
		if err == nil && (kind != uint64(loaded) || len(name) > nameMax || len(missing) > missingMax || len(done.lines) > linesMax) {
			t.Errorf("answer %d: name of %d bytes, %d missing, %d lines", kind, len(name), len(missing), len(done.lines))
		}
		if err != nil && len(err.Error()) > 4*textMax {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
		newCallee().apply(&effects{stats: done.stats, refused: done.refused})
	})
}
