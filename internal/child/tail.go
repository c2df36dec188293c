package child

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Tail keeps the standard error output of a process, up to a size limit.
type Tail struct {
	mu   sync.Mutex
	last []byte
	from io.Closer
	done chan struct{} // closed at the end of the stream
}

// Finish waits for the end of the stream, at most a second: a grandchild may keep the stream open.
func (t *Tail) Finish() {
	select {
	case <-t.done:
	case <-time.After(time.Second):
		_ = t.from.Close()
		<-t.done
	}
}

const tailBytes = 8 << 10

// readTail reads a stream to its end.
func readTail(from io.ReadCloser) *Tail {
	t := &Tail{from: from, done: make(chan struct{})}
	go func() {
		defer close(t.done)
		defer func() { _ = from.Close() }()
		buf := make([]byte, tailBytes/2)
		for {
			n, err := from.Read(buf)
			t.add(buf[:n])
			if err != nil {
				return
			}
		}
	}()
	return t
}

func (t *Tail) add(b []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	// The start of a crash report is the most useful: keep the first half once it is full. One read
	// fits into the other half.
	if len(t.last)+len(b) > tailBytes {
		t.last = t.last[:tailBytes/2]
	}
	t.last = append(t.last, b...)
}

// String returns the output kept.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ToValidUTF8(string(bytes.TrimSpace(t.last)), "\uFFFD")
}

// CrashLine returns the line that gives the reason of a crash: the first that begins like those of
// Go's runtime, or with one of the other prefixes. It returns "" if there is none.
func (t *Tail) CrashLine(prefixes ...string) string {
	const maxBytes = 200
	prefixes = append([]string{"panic: ", "fatal error: ", "SIG"}, prefixes...)
	for line := range strings.Lines(t.String()) {
		if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(line, p) }) {
			return strings.TrimSpace(strings.ToValidUTF8(line[:min(len(line), maxBytes)], ""))
		}
	}
	return ""
}
