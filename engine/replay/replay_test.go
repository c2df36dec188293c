package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/source"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestPace reads events at several rates, also after a sink stood still: the rate is kept within
// 2 %, and a pause is not made up for.
func TestPace(t *testing.T) {
	for _, rate := range []float64{0.5, 3, 100, 5000, 1e6} {
		synctest.Test(t, func(t *testing.T) {
			p := pace{rate: rate}
			start, read := time.Now(), 0
			for time.Since(start) < 10*time.Second {
				if err := p.wait(t.Context()); err != nil {
					t.Fatal(err)
				}
				n := p.batch(1000)
				read += n
				p.took(n)
				time.Sleep(time.Millisecond) // reading takes time too
			}
			maxRead := rate*10*1.02 + float64(p.batch(1000))
			if got := float64(read); got > maxRead || got < min(rate*10*0.98, 1000*1000*10*0.98) {
				t.Errorf("%v events/s: %d events in 10 s", rate, read)
			}
			time.Sleep(time.Minute)
			start, read = time.Now(), 0
			for time.Since(start) < 10*time.Second {
				if err := p.wait(t.Context()); err != nil {
					t.Fatal(err)
				}
				n := p.batch(1000)
				read += n
				p.took(n)
			}
			if got := float64(read); got > rate*(10+catchUp.Seconds())*1.02+2*float64(p.batch(1000)) {
				t.Errorf("%v events/s: %d events in 10 s after a pause", rate, read)
			}
		})
	}
}

// TestEventsKeepTheirBytes copies events of every kind, and reads them in batches of several
// limits with some positions done.
func TestEventsKeepTheirBytes(t *testing.T) {
	events := []string{`{"a":1}`, "{\n \"a\": 2\r\n}", "no json\n\x00\xff", "", strings.Repeat("x", 70_000), `{}`, `[`}
	r := &Replay{folder: t.TempDir()}
	count, err := writeEvents(r.folder, func(add func([]byte) error) error {
		for _, e := range events {
			if err := add([]byte(e)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || count != uint64(len(events)) {
		t.Fatal(count, err)
	}
	r.manifest = manifest{ID: "x", Count: count}
	for _, limits := range []source.Limits{{Events: 1, Bytes: 1}, {Events: 3, Bytes: 1 << 20}, {Events: 100, Bytes: 20}} {
		for _, done := range []event.Ranges{nil, {{First: 0, Count: 2}}, {{First: 1, Count: 1}, {First: 3, Count: 2}}, {{First: 0, Count: count}}} {
			s := &eventSource{replay: r, limits: limits, remembered: true}
			reader, err := s.Open(t.Context(), s.partition(), done)
			if err != nil {
				t.Fatal(err)
			}
			var b event.Batch
			read := map[uint64]string{}
			for {
				if err := reader.Read(t.Context(), &b); err == io.EOF {
					break
				} else if err != nil {
					t.Fatal(err)
				}
				if b.Len() == 0 || b.Len() > limits.Events || b.Len() > 1 && len(b.Data) > limits.Bytes || b.Range.Count != uint64(b.Len()) {
					t.Fatalf("%+v: a batch of %d events and %d bytes, %v", limits, b.Len(), len(b.Data), b.Range)
				}
				for i := range b.Len() {
					read[b.Range.First+uint64(i)] = string(b.Doc(i))
				}
			}
			for i, e := range events {
				got, found := read[uint64(i)]
				if e == "" {
					e = " "
				}
				if found == done.Has(uint64(i)) || found && got != e {
					t.Errorf("%+v done %v: event %d is %q (%v), want %q", limits, done, i, got, found, e)
				}
			}
			if err := reader.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
	// A damaged copy is an error, and not a short replay.
	path := filepath.Join(r.folder, eventsName)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text[:len(text)-10], 0o600); err != nil {
		t.Fatal(err)
	}
	s := &eventSource{replay: r, limits: source.Limits{Events: 100, Bytes: 1 << 20}, remembered: true}
	reader, err := s.Open(t.Context(), s.partition(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close(context.Background())
	for err == nil {
		err = reader.Read(t.Context(), new(event.Batch))
	}
	if !event.IsPermanent(err) || event.HintOf(err) == "" {
		t.Errorf("a damaged copy: %v", err)
	}
}

// TestCopyFails leaves nothing that looks like a copy.
func TestCopyFails(t *testing.T) {
	folder, broken := t.TempDir(), errors.New("the source broke off")
	_, err := writeEvents(folder, func(add func([]byte) error) error {
		return errors.Join(add([]byte("{}")), broken)
	})
	left, _ := os.ReadDir(folder)
	if !errors.Is(err, broken) || len(left) > 0 {
		t.Errorf("%v, %v is left", err, fmt.Sprint(left))
	}
}
