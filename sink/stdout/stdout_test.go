package stdout

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/sinktest"
)

func TestSuite(t *testing.T) {
	sinktest.Run(t, func(*testing.T) sinktest.Place {
		printed := new(heldTerminal)
		return sinktest.Place{
			Guarantee: Kind().Guarantee,
			Ordered:   true,
			Sink:      func(*testing.T, string) sink.Sink { return New(printed) },
			Rows:      func(t *testing.T) []sinktest.Row { return rows(t, printed.String()) },
		}
	})
}

// A heldTerminal takes the output of several processes.
type heldTerminal struct {
	mu sync.Mutex
	bytes.Buffer
}

func (o *heldTerminal) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.Buffer.Write(p)
}

func rows(t *testing.T, printed string) []sinktest.Row {
	var all []sinktest.Row
	for line := range strings.Lines(printed) {
		var row sinktest.Row
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatalf("printed %q: %v", line, err)
		}
		all = append(all, row)
	}
	return all
}

func open(t *testing.T, s sink.Sink) sink.Writer {
	t.Helper()
	w, _, err := s.Open(context.Background(), "a")
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestDocumentIsOneLine(t *testing.T) {
	var printed bytes.Buffer
	w := open(t, New(&printed))
	if err := w.Write(context.Background(), sinktest.Docs(0, "{\r\n \"a\": 1\n}", "2")); err != nil {
		t.Fatal(err)
	}
	if got, want := printed.String(), "{   \"a\": 1 }\n2\n"; got != want {
		t.Errorf("printed %q, want %q", got, want)
	}
}

// full takes room bytes and then fails, as a full disk does.
type full struct {
	bytes.Buffer
	room int
}

func (f *full) Write(p []byte) (int, error) {
	n := min(len(p), f.room)
	f.room -= n
	f.Buffer.Write(p[:n])
	if n < len(p) {
		return n, syscall.ENOSPC
	}
	return n, nil
}

func TestFailedWriteLeavesNoBrokenLine(t *testing.T) {
	for room := range len("\"one\"\n\"two\"\n") {
		disk := &full{room: room}
		w := open(t, New(disk))
		err := w.Write(context.Background(), sinktest.Docs(0, `"one"`, `"two"`))
		if event.IsPermanent(err) || !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("room for %d bytes: %v, want a passing error", room, err)
		}
		sinktest.ExpectClass(t, w.Write(context.Background(), sinktest.Docs(0, `"one"`)), sinktest.Transient)
		disk.room = 1000
		if err := w.Write(context.Background(), sinktest.Docs(0, `"one"`, `"two"`)); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(disk.String(), "\n"), "\n")
		seen := map[string]bool{}
		for _, line := range lines {
			seen[line] = true
		}
		if len(seen) != 2 || !seen[`"one"`] || !seen[`"two"`] {
			t.Errorf("room for %d bytes: printed %q", room, lines)
		}
	}
}

func TestClosedPipeIsPermanent(t *testing.T) {
	reader, pipe, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout := os.Stdout
	os.Stdout = pipe
	s, err := Kind().New(sink.Env{}, func(any) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	w := open(t, s)
	os.Stdout = stdout
	pipe.Close()

	if err := w.Write(context.Background(), sinktest.Docs(0, "1")); err != nil {
		t.Fatal(err)
	}
	reader.Close()
	err = w.Write(context.Background(), sinktest.Docs(0, "2"))
	permanent, ok := errors.AsType[*event.PermanentError](err)
	if !ok || permanent.Hint == "" {
		t.Errorf("writing to a closed pipe returned %v, want a permanent error with a hint", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestKind(t *testing.T) { sinktest.Kind(t, Kind()) }
