package positions

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
)

func TestCompactions(t *testing.T) {
	now := time.Now()
	// A row is written first-end, with p for fingerprints and o for old.
	tests := []struct {
		name string
		rows []string
		want []string
	}{
		{"nothing", nil, nil},
		{"one without fingerprints", []string{"0-5"}, nil},
		{"one old", []string{"0-5po"}, []string{"[0,5)"}},
		{"one small", []string{"0-5p"}, nil},
		{"small ones", []string{"0-5p", "5-9p", "10-12p"}, []string{"[0,9)p"}},
		{"small ones that get large", []string{"0-255p", "255-300p", "300-600p"}, []string{"[0,300)p"}},
		{"large ones", []string{"0-256p", "256-512p"}, nil},
		{"two without fingerprints", []string{"0-5", "5-9"}, []string{"[0,9)"}},
		{"a gap", []string{"0-5", "5-9", "10-12", "12-13"}, []string{"[0,9)", "[10,13)"}},
		{"old ones first", []string{"0-5", "5-9po", "9-12po", "12-13p"}, []string{"[0,12)"}},
		{"old after new", []string{"0-5p", "5-9po", "9-12po", "12-13p", "13-14"}, []string{"[5,12)"}},
		{"old, small, none", []string{"0-5po", "5-9po", "9-12p", "12-13p", "13-14", "14-16"}, []string{"[0,9)", "[9,13)p", "[13,16)"}},
		{"too many events", []string{"0-5p", "5-9p", "9-16000000p", "16000000-16000009p"}, []string{"[0,9)"}},
		{"exactly as many events", []string{"0-5p", "5-16000005p"}, []string{"[0,5)"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var h history
			for _, row := range test.rows {
				var first, end uint64
				var flags string
				_, _ = fmt.Sscanf(row, "%d-%d%s", &first, &end, &flags)
				r := event.Range{First: first, Count: end - first}
				at := now
				if slices.Contains([]byte(flags), 'p') {
					r.Fingerprints = make([]uint32, min(r.Count, 1000))
				}
				if slices.Contains([]byte(flags), 'o') {
					at = now.Add(-fingerprintAge)
				}
				h.add(r, at)
			}
			var got []string
			for _, r := range h.compactions(now) {
				text := r.String()
				if len(r.Fingerprints) == int(r.Count) {
					text += "p"
				}
				got = append(got, text)
				h.merge(r, now)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("merged %v, want %v", got, test.want)
			}
			if again := h.compactions(now); len(again) != 0 {
				t.Errorf("merged %v once more", again)
			}
		})
	}
}

// TestMergedEntriesAreBounded merges as many small ranges as a writer gathers
// between two compactions of a partition that trickles.
func TestMergedEntriesAreBounded(t *testing.T) {
	var h history
	now := time.Now()
	const events = 100
	for i := range uint64(compactEvery) {
		h.add(event.Range{First: i * events, Count: events, Fingerprints: make([]uint32, events)}, now)
	}
	var merged uint64
	for _, r := range h.compactions(now) {
		if r.Count > maxMergedEvents || int(r.Count) != len(r.Fingerprints) {
			t.Errorf("merged %v with %d fingerprints: more than %d events in one statement", r, len(r.Fingerprints), maxMergedEvents)
		}
		merged += r.Count
		h.merge(r, now)
	}
	if merged != compactEvery*events {
		t.Errorf("merged %d events, want %d", merged, compactEvery*events)
	}
	if again := h.compactions(now); len(again) != 0 {
		t.Errorf("merged %v once more", again)
	}
}
