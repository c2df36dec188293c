package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/source/generate"
)

func TestReadyRowsAreThoseOfTheScript(t *testing.T) {
	const events, fewer = 3000, 1000
	r, err := writeReadyRows(filepath.Join(t.TempDir(), "rows"), events, fewer)
	if err != nil {
		t.Fatal(err)
	}
	kept := map[uint64]int{}
	for i := range uint64(events) {
		doc := string(generate.Append(nil, seed, i))
		if !strings.Contains(doc, `"event_name":"spam"`) && strings.Contains(doc, "@") {
			kept[events]++
			if i < fewer {
				kept[fewer]++
			}
		}
	}
	text, err := os.ReadFile(r.file)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Count(text, []byte("\n"))
	if r.rows[events] != kept[events] || r.rows[fewer] != kept[fewer] || lines != kept[events] {
		t.Errorf("%v rows counted, %d written, want %v", r.rows, lines, kept)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	if fields := strings.Split(first, "\t"); len(fields) != len(columns) || fields[6][:5] != "2026-" {
		t.Errorf("the first row is %q", fields)
	}
}

func TestCut(t *testing.T) {
	tests := []struct {
		text string
		want []string
	}{
		{"", nil}, {"a\n", []string{"a\n"}}, {"a\nb\n", []string{"a\nb\n"}}, {"a\nb\nc\n", []string{"a\nb\n", "c\n"}},
	}
	for _, test := range tests {
		var got []string
		for _, piece := range splitLines([]byte(test.text), 2) {
			got = append(got, string(piece))
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%q was cut into %q, want %q", test.text, got, test.want)
		}
	}
}

func turnsOf(values []float64, as func(float64) measurement) *result {
	r := &result{}
	for _, value := range values {
		r.add(as(value))
	}
	return r
}

// TestRatioIsOfOneRound compares with the best of theirs in the same round.
func TestRatioIsOfOneRound(t *testing.T) {
	turns := func(rates ...float64) *result {
		return turnsOf(rates, func(rate float64) measurement { return measurement{rate: rate} })
	}
	b := bench{results: map[string]*result{"us": turns(100, 300, 90), "a": turns(50, 100, 45), "b": turns(20, 150)}}
	if got, ok := b.ratio("us", []string{"a", "b", "absent"}); !ok || got != 2 {
		t.Errorf("the ratio is %v, %v; want 2", got, ok)
	}
	if _, ok := b.ratio("us", []string{"absent"}); ok {
		t.Error("there is a ratio to nobody")
	}
}

// TestShareIsOfOneRound compares with them in the same round.
func TestShareIsOfOneRound(t *testing.T) {
	turns := func(times ...float64) *result {
		return turnsOf(times, func(time float64) measurement { return measurement{program: time} })
	}
	b := bench{results: map[string]*result{"us": turns(2, 6, 3), "them": turns(8, 8, 4)}}
	if got, ok := b.relativeMedian(programTime, "us", "them"); !ok || got != 0.75 {
		t.Errorf("the share is %v, %v; want 0.75", got, ok)
	}
	if _, ok := b.relativeMedian(programTime, "us", "absent"); ok {
		t.Error("there is a share of nobody")
	}
}
