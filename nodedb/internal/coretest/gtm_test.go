//go:build cgo && lmdb

package coretest

import (
	"bytes"
	"cmp"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/internal/testseed"
	"github.com/perigeedb/perigee/internal/testserver"
)

// pairsForM returns the number of random pairs for M; make test-m sets a larger one. It skips the
// test if M is not installed.
func pairsForM(t *testing.T) int {
	t.Helper()
	if _, err := testserver.FindGTM(); err != nil {
		t.Skip(err)
	}
	pairs, err := strconv.Atoi(cmp.Or(os.Getenv("PERIGEE_PAIRS_FOR_M"), "50000"))
	if err != nil {
		t.Fatalf("PERIGEE_PAIRS_FOR_M: %v", err)
	}
	return pairs
}

// runM runs a routine of testdata, which reads one file and writes another.
func runM(t *testing.T, routine string, input []byte) []byte {
	t.Helper()
	folder := t.TempDir()
	m, err := testserver.StartGTM(t.Context(), filepath.Join(folder, "m"), os.DirFS("testdata"), testserver.GTMOptions{Buffers: 65536, Allocation: 65536})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := m.Stop(); err != nil {
			t.Error(err)
		}
	}()
	from, to := filepath.Join(folder, "input"), filepath.Join(folder, "output")
	if err := os.WriteFile(from, input, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Run(t.Context(), routine, from, to); err != nil {
		t.Fatal(err)
	}
	output, err := os.ReadFile(to)
	if err != nil {
		t.Fatal(err)
	}
	return output
}

// TestAddAgainstM adds random numbers, and texts that begin with one or look like one.
func TestAddAgainstM(t *testing.T) {
	pairs := pairsForM(t)
	r := testseed.New(t)
	operands := make([][2]string, pairs)
	var input bytes.Buffer
	for i := range operands {
		value := randomOperand(r)
		by := randomOperand(r)
		if r.IntN(3) == 0 { // of similar size
			by = "-" + value[:max(0, len(value)-1)] + strconv.Itoa(r.IntN(10))
		}
		operands[i] = [2]string{value, by}
		input.WriteString(formatSubscript(value) + "\n" + formatSubscript(by) + "\n")
	}
	sums := strings.Split(strings.TrimSuffix(string(runM(t, "add", input.Bytes())), "\n"), "\n")
	if len(sums) != pairs {
		t.Fatalf("M printed %d sums; expected %d", len(sums), pairs)
	}
	overflows, wrong := 0, 0
	for i, pair := range operands {
		got := "overflow"
		sum, err := coreNumberAdd(str(pair[0]), str(pair[1]))
		if err == nil {
			got, err = coreNumberText(sum)
		}
		if err != nil && !strings.HasPrefix(err.Error(), "NDB_E_NUMBER") {
			t.Fatalf("%q + %q: %v", pair[0], pair[1], err)
		}
		if sums[i] == "overflow" {
			overflows++
		}
		if got != sums[i] {
			t.Errorf("%q + %q = %s; M has %s", pair[0], pair[1], got, sums[i])
			if wrong++; wrong == 10 {
				t.FailNow()
			}
		}
	}
	t.Logf("%d sums, %d overflows", pairs, overflows)
}

// randomOperand returns a number, or a text with a numeric prefix for M.
func randomOperand(r *rand.Rand) string {
	text := randomNumber(r)
	switch r.IntN(10) {
	case 0:
		text += "E" + strconv.Itoa(r.IntN(80)-40)
	case 1:
		text = strings.Repeat(string("+-"[r.IntN(2)]), r.IntN(4)) + text
	case 2:
		text += []string{" apples", "e3", "E", "E+", "E-", "E+5x", ".", "..", ",5", "\x00"}[r.IntN(10)]
	case 3:
		text = pathGenerator{r}.text("0123456789.-+E", 12)
	case 4:
		text += pathGenerator{r}.text("0123456789", 25)
	}
	return text
}
