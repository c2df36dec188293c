// Package testseed gives tests random numbers that a failure can be replayed with: from the
// seed in the environment variable PERIGEE_SEED, or from a new one that the test logs. Its
// functions are safe for concurrent use, what New returns is not.
package testseed

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// Variable is the environment variable that holds the seed to replay.
const Variable = "PERIGEE_SEED"

// Seed returns the seed of a test, and logs it.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv(Variable); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s: %v", Variable, err)
		}
	}
	t.Logf("%s=%d", Variable, seed)
	return seed
}

// New returns random numbers from the seed of a test, and logs it.
func New(t testing.TB) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(Seed(t), 0))
}
