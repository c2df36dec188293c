package testseed

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// A recorder keeps what a test logs.
type recorder struct {
	testing.TB
	logged, fatal string
}

func (r *recorder) Helper()                           {}
func (r *recorder) Logf(format string, args ...any)   { r.logged = fmt.Sprintf(format, args...) }
func (r *recorder) Fatalf(format string, args ...any) { r.fatal = fmt.Sprintf(format, args...) }

func TestLoggedSeedReplays(t *testing.T) {
	t.Setenv(Variable, "")
	first := &recorder{}
	want := New(first).Uint64()
	var seed uint64
	if _, err := fmt.Sscanf(first.logged, "PERIGEE_SEED=%d", &seed); err != nil {
		t.Fatalf("logged %q: %v", first.logged, err)
	}
	if other := Seed(&recorder{}); other == seed {
		t.Errorf("two tests have the seed %d", seed)
	}
	t.Setenv("PERIGEE_SEED", fmt.Sprint(seed))
	again := &recorder{}
	if got := New(again).Uint64(); got != want || again.logged != first.logged {
		t.Errorf("the replay has %d and logs %q, want %d and %q", got, again.logged, want, first.logged)
	}
	if got := rand.New(rand.NewPCG(seed, 0)).Uint64(); got != want {
		t.Errorf("seed %d gives %d, want %d", seed, want, got)
	}
}

func TestSeedThatIsNoNumber(t *testing.T) {
	t.Setenv("PERIGEE_SEED", "-1")
	r := &recorder{}
	if Seed(r); r.fatal == "" {
		t.Error("the seed -1 was taken")
	}
}
