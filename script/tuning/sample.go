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

// Bounds of a sample. What is beyond them is left out.
const (
	SampleEvents = 200_000
	SampleBytes  = 64 << 20
	lineMax      = 16 << 20
)

// A Sample is events of the user's, and what the script makes of them.
type Sample struct {
	Name    string
	Events  int
	Bytes   int
	Cut     bool   // there are more events than were read
	Tried   int    // events that were passed through the script to see what comes of them
	Failed  int    // events that the script or the reader of documents refuses
	Fault   string // the first one's
	Line    int    // where that event stands
	Dropped int    // events of which nothing comes
	Rows    int    // that come of the others

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
		return nil, fmt.Errorf("there is no event in %s: give one JSON document on each line", name)
	}
	return s, nil
}

// batches returns the events in batches of one size. The last is filled up from the
// beginning, so that all cost the same.
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

// runScript passes the events through the script, in one goroutine, and counts what
// comes of them. It ends early when they take too long. It returns how long one took.
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
