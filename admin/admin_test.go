package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/datafolder"
	"github.com/perigeedb/perigee/pipeline"
	"github.com/perigeedb/perigee/pipeline/deadletter"
)

// expectError fails the test unless err contains text and has a hint that contains hint.
func expectError(t *testing.T, what string, err error, text, hint string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) || !strings.Contains(event.HintOf(err), hint) {
		t.Errorf("%s: error %v, hint %q; want %q, hint %q", what, err, event.HintOf(err), text, hint)
	}
}

// open opens a folder without an engine, until the end of the test.
func open(t *testing.T, data string, pipelines ...Pipeline) *Admin {
	t.Helper()
	a, err := Open(data, pipelines)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

func TestOpen(t *testing.T) {
	unused := t.TempDir()
	_, err := Open(unused, nil)
	expectError(t, "a folder without an engine", err, "no engine has run in data folder "+unused, "--data")
	if datafolder.Used(unused) {
		t.Error("the folder that was refused is locked")
	}

	// A configuration is enough: its engine may not have run yet.
	first, err := Open(unused, []Pipeline{})
	if err != nil {
		t.Fatal(err)
	}
	if first.Remote() || first.Data() != unused {
		t.Errorf("remote %v, folder %s", first.Remote(), first.Data())
	}
	second, err := Open(unused, []Pipeline{})
	expectError(t, "a folder that another process owns", err, fmt.Sprintf("in use by process %d", os.Getpid()), "only one process")
	if second != nil {
		t.Error("an Admin of a folder that another process owns")
	}
	for range 2 {
		if err := first.Close(); err != nil {
			t.Error(err)
		}
	}

	// Now an engine has run there.
	open(t, unused)
}

// TestOpenWhileEngineStarts opens a folder that an engine has locked but does not serve yet.
func TestOpenWhileEngineStarts(t *testing.T) {
	data := t.TempDir()
	lock, err := datafolder.Lock(data)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	listening := make(chan net.Listener)
	time.AfterFunc(100*time.Millisecond, func() {
		l, err := net.Listen("unix", filepath.Join(data, datafolder.SocketName))
		if err != nil {
			t.Error(err)
		}
		listening <- l
	})
	if a, err := Open(data, nil); err != nil {
		t.Error(err)
	} else if a.Close(); !a.Remote() {
		t.Error("the engine does not perform the operations")
	}
	if l := <-listening; l != nil {
		l.Close()
	}
}

// TestOpenWithDeadLetters: the file of dead letters is opened only if there is one, and
// damage to it does not leave the folder locked.
func TestOpenWithDeadLetters(t *testing.T) {
	data := t.TempDir()
	a, err := Open(data, []Pipeline{})
	if err != nil {
		t.Fatal(err)
	}
	n, err := a.CountDeadLetters(t.Context(), Filter{})
	if n != 0 || err != nil {
		t.Errorf("%d dead letters, %v", n, err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(data, deadletter.FileName)); err == nil {
		t.Error("a command has made the file of dead letters")
	}
	storeLetters(t, data, "lines", false, "no", "no", "never")
	again := open(t, data)
	if n, err := again.CountDeadLetters(t.Context(), Filter{}); n != 3 || err != nil {
		t.Errorf("%d dead letters, %v", n, err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	storeLetters(t, data, "lines", false, "the file can be opened again")

	if err := os.WriteFile(filepath.Join(data, deadletter.FileName), []byte(strings.Repeat("damaged ", 4096)), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Open(data, nil)
	expectError(t, "damaged dead letters", err, "open the dead letters", "")
	lock, err := datafolder.Lock(data)
	if err != nil {
		t.Fatal(err)
	}
	lock.Close()
}

// storeLetters stores a dead letter for each error, at positions from 0, and commits them.
func storeLetters(t *testing.T, data, pipeline string, uncommitted bool, errs ...string) {
	t.Helper()
	store, err := deadletter.Open(data)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	var dead []event.DeadLetter
	for i, text := range errs {
		dead = append(dead, event.DeadLetter{Position: uint64(i), Stage: "script", Error: text, Original: fmt.Append(nil, `{"n":`, i, "}")})
	}
	r := event.Range{Count: uint64(len(errs))}
	err = store.Replace(pipeline, "a", r, dead)
	if err == nil && !uncommitted {
		err = store.MarkCommitted(pipeline, "a", r)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// texts returns the errors of the dead letters that f selects.
func texts(t *testing.T, a *Admin, f Filter) (all []string) {
	t.Helper()
	for l, err := range a.DeadLetters(t.Context(), f) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, l.Error)
	}
	return all
}

func TestDeadLettersOfFolder(t *testing.T) {
	data := t.TempDir()
	storeLetters(t, data, "lines", false, "one", "two", "three")
	storeLetters(t, data, "removed", false, "four")
	storeLetters(t, data, "running", true, "five")
	a := open(t, data, Pipeline{Name: "lines"}, Pipeline{Name: "empty"})
	var ids []string
	for l, err := range a.DeadLetters(t.Context(), Filter{Pipeline: "lines"}) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, l.ID)
	}
	for _, test := range []struct {
		name   string
		filter Filter
		want   []string
	}{
		{"all", Filter{}, []string{"one", "two", "three", "four", "five"}},
		{"of a pipeline", Filter{Pipeline: "lines"}, []string{"one", "two", "three"}},
		{"of a pipeline that is not configured any more", Filter{Pipeline: "removed"}, []string{"four"}},
		{"of a pipeline that has none", Filter{Pipeline: "empty"}, nil},
		{"by text", Filter{Text: "TWO"}, []string{"two"}},
		{"by stage", Filter{Stage: "sink"}, nil},
		{"by sink", Filter{Sink: "table"}, nil},
		{"since", Filter{Since: time.Now().Add(time.Hour)}, nil},
		{"before", Filter{Before: time.Now().Add(-time.Hour)}, nil},
		{"by ID", Filter{IDs: []string{ids[0], ids[2][:6]}}, []string{"one", "three"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, texts(t, a, test.filter)); diff != "" {
				t.Error(diff)
			}
			if n, err := a.CountDeadLetters(t.Context(), test.filter); n != len(test.want) || err != nil {
				t.Errorf("%d are counted, %v", n, err)
			}
		})
	}
	for l, err := range a.DeadLetters(t.Context(), Filter{}) {
		if l.Error != "one" || err != nil {
			t.Errorf("got %+v, %v", l, err)
		}
		break // ends the listing
	}

	for _, test := range []struct {
		filter     Filter
		text, hint string
	}{
		{Filter{Pipeline: "linse"}, `unknown pipeline "linse" in data folder ` + data, `did you mean "lines"? known: empty, lines, removed, running`},
		{Filter{IDs: []string{"zzzzzz"}}, "zzzzzz", "perigee dlq list shows the IDs"},
	} {
		for _, err := range a.DeadLetters(t.Context(), test.filter) {
			expectError(t, "list", err, test.text, test.hint)
		}
		_, err := a.CountDeadLetters(t.Context(), test.filter)
		expectError(t, "count", err, test.text, test.hint)
		_, err = a.PurgeDeadLetters(t.Context(), test.filter)
		expectError(t, "purge", err, test.text, test.hint)
		_, err = a.RetryDeadLetters(t.Context(), test.filter)
		expectError(t, "retry", err, test.text, test.hint)
	}

	if n, err := a.PurgeDeadLetters(t.Context(), Filter{Text: "one"}); n != 1 || err != nil {
		t.Errorf("%d purged, %v", n, err)
	}
	result, err := a.RetryDeadLetters(t.Context(), Filter{})
	// Without an engine nobody can tell that a pipeline is not there.
	want := RetryResult{Queued: 3, Uncommitted: 1, Queue: Queue{Waiting: map[string]int{"lines": 2, "removed": 1}}}
	if diff := cmp.Diff(want, result); diff != "" || err != nil {
		t.Error(err, diff)
	}
	if diff := cmp.Diff([]string{"five"}, texts(t, a, Filter{})); diff != "" {
		t.Error(diff)
	}
}

// TestNoDeadLetters: a folder without a file of them has none, and no ID is known.
func TestNoDeadLetters(t *testing.T) {
	a := open(t, t.TempDir(), Pipeline{Name: "lines"})
	if all := texts(t, a, Filter{Pipeline: "lines"}); all != nil {
		t.Errorf("got %v", all)
	}
	if n, err := a.PurgeDeadLetters(t.Context(), Filter{}); n != 0 || err != nil {
		t.Errorf("%d purged, %v", n, err)
	}
	if r, err := a.RetryDeadLetters(t.Context(), Filter{}); !cmp.Equal(r, RetryResult{}) || err != nil {
		t.Errorf("%+v, %v", r, err)
	}
	if q, err := a.DeadLetterQueue(t.Context()); q.Waiting != nil || err != nil {
		t.Errorf("%+v, %v", q, err)
	}
	_, err := a.CountDeadLetters(t.Context(), Filter{IDs: []string{"abc"}})
	expectError(t, "an ID", err, "no dead letters in data folder", "--data")
}

// TestQueueOfEngine: an engine knows which of the waiting letters it has no pipeline for.
func TestQueueOfEngine(t *testing.T) {
	data := t.TempDir()
	storeLetters(t, data, "lines", false, "one")
	storeLetters(t, data, "removed", false, "two")
	store, err := deadletter.Open(data)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	a := New(data, store, func() []Pipeline { return []Pipeline{{Name: "lines"}} }, nil)
	result, err := a.RetryDeadLetters(t.Context(), Filter{})
	want := RetryResult{Queued: 2, Queue: Queue{Waiting: map[string]int{"lines": 1, "removed": 1}, Orphans: []string{"removed"}}}
	if diff := cmp.Diff(want, result); diff != "" || err != nil {
		t.Error(err, diff)
	}
}

// TestLettersCannotBeRead: nothing is reported as none when the store does not answer.
func TestLettersCannotBeRead(t *testing.T) {
	data := t.TempDir()
	store, err := deadletter.Open(data)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	a := New(data, store, func() []Pipeline { return []Pipeline{{Name: "lines"}} }, nil)
	for name, operate := range map[string]func() error{
		"status": func() error { _, err := a.Status(t.Context()); return err },
		"count":  func() error { _, err := a.CountDeadLetters(t.Context(), Filter{}); return err },
		"count of a pipeline": func() error {
			_, err := a.CountDeadLetters(t.Context(), Filter{Pipeline: "lines"})
			return err
		},
		"purge": func() error { _, err := a.PurgeDeadLetters(t.Context(), Filter{}); return err },
		"retry": func() error { _, err := a.RetryDeadLetters(t.Context(), Filter{}); return err },
		"queue": func() error { _, err := a.DeadLetterQueue(t.Context()); return err },
		"list": func() error {
			for _, err := range a.DeadLetters(t.Context(), Filter{}) {
				return err
			}
			return nil
		},
	} {
		expectError(t, name, operate(), "database not open", "")
	}
}

// TestPauseOfFolder: without an engine, a pause is stored for the next one.
func TestPauseOfFolder(t *testing.T) {
	data := t.TempDir()
	a := open(t, data, Pipeline{Name: "lines"}, Pipeline{Name: "mail"})
	for _, test := range []struct{ reason, want string }{{"", "paused by an operator"}, {"too hot", "too hot"}} {
		before := time.Now().Add(-time.Second)
		if err := a.Pause(t.Context(), "lines", test.reason); err != nil {
			t.Fatal(err)
		}
		pause, err := pipeline.ReadPause(data, "lines")
		if err != nil || pause == nil || pause.Reason != test.want || pause.Since.Before(before) || pause.Since.After(time.Now()) {
			t.Errorf("%q is stored as %+v, %v", test.reason, pause, err)
		}
	}
	if pause, err := pipeline.ReadPause(data, "mail"); pause != nil || err != nil {
		t.Errorf("another pipeline is paused: %+v, %v", pause, err)
	}
	for range 2 {
		if err := a.Resume(t.Context(), "lines"); err != nil {
			t.Fatal(err)
		}
		if pause, err := pipeline.ReadPause(data, "lines"); pause != nil || err != nil {
			t.Errorf("resumed: %+v, %v", pause, err)
		}
	}
	expectError(t, "pause", a.Pause(t.Context(), "line", ""), `unknown pipeline "line"`, `did you mean "lines"? known: lines, mail`)
	expectError(t, "resume", a.Resume(t.Context(), "x"), `unknown pipeline "x"`, "known: lines, mail")
	if pause, err := pipeline.ReadPause(data, "line"); pause != nil || err != nil {
		t.Errorf("an unknown pipeline is paused: %+v, %v", pause, err)
	}
	_, err := a.Status(t.Context())
	expectError(t, "status", err, "no engine is running in "+data, "--data")
	if !errors.Is(err, ErrNoEngine) {
		t.Errorf("status: %v", err)
	}
}

// TestNamesOfFolder: without a configuration, the names are those of the last engine.
func TestNamesOfFolder(t *testing.T) {
	data := t.TempDir()
	if lock, err := datafolder.Lock(data); err != nil {
		t.Fatal(err)
	} else {
		lock.Close()
	}
	a := open(t, data)
	expectError(t, "no names", a.Pause(t.Context(), "lines", ""), `unknown pipeline "lines"`, "no engine has run there")
	if err := WriteNames(data, []string{"lines", "mail"}); err != nil {
		t.Fatal(err)
	}
	if err := a.Pause(t.Context(), "mail", ""); err != nil {
		t.Error(err)
	}
	expectError(t, "a wrong name", a.Pause(t.Context(), "mial", ""), `unknown pipeline "mial"`, `did you mean "mail"? known: lines, mail`)
	if err := os.Remove(filepath.Join(data, namesFile)); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(data, namesFile), 0o700); err != nil {
		t.Fatal(err)
	}
	expectError(t, "names that cannot be read", a.Resume(t.Context(), "mail"), "read the names of pipelines", "")
	expectError(t, "names that cannot be stored", WriteNames(data, []string{"lines"}), "store the names of pipelines", "")
}

// TestEngineFindsPipelines: the operations of an engine name the pipelines that it has.
func TestEngineFindsPipelines(t *testing.T) {
	store, err := deadletter.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	a := New(t.TempDir(), store, func() []Pipeline { return []Pipeline{{Name: "lines"}, {Name: "mail"}} }, nil)
	for name, operate := range map[string]func(context.Context, string) error{
		"pause":  func(ctx context.Context, name string) error { return a.Pause(ctx, name, "") },
		"resume": a.Resume,
		"position": func(ctx context.Context, name string) error {
			_, err := a.SetPosition(ctx, Move{Pipeline: name})
			return err
		},
		"positions": func(ctx context.Context, name string) error {
			_, err := a.Positions(ctx, PositionFilter{Pipeline: name})
			return err
		},
	} {
		expectError(t, name, operate(t.Context(), "lynes"), `unknown pipeline "lynes"`, `did you mean "lines"? known: lines, mail`)
	}
}

// TestDeadLetterEvent: an event that is no UTF-8 keeps its bytes.
func TestDeadLetterEvent(t *testing.T) {
	for _, original := range []string{`{"ü":1}`, "", "\xff\x00"} {
		d := NewDeadLetter(deadletter.Letter{DeadLetter: event.DeadLetter{Original: []byte(original)}})
		if string(d.Event()) != original || (d.Bytes != nil) != (original == "\xff\x00") || d.Bytes != nil && d.Original != "" {
			t.Errorf("%q is described as %q and %q", original, d.Original, d.Bytes)
		}
	}
	all := deadletter.Letter{
		Pipeline: "lines", Partition: "a", First: time.Unix(1, 0), Time: time.Unix(2, 0), Retried: 3, Uncommitted: true,
		DeadLetter: event.DeadLetter{Position: 4, Sink: "table", Number: 5, Stage: "sink", Error: "no", Traceback: "main", Script: "x.lua", Original: []byte("{}")},
	}
	want := DeadLetter{
		ID: all.ID(), Pipeline: "lines", Partition: "a", Position: 4, Sink: "table", Number: 5, First: time.Unix(1, 0), Time: time.Unix(2, 0),
		Retried: 3, Uncommitted: true, Stage: "sink", Error: "no", Traceback: "main", Script: "x.lua", Original: "{}",
	}
	if diff := cmp.Diff(want, NewDeadLetter(all)); diff != "" {
		t.Error(diff)
	}
}

// closeRecorder records the order in which parts are closed.
type closeRecorder struct {
	name  string
	order *[]string
}

func (c closeRecorder) Close() error {
	*c.order = append(*c.order, c.name)
	return errors.New(c.name)
}

// TestCloseInOrder: what was opened last is closed first, whatever fails, and only once.
func TestCloseInOrder(t *testing.T) {
	var order []string
	a := &Admin{}
	for _, name := range []string{"lock", "letters"} {
		a.closers = append(a.closers, closeRecorder{name, &order})
	}
	err := a.Close()
	if err == nil || !strings.Contains(err.Error(), "lock") || !strings.Contains(err.Error(), "letters") {
		t.Errorf("closing says %v", err)
	}
	if err := a.Close(); err != nil || !slices.Equal(order, []string{"letters", "lock"}) {
		t.Errorf("closed %v, %v", order, err)
	}
}

// TestRemote: the operations on a folder in which an engine runs are those of the engine.
func TestRemote(t *testing.T) {
	data := t.TempDir()
	storeLetters(t, data, "lines", false, "one", "two", "three")
	storeLetters(t, data, "removed", false, "four")
	store, err := deadletter.Open(data)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	table := remembering(map[string]event.Ranges{"a": {{First: 0, Count: 10}}})
	lines := pipeline.New(pipeline.Config{Name: "lines", Source: silentSource{}, Sinks: []pipeline.Sink{{Name: "table", Sink: table}}, Log: slog.New(slog.DiscardHandler), Worker: "w"})
	engine := New(data, store, func() []Pipeline {
		return []Pipeline{{Name: "lines", Source: silentSource{}, Sinks: []Sink{{"table", table}}, Running: lines}}
	}, nil)
	routes := http.NewServeMux()
	for pattern, h := range engine.Handlers() {
		routes.Handle(pattern, h)
	}
	l, err := net.Listen("unix", filepath.Join(data, datafolder.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	s := http.Server{Handler: routes}
	go s.Serve(l)
	defer s.Close()

	a := open(t, data)
	if !a.Remote() || engine.Remote() {
		t.Fatal("the engine is not asked")
	}
	if running, err := IsRunning(data); !running || err != nil {
		t.Errorf("running: %v, %v", running, err)
	}
	if diff := cmp.Diff([]string{"one", "two", "three", "four"}, texts(t, a, Filter{})); diff != "" {
		t.Error(diff)
	}
	if n, err := a.CountDeadLetters(t.Context(), Filter{Pipeline: "lines"}); n != 3 || err != nil {
		t.Errorf("%d are counted, %v", n, err)
	}
	if n, err := a.PurgeDeadLetters(t.Context(), Filter{Text: "one"}); n != 1 || err != nil {
		t.Errorf("%d are purged, %v", n, err)
	}
	want := []Status{{
		Pipeline: "lines", State: pipeline.Starting, Worker: "w", DeadLetters: 2, Sinks: []SinkStatus{{Name: "table"}},
	}}
	all, err := a.Status(t.Context())
	if diff := cmp.Diff(want, all); diff != "" || err != nil {
		t.Error(err, diff)
	}
	result, err := a.RetryDeadLetters(t.Context(), Filter{})
	queue := Queue{Waiting: map[string]int{"lines": 2, "removed": 1}, Orphans: []string{"removed"}}
	if diff := cmp.Diff(RetryResult{Queued: 3, Queue: queue}, result); diff != "" || err != nil {
		t.Error(err, diff)
	}
	again, err := a.DeadLetterQueue(t.Context())
	if diff := cmp.Diff(queue, again); diff != "" || err != nil {
		t.Error(err, diff)
	}

	if err := a.Pause(t.Context(), "lines", ""); err != nil || lines.Paused() == nil || lines.Paused().Reason != "paused by an operator" {
		t.Errorf("pause: %v, %+v", err, lines.Paused())
	}
	all, err = a.Status(t.Context())
	if err != nil || len(all) != 1 || all[0].State != pipeline.Paused || all[0].Reason != "paused by an operator" || all[0].Since == nil {
		t.Errorf("paused: %+v, %v", all, err)
	}
	if err := a.Resume(t.Context(), "lines"); err != nil || lines.Paused() != nil {
		t.Errorf("resume: %v, %+v", err, lines.Paused())
	}

	positions, err := a.Positions(t.Context(), PositionFilter{})
	if err != nil || len(positions) != 1 || positions[0].brief() != "lines a table next 10 of [0,10), 10 events, source  lag -" {
		t.Errorf("positions %+v, %v", positions, err)
	}
	moved, err := a.SetPosition(t.Context(), Move{Pipeline: "lines", Rewind: count(3)})
	if err != nil || moved.Next != 7 || table.ranges["a"].Next(0) != 7 {
		t.Errorf("moved to %v, %v", moved, err)
	}

	for name, operate := range map[string]func() error{
		"pause":  func() error { return a.Pause(t.Context(), "lynes", "") },
		"resume": func() error { return a.Resume(t.Context(), "lynes") },
		"count":  func() error { _, err := a.CountDeadLetters(t.Context(), Filter{Pipeline: "lynes"}); return err },
		"list": func() error {
			for _, err := range a.DeadLetters(t.Context(), Filter{Pipeline: "lynes"}) {
				return err
			}
			return nil
		},
	} {
		expectError(t, name, operate(), `unknown pipeline "lynes"`, `did you mean "lines"?`)
	}
	s.Close()
	expectError(t, "after the engine's end", a.Resume(t.Context(), "lines"), "send a request to the engine in "+data, "")
}

// TestListingBreaksOff: an engine that ends while it lists, or whose letters cannot be read to
// the end, does not make a part look like the whole.
func TestListingBreaksOff(t *testing.T) {
	for _, test := range []struct {
		name   string
		answer func(io.Writer, *http.Request) error
		want   []string
		fails  string
		hint   string
	}{
		{"nothing", func(io.Writer, *http.Request) error { return nil }, nil, "", ""},
		{"all", func(w io.Writer, _ *http.Request) error {
			_, err := io.WriteString(w, `{"error":"one"} {"error":"two"}`)
			return err
		}, []string{"one", "two"}, "", ""},
		{"fails at once", func(io.Writer, *http.Request) error { return event.WithHint(errors.New("no"), "do") }, nil, "no", "do"},
		{"fails after the first", func(w io.Writer, _ *http.Request) error {
			_, _ = io.WriteString(w, `{"error":"one"}`+strings.Repeat(" ", 10_000))
			return errors.New("no")
		}, []string{"one"}, "the engine ended the connection during its answer: unexpected EOF", "read the reason in the log of the engine"},
		{"no JSON", func(w io.Writer, _ *http.Request) error { _, err := io.WriteString(w, "oops"); return err }, nil, "the engine ended the connection during its answer: invalid character", "read the reason in the log of the engine"},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := open(t, serve(t, test.answer))
			var got []string
			var last error
			for l, err := range a.DeadLetters(t.Context(), Filter{}) {
				if last != nil {
					t.Errorf("%v after %v", l, last)
				}
				if last = err; err == nil {
					got = append(got, l.Error)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" || (last == nil) != (test.fails == "") {
				t.Error(last, diff)
			}
			if test.fails != "" {
				expectError(t, "listing", last, test.fails, test.hint)
			}
		})
	}
	for _, body := range []string{"", "oops", "{}"} {
		data := t.TempDir()
		l, err := net.Listen("unix", filepath.Join(data, datafolder.SocketName))
		if err != nil {
			t.Fatal(err)
		}
		s := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadGateway)
			_, _ = io.WriteString(w, body)
		})}
		go s.Serve(l)
		defer s.Close()
		expectError(t, "an error in no words", open(t, data).Resume(t.Context(), "lines"), "answered with status 502 Bad Gateway", "")
	}
	a := open(t, serve(t, func(w io.Writer, _ *http.Request) error { _, err := io.WriteString(w, "oops"); return err }))
	_, err := a.CountDeadLetters(t.Context(), Filter{})
	expectError(t, "an answer that is no JSON", err, "the engine ended the connection during its answer", "read the reason in the log of the engine")
}

// TestConnectFails: a socket that cannot be asked is an error, not an absent engine.
func TestConnectFails(t *testing.T) {
	data := filepath.Join(t.TempDir(), strings.Repeat("long", 40))
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := Open(data, []Pipeline{})
	expectError(t, "open", err, "connect to the engine in "+data, "")
	if running, err := IsRunning(data); running || err == nil {
		t.Errorf("running: %v, %v", running, err)
	}
	if err := Post(t.Context(), data, "/query", nil, nil, io.Discard, nil); err == nil || errors.Is(err, ErrNoEngine) {
		t.Errorf("post: %v", err)
	}
}
