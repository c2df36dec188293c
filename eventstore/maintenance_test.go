//go:build linux && cgo

package eventstore

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
)

// A syncedBuffer is a log that several goroutines write.
type syncedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncedBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncedBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// TestMaintenanceHasEnoughMemory fills files of the log to their usual size, as fast as it can,
// and waits until they are Parquet files and those are merged: both go through in the memory
// that writing files has, whatever the rows look like.
func TestMaintenanceHasEnoughMemory(t *testing.T) {
	for name, width := range map[string]int{"narrow": 400, "wide": 20_000, "huge": 900_000} {
		t.Run(name, func(t *testing.T) {
			var said syncedBuffer
			s, err := Open(t.TempDir(), Options{Log: slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelError}))})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			p := take(t, openTable(t, s, TableConfig{Event: "name", Time: "time"}))
			const segments = mergeMin + 1
			first, rows := uint64(0), 2_000
			if width > 1000 {
				rows = 4_000_000 / width
			}
			for s.log.End().File <= segments {
				docs := make([]string, rows)
				for i := range docs {
					id := first + uint64(i)
					at := time.Date(2026, 11, 23, 0, 0, int(id%80_000), 0, time.UTC)
					// Texts that differ, so that nothing is small by being said once.
					text := strings.Repeat(fmt.Sprintf("%016x", (id+1)*0x9e3779b97f4a7c15), width/16+1)
					docs[i] = fmt.Sprintf(`{"id":%d,"name":"event-%d","time":%q,"text":%q}`, id, id%7, at.Format(time.RFC3339), text[:width])
				}
				appendDocs(t, p, first, docs...)
				first += uint64(rows)
			}
			if err := s.log.Rotate(t.Context()); err != nil {
				t.Fatal(err)
			}
			waitUntil(t, s, func() bool { return s.current().LogStart > segments })
			if got := ask(t, s, `SELECT count(*), count(DISTINCT id) FROM events`); got != fmt.Sprintf("%d,%d", first, first) {
				t.Errorf("got %s rows of %d", got, first)
			}
			if text := said.String(); text != "" {
				t.Errorf("maintenance says:\n%s", text)
			}
		})
	}
}
