package engine

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

func TestRecentLog(t *testing.T) {
	var printed bytes.Buffer
	recent := new(recentLog)
	log := recent.newLog(slog.New(slog.NewTextHandler(&printed, &slog.HandlerOptions{Level: slog.LevelError})))
	log.Info("not printed, not kept")
	log.With("pipeline", "p").WithGroup("sink").With("name", "s").Warn("slow", "rows", 7, slog.Group("last", "ok", true), "error", errors.New("no \"luck\""))
	log.Error("failed")
	records := recent.list()
	if len(records) != 2 || records[0].Number != 1 || records[0].Level != slog.LevelWarn || records[0].Message != "slow" || records[0].Time.IsZero() {
		t.Fatalf("records: %+v", records)
	}
	want := `{"pipeline":"p","sink.name":"s","sink.rows":7,"sink.last.ok":true,"sink.error":"no \"luck\""}`
	if got := string(records[0].Attributes); got != want {
		t.Errorf("attributes %s, want %s", got, want)
	}
	if got := printed.String(); strings.Contains(got, "slow") || !strings.Contains(got, "failed") {
		t.Errorf("printed: %s", got)
	}
}

// TestRecentLogIsBounded counts the bytes that a log of endless records keeps.
func TestRecentLogIsBounded(t *testing.T) {
	recent := new(recentLog)
	log := recent.newLog(slog.New(slog.DiscardHandler))
	long := strings.Repeat("x", 1<<20)
	for i := range 3007 {
		log.Warn(long, "i", i, "a", long, "b", long, "c", long)
	}
	records := recent.list()
	if len(records) != 1000 {
		t.Fatalf("%d records", len(records))
	}
	for i, r := range records {
		if want := uint64(2008 + i); r.Number != want {
			t.Fatalf("record %d has number %d, want %d", i, r.Number, want)
		}
		if !strings.HasPrefix(string(r.Attributes), fmt.Sprintf(`{"i":%d,"a":"xxx`, r.Number-1)) {
			t.Fatalf("attributes %.100s", r.Attributes)
		}
		if len(r.Message) > recentBytes || len(r.Attributes) > recentBytes+1 {
			t.Fatalf("a record with %d and %d bytes", len(r.Message), len(r.Attributes))
		}
	}
}
