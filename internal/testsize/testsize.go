// Package testsize tells tests how much to do. make test and make race run tests of random
// programs, kills and single faults at a part of their size; make test-long sets PERIGEE_LONG
// and runs them whole. Its functions are safe for concurrent use.
package testsize

import "os"

// Variable is the environment variable that makes tests long, whatever its value is.
const Variable = "PERIGEE_LONG"

// Long reports whether tests are to do all that they can.
func Long() bool { return os.Getenv(Variable) != "" }

// Count returns how often to repeat a test: usually, or in long tests.
func Count(usual, long int) int {
	if Long() {
		return long
	}
	return usual
}
