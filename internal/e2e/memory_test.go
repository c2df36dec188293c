package e2e

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseMetrics(t *testing.T) {
	const text = "# HELP go_goroutines Number.\ngo_goroutines 12\nheap_bytes 1.5e+06\nperigee_c_allocator_bytes{state=\"in_use\"} 42\n\n"
	got, err := parseMetrics(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int64{"go_goroutines": 12, "heap_bytes": 1_500_000, `perigee_c_allocator_bytes{state="in_use"}`: 42}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := parseMetrics(strings.NewReader("go_goroutines many\n")); err == nil {
		t.Error("no error for a value that is not a number")
	}
}
