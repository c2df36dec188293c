package tuning

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
)

// Bounds of a sample. Events beyond them are skipped.
const (
	SampleEvents = 200_000
	SampleBytes  = 64 << 20
	lineMax      = 16 << 20
)

// A Sample holds events of the user, and what the script returns for them.
type Sample struct {
	Name    string
	Events  int
	Bytes   int
	Cut     bool   // events beyond the bounds were skipped
	Tried   int    // events that were passed through the script
	Failed  int    // of these, events that would become dead letters
	Fault   string // error of the first one
	Line    int    // of the first one
	Dropped int    // events for which the script returned nothing
	Rows    int    // that it returned for the others

	docs  [][]byte
	lines []int
}

// ReadSample reads a document from each line that is not blank.
func ReadSample(name string, in io.Reader) (*Sample, error) {
	s := &Sample{Name: name}
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 64<<10), lineMax)
	for n := 1; lines.Scan(); n++ {
		doc := bytes.TrimSpace(lines.Bytes())
		if len(doc) == 0 {
			continue
		}
		if s.Events == SampleEvents || s.Bytes+len(doc) > SampleBytes {
			s.Cut = true
			return s, nil
		}
		s.docs, s.lines = append(s.docs, bytes.Clone(doc)), append(s.lines, n)
		s.Events, s.Bytes = s.Events+1, s.Bytes+len(doc)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read events from %s: %w", name, err)
	}
	if s.Events == 0 {
		return nil, fmt.Errorf("no events in %s; write one JSON document per line", name)
	}
	return s, nil
}

// batches returns the events in batches of one size. The last one is filled up with the
// first events, so that all batches cost the same.
func (s *Sample) batches(size int) []*event.Batch {
	var all []*event.Batch
	for first := 0; first < s.Events; first += size {
		b := &event.Batch{Partition: "sample", Range: event.Range{First: uint64(first), Count: uint64(size)}}
		for i := range size {
			b.Append(s.docs[(first+i)%s.Events])
		}
		all = append(all, b)
	}
	return all
}

// writeTo writes the documents, one on each line.
func (s *Sample) writeTo(out io.Writer) error {
	w := bufio.NewWriter(out)
	for _, doc := range s.docs {
		_, _ = w.Write(doc) // Flush returns the error
		_ = w.WriteByte('\n')
	}
	return w.Flush()
}

// runScript passes the events through the script, in one goroutine, and counts the
// results. It stops early after long. It returns the time per event.
func (s *Sample) runScript(ctx context.Context, loaded script.Script, sinks int, long time.Duration) (time.Duration, error) {
	const size = 100
	res := event.Result{Outputs: make([]event.Output, sinks)}
	began := time.Now()
	for s.Tried < s.Events && (s.Tried == 0 || time.Since(began) < long) {
		b := &event.Batch{Partition: "sample", Range: event.Range{First: uint64(s.Tried)}}
		for _, doc := range s.docs[s.Tried:min(s.Tried+size, s.Events)] {
			b.Append(doc)
		}
		b.Range.Count = uint64(b.Len())
		err := script.RunAll(ctx, loaded, b, &res, 0, func(*event.Batch, *script.LimitError) error {
			s.addResult(&res)
			return nil
		})
		if err != nil {
			return 0, fmt.Errorf("run the script on line %d of %s: %w", s.lines[s.Tried], s.Name, err)
		}
		s.Tried += b.Len()
	}
	return time.Since(began) / time.Duration(s.Tried), nil
}

func (s *Sample) addResult(res *event.Result) {
	s.Dropped += res.Dropped
	for i := range res.Outputs {
		s.Rows += res.Outputs[i].Len()
	}
	for i := range res.Dead {
		dead := &res.Dead[i]
		if s.Failed++; s.Fault == "" {
			s.Fault, s.Line = dead.Stage+": "+dead.Error, s.lines[dead.Position]
		}
	}
}
