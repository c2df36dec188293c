package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/perigeedb/perigee/internal/testserver"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/kafka"
	"github.com/perigeedb/perigee/sink/sinktest"
)

// writeLimit ends a test whose write does not return: it may ignore its context.
const writeLimit = time.Minute

// write writes one document and returns the error, or fails the test.
func write(ctx context.Context, t *testing.T, w sink.Writer, id uint64) error {
	t.Helper()
	written := make(chan error, 1)
	go func() { written <- w.Write(ctx, sinktest.Docs(id, fmt.Sprintf(`{"id":%d}`, id))) }()
	select {
	case err := <-written:
		return err
	case <-time.After(writeLimit):
		t.Fatalf("the write of %d does not return", id)
		return nil
	}
}

func TestWriteToBrokerThatIsAway(t *testing.T) {
	t.Cleanup(kafka.SetDeliveryTimeout(time.Second))
	address := closedAddress(t)
	s := newSink(t, address, kafka.Config{Topic: "events"})
	defer s.Close()
	w, _, err := s.Open(t.Context(), "part")
	if err != nil {
		t.Fatal(err)
	}
	err = write(t.Context(), t, w, 0)
	sinktest.ExpectClass(t, err, sinktest.Transient)
	if !strings.Contains(err.Error(), address) {
		t.Errorf("writing returned %v, which does not name %s", err, address)
	}
	cancelled, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := write(cancelled, t, w, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a write that was cut off returned %v", err)
	}
}

// TestBrokerDies has the broker die inside a write, and then writes without it.
func TestBrokerDies(t *testing.T) {
	broker(t)
	t.Cleanup(kafka.SetDeliveryTimeout(time.Second))
	k, err := testserver.StartKafka(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Kill() }) // after the clients are closed
	topic := newTopic(t, k.Address(), nil)
	s := newSink(t, k.Address(), kafka.Config{Topic: topic})
	defer s.Close()
	w, _, err := s.Open(t.Context(), "part")
	if err != nil {
		t.Fatal(err)
	}
	id := uint64(0)
	arrives := func() { // as a pipeline retries
		t.Helper()
		for end := time.Now().Add(writeLimit); ; time.Sleep(50 * time.Millisecond) {
			if err = write(t.Context(), t, w, id); err == nil {
				break
			}
			if sinktest.ExpectClass(t, err, sinktest.Transient); time.Now().After(end) {
				t.Fatal(err)
			}
		}
		id++
	}
	arrives()
	if err := syscall.Kill(k.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	kill := time.AfterFunc(200*time.Millisecond, func() { _ = syscall.Kill(k.PID(), syscall.SIGKILL) })
	defer kill.Stop()
	for err = write(t.Context(), t, w, id); err == nil; err = write(t.Context(), t, w, id) {
		id++ // some of its threads still ran
	}
	sinktest.ExpectClass(t, err, sinktest.Transient)
	cancelled, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := write(cancelled, t, w, id); err == nil || cancelled.Err() == nil {
		t.Errorf("a write that was cut off returned %v", err)
	}
	if err := k.Kill(); err != nil { // waits for the process
		t.Fatal(err)
	}
	if err := k.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	arrives()
	seen := map[string]bool{}
	var first []string // each document where it is first
	for _, r := range records(t, k.Address(), topic) {
		if doc := string(r.Value); !seen[doc] {
			seen[doc], first = true, append(first, doc)
		}
	}
	var want []string
	for i := range id {
		want = append(want, fmt.Sprintf(`{"id":%d}`, i))
	}
	if !slices.Equal(first, want) {
		t.Errorf("arrived: %v, want %v", first, want)
	}
}
