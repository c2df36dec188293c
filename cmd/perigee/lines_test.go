package main

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/source/format"
)

// readLines returns the documents and their line numbers, and the size of each batch.
func readLines(t *testing.T, in io.Reader) (docs []string, numbers, sizes []int) {
	t.Helper()
	l := newEventReader(in, format.Format{})
	var b event.Batch
	for {
		err := l.readBatch(&b)
		if err == io.EOF {
			return docs, numbers, sizes
		}
		if err != nil {
			t.Fatal(err)
		}
		if b.Range.Count != uint64(b.Len()) {
			t.Errorf("the range counts %d of %d events", b.Range.Count, b.Len())
		}
		for i := range b.Len() {
			docs = append(docs, string(b.Doc(i)))
		}
		numbers, sizes = append(numbers, l.numbers...), append(sizes, b.Len())
	}
}

func TestLines(t *testing.T) {
	long := strings.Repeat("x", 700<<10)
	tests := []struct {
		name, in string
		docs     []string
		numbers  []int
	}{
		{"empty", "", nil, nil},
		{"blank lines", "\n  \n\r\n", nil, nil},
		{"last without an end", "a\nb", []string{"a", "b"}, []int{1, 2}},
		{"numbers count blank lines", "\na\n\n\nb\n", []string{"a", "b"}, []int{2, 5}},
		{"spaces around", " a \r\n\tb\n", []string{"a", "b"}, []int{1, 2}},
		{"longer than the buffer", "a\n" + long + "\nb\n", []string{"a", long, "b"}, []int{1, 2, 3}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			for _, in := range []io.Reader{strings.NewReader(test.in), iotest.OneByteReader(strings.NewReader(test.in))} {
				docs, numbers, _ := readLines(t, in)
				if !slices.Equal(docs, test.docs) || !slices.Equal(numbers, test.numbers) {
					t.Errorf("read %d documents at lines %v, want %d at %v", len(docs), numbers, len(test.docs), test.numbers)
				}
			}
		})
	}
}

func TestLinesFillBatches(t *testing.T) {
	_, _, sizes := readLines(t, strings.NewReader(strings.Repeat("{}\n", 2500)))
	if !slices.Equal(sizes, []int{1000, 1000, 500}) {
		t.Errorf("batches have %v events", sizes)
	}
}

// TestLinesDoNotWait makes sure that an event is answered before the next one comes.
func TestLinesDoNotWait(t *testing.T) {
	in, out := io.Pipe()
	l := newEventReader(in, format.Format{})
	var b event.Batch
	for _, doc := range []string{"first", "second"} {
		go out.Write([]byte(doc + "\n"))
		if err := l.readBatch(&b); err != nil || string(b.Doc(0)) != doc {
			t.Fatalf("read %q, %v", b.Data, err)
		}
	}
}

func TestLinesTooLong(t *testing.T) {
	l := newEventReader(io.MultiReader(strings.NewReader("ok\n"), endless{}), format.Format{})
	var b event.Batch
	err := l.readBatch(&b)
	if err == nil {
		err = l.readBatch(&b)
	}
	if err == nil || !strings.Contains(err.Error(), "line 2 is longer than") {
		t.Errorf("an endless line ends in %v", err)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func TestLinesReadError(t *testing.T) {
	broken := errors.New("broken")
	err := newEventReader(io.MultiReader(strings.NewReader("a"), iotest.ErrReader(broken)), format.Format{}).readBatch(&event.Batch{})
	if !errors.Is(err, broken) {
		t.Errorf("a broken input ends in %v", err)
	}
}
