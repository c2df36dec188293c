package deadletter

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"pgregory.net/rapid"

	"github.com/perigeedb/perigee/event"
)

// A world is a pipeline with a sink that commits rows and ranges together. Between its
// steps it may be killed, and retries may be requested.
type world struct {
	t        *rapid.T
	folder   string
	store    *Store
	docs     []string
	repaired bool // script and sink take every event
	calm     bool // nothing happens in between
	rows     map[string]int
	ranges   map[string]event.Ranges
}

var errKilled = errors.New("killed")

// TestEachRowIsWrittenOnce runs events. Some fail in the script, and the sink rejects a row of
// others. Between any two steps the process may be killed, letters may be
// retried and the script may be repaired. At the end each row was written once.
func TestEachRowIsWrittenOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := &world{t: rt, folder: t.TempDir(), rows: map[string]int{}, ranges: map[string]event.Ranges{}}
		for i := range rapid.IntRange(1, 23).Draw(rt, "events") {
			w.docs = append(w.docs, fmt.Sprint("e", i))
		}
		w.start()
		for range rapid.IntRange(0, 3).Draw(rt, "runs") {
			w.run()
		}
		w.calm, w.repaired = true, true
		for round := 0; ; round++ {
			w.run()
			if n, err := w.store.Count(Filter{}); err != nil || round > 2 {
				rt.Fatalf("%d letters stay, %v", n, err)
			} else if n == 0 {
				break
			}
			if _, err := w.store.Retry(Filter{}); err != nil {
				rt.Fatal(err)
			}
		}
		w.store.Close()
		for _, doc := range w.docs {
			for number := range 2 {
				row := fmt.Sprint(doc, ".", number)
				if w.rows[row] != 1 {
					rt.Errorf("%s was written %d times", row, w.rows[row])
				}
			}
		}
	})
}

func (w *world) start() {
	s, err := Open(w.folder)
	if err != nil {
		w.t.Fatal(err)
	}
	s.db.NoSync = true
	w.store = s
}

// step injects what may happen between two steps.
func (w *world) step() error {
	if w.calm {
		return nil
	}
	switch rapid.IntRange(0, 12).Draw(w.t, "moment") {
	case 0:
		w.store.Close()
		w.start()
		return errKilled
	case 1, 2:
		if _, err := w.store.Retry(Filter{}); err != nil {
			w.t.Fatal(err)
		}
	case 3:
		w.repaired = true
	}
	return nil
}

// run runs the pipeline until its end, or until it is killed.
func (w *world) run() {
	seen := map[string]bool{}
	for news := true; news; {
		names := []string{"list"}
		batch, err := w.store.RetryBatch("p")
		if err != nil {
			w.t.Fatal(err)
		}
		if batch != "" {
			names = append(names, batch)
		}
		news = false
		for _, name := range names {
			if seen[name] {
				continue
			}
			seen[name], news = true, true
			if err := w.runPartition(name); err == errKilled {
				return
			} else if err != io.EOF {
				w.t.Fatal(err)
			}
		}
	}
}

// runPartition reads a partition to its end and delivers its batches.
func (w *world) runPartition(name string) error {
	done := append(event.Ranges(nil), w.ranges[name]...)
	if err := w.step(); err != nil {
		return err
	}
	for _, r := range done {
		if err := w.store.MarkCommitted("p", name, r); err != nil {
			return err
		}
	}
	read := w.listReader(done)
	if name != "list" {
		options := RetryOptions{Pipeline: "p", Limits: limits, Sinks: []string{"table"}, Remembered: true}
		r, err := w.store.OpenRetries(options, name, done)
		if err != nil {
			return err
		}
		read = r.Read
	}
	for {
		var b event.Batch
		requests, err := read(&b, nil)
		if err == nil {
			err = w.deliver(&b, requests)
		}
		if err == nil {
			err = w.store.MarkCommitted("p", name, b.Range)
		}
		if err == nil {
			err = w.step()
		}
		if err != nil {
			return err
		}
	}
}

// listReader reads the documents that are not done.
func (w *world) listReader(done event.Ranges) func(*event.Batch, []Request) ([]Request, error) {
	next := uint64(0)
	return func(b *event.Batch, _ []Request) ([]Request, error) {
		next = done.Next(next)
		b.Partition, b.Range.First = "list", next
		for b.Len() < limits.Events && next < uint64(len(w.docs)) && !done.Has(next) {
			b.Append([]byte(w.docs[next]))
			next++
		}
		if b.Range.Count = uint64(b.Len()); b.Len() == 0 {
			return nil, io.EOF
		}
		return nil, nil
	}
}

func (w *world) deliver(b *event.Batch, requests []Request) error {
	rows, dead := w.script(b, requests)
	for _, do := range []func() error{
		w.step,
		func() error { return w.store.Replace("p", b.Partition, b.Range, dead) },
		w.step,
		func() error {
			for _, row := range rows {
				w.rows[row]++
			}
			ranges := w.ranges[b.Partition]
			ranges.Add(b.Range)
			w.ranges[b.Partition] = ranges
			return nil
		},
		w.step,
	} {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// script makes two rows of each event. Until it is repaired, every third event fails in
// it, and the sink rejects the second row of every fourth.
func (w *world) script(b *event.Batch, requests []Request) (rows []string, dead []event.DeadLetter) {
	for i := range b.Len() {
		doc, at := string(b.Doc(i)), b.Range.First+uint64(i)
		var request Request
		if len(requests) > 0 {
			request = requests[i]
		}
		var n int
		fmt.Sscanf(doc, "e%d", &n)
		if !w.repaired && n%3 == 0 {
			dead = append(dead, event.DeadLetter{Position: at, Stage: "script", Error: "third", Original: []byte(doc)})
			continue
		}
		for number := range uint32(2) {
			switch {
			case request.Sink != "" && request.Number != number:
			case !w.repaired && n%4 == 1 && number == 1:
				dead = append(dead, event.DeadLetter{Position: at, Sink: "table", Number: number, Stage: "sink", Error: "fourth", Original: []byte(doc)})
			default:
				rows = append(rows, fmt.Sprint(doc, ".", number))
			}
		}
	}
	return rows, dead
}
