package inspect

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestLast(t *testing.T) {
	for _, test := range []struct {
		events int
		limit  uint64
		want   []string
	}{
		{0, 2, nil},
		{1, 2, []string{"0"}},
		{2, 2, []string{"0", "1"}},
		{3, 2, []string{"1", "2"}},
		{7, 3, []string{"4", "5", "6"}},
		{5, 1, []string{"4"}},
	} {
		last := NewLast(test.limit)
		var event []byte // reused, as that of a reader
		for i := range test.events {
			event = strconv.AppendInt(event[:0], int64(i), 10)
			if err := last.Add(event); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		if err := last.Each(func(event []byte) error { got = append(got, string(event)); return nil }); err != nil {
			t.Error(err)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("last %d of %d: got %q, want %q", test.limit, test.events, got, test.want)
		}
	}
}

func TestLastEndsAtError(t *testing.T) {
	last := NewLast(3)
	for range 3 {
		if err := last.Add([]byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	failed, calls := errors.New("failed"), 0
	err := last.Each(func([]byte) error { calls++; return failed })
	if err != failed || calls != 1 {
		t.Errorf("got %v after %d calls, want %v after 1", err, calls, failed)
	}
}

// TestLastIsBounded replaces large events by others, which it can keep, and adds one too many.
func TestLastIsBounded(t *testing.T) {
	last, third := NewLast(2), []byte(strings.Repeat("x", lastBytesMax/3))
	for i := range 10 {
		if err := last.Add(third); err != nil {
			t.Fatalf("event %d: %v", i, err)
		}
	}
	if err := last.Add([]byte(strings.Repeat("x", lastBytesMax))); err == nil || !strings.Contains(err.Error(), "the last 2 events") {
		t.Errorf("got %v, want an error", err)
	}
}
