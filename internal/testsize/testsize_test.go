package testsize

import "testing"

func TestCount(t *testing.T) {
	for value, want := range map[string]int{"": 2, "1": 30} {
		t.Setenv("PERIGEE_LONG", value)
		if got := Count(2, 30); got != want || Long() != (want == 30) {
			t.Errorf("PERIGEE_LONG=%s: %d times, and long is %v; want %d", value, got, Long(), want)
		}
	}
}
