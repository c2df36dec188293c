//go:build cgo && lmdb

package coretest

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/internal/testseed"
)

// TestOrderAgainstM lets M sort and print the paths of random pairs, and compares that with the
// keys: each pair must have M's order, and M's output must parse as the key of its path.
func TestOrderAgainstM(t *testing.T) {
	pairs := pairsForM(t)
	paths := randomPairs(testseed.New(t), pairs)
	keys := make([][]byte, len(paths))
	for i, path := range paths {
		keys[i] = keyOfPath(t, path)
	}
	rank := map[string]int{} // position of a key in M's order
	var before []byte
	for i, node := range sortWithM(t, paths) {
		key := keys[node.path]
		if bytes.Compare(before, key) >= 0 {
			t.Fatalf("M has %s after key % x; its key is % x", node.text, before, key)
		}
		if read, at, err := coreParseKey(node.text); err != nil || at != len(node.text) || !bytes.Equal(read, key) {
			t.Fatalf("M prints %s; read up to byte %d: % x, %v; want % x", node.text, at, read, err, key)
		}
		rank[string(key)] = i
		before = key
	}
	for i := 0; i < len(paths); i += 2 {
		a, inM := rank[string(keys[i])]
		b, bothInM := rank[string(keys[i+1])]
		if !inM || !bothInM {
			t.Fatalf("M lost %s or %s", formatPath(paths[i]), formatPath(paths[i+1]))
		}
		if got, want := bytes.Compare(keys[i], keys[i+1]), cmp.Compare(a, b); got != want {
			t.Fatalf("keys compare %s and %s as %d, M as %d", formatPath(paths[i]), formatPath(paths[i+1]), got, want)
		}
	}
	t.Logf("%d pairs of paths, %d nodes", pairs, len(rank))
}

func keyOfPath(t *testing.T, path []string) []byte {
	t.Helper()
	subscripts := make([]coreScalar, len(path))
	for i, text := range path {
		subscripts[i] = str(text)
	}
	key, err := coreEncode("^x", subscripts)
	if err != nil {
		t.Fatalf("%s: %v", formatPath(path), err)
	}
	return key
}

// A nodeOfM is a node as printed by M.
type nodeOfM struct {
	text string
	path int // index of its path
}

// sortWithM returns the nodes of the paths in M's order.
func sortWithM(t *testing.T, paths [][]string) []nodeOfM {
	t.Helper()
	var input bytes.Buffer
	for _, path := range paths {
		for _, subscript := range path {
			input.WriteString(formatSubscript(subscript) + "\n")
		}
		input.WriteByte('\n')
	}
	nodes := make([]nodeOfM, 0, len(paths))
	for line := range bytes.Lines(runM(t, "order", input.Bytes())) {
		text := strings.TrimSuffix(string(line), "\n")
		equals := strings.LastIndexByte(text, '=')
		n, err := strconv.Atoi(text[equals+1:])
		if err != nil {
			t.Fatalf("M printed %q: %v", line, err)
		}
		nodes = append(nodes, nodeOfM{text[:equals], n - 1})
	}
	return nodes
}

// formatPath formats a path as ZWRITE does, but with numbers also as strings.
func formatPath(path []string) string {
	formatted := make([]string, len(path))
	for i, subscript := range path {
		formatted[i] = formatSubscript(subscript)
	}
	return "^x(" + strings.Join(formatted, ",") + ")"
}

// formatSubscript formats a string as "a"_$C(10,13)_"b".
func formatSubscript(s string) string {
	if s == "" {
		return `""`
	}
	var parts []string
	for s != "" {
		printable := func(c rune) bool { return c >= ' ' && c < 127 }
		end := strings.IndexFunc(s, func(c rune) bool { return printable(c) != printable(rune(s[0])) })
		if end < 0 {
			end = len(s)
		}
		if printable(rune(s[0])) {
			parts = append(parts, `"`+strings.ReplaceAll(s[:end], `"`, `""`)+`"`)
		} else {
			parts = append(parts, "$C("+strings.Join(strings.Fields(strings.Trim(fmt.Sprint([]byte(s[:end])), "[]")), ",")+")")
		}
		s = s[end:]
	}
	return strings.Join(parts, "_")
}

// randomPairs returns pairs of paths, one after the other. The second path of a pair is often
// similar to the first.
func randomPairs(r *rand.Rand, pairs int) [][]string {
	g := pathGenerator{r}
	paths := make([][]string, 0, 2*pairs)
	for range pairs {
		a := g.path()
		b := g.path()
		if g.IntN(4) > 0 {
			b = g.near(a)
		}
		paths = append(paths, a, b)
	}
	return paths
}

type pathGenerator struct{ *rand.Rand }

// path returns a path of one to six subscripts, rarely of up to 31.
func (g pathGenerator) path() []string {
	depth := 1 + g.IntN(6)
	if g.IntN(100) == 0 {
		depth = 1 + g.IntN(31)
	}
	path := make([]string, depth)
	for i := range path {
		path[i] = g.subscript()
	}
	return path
}

// near returns a path changed a little: longer, shorter, or with another subscript.
func (g pathGenerator) near(path []string) []string {
	path = slices.Clone(path)
	last := len(path) - 1
	switch g.IntN(6) {
	case 0:
		if last > 0 {
			return path[:last]
		}
	case 1:
		if len(path) < 31 {
			return append(path, g.subscript())
		}
	case 2:
		path[last] += string([]byte{byte(g.IntN(256))})
		return path
	case 3:
		if s := path[last]; s != "" {
			path[last] = s[:len(s)-1]
			return path
		}
	case 4:
		if s := []byte(path[last]); len(s) > 0 {
			s[g.IntN(len(s))] = "0123456789.-"[g.IntN(12)]
			path[last] = string(s)
			return path
		}
	}
	path[g.IntN(len(path))] = g.subscript()
	return path
}

// notNumbers are texts similar to numbers, or numbers just inside or outside of the range.
var notNumbers = []string{
	"", "0", "-0", "00", "-", ".", "-.", "+1", "1.", "0.5", "-0.5", ".50", "1.0", "01", "-01", "1E3", "1e3", " 1", "1 ", "--1", "1..1", "1-",
	"123456789012345678", "1234567890123456789", "1234567890123456780", "-1234567890123456780", "12345678901234567.8", "123456789012345678.9",
	"9007199254740992", "9007199254740993", ".1", ".3", "-.000001", ".123456789012345678", ".1234567890123456789",
	"1" + strings.Repeat("0", 46), "1" + strings.Repeat("0", 47), "-1" + strings.Repeat("0", 46), "-1" + strings.Repeat("0", 47),
	strings.Repeat("9", 18) + strings.Repeat("0", 29), strings.Repeat("9", 18) + strings.Repeat("0", 30),
	"." + strings.Repeat("0", 42) + "1", "." + strings.Repeat("0", 43) + "1", "-." + strings.Repeat("0", 42) + "1",
	"." + strings.Repeat("0", 42) + "123456789012345678", "." + strings.Repeat("0", 41) + "999999999999999999",
	"A", "a", "\x00", "\x00\x00", "\x00\x01", "\x01", "\xff", "\xff\xff", "\x00\xff", "é",
}

func (g pathGenerator) subscript() string {
	switch g.IntN(8) {
	case 0:
		return notNumbers[g.IntN(len(notNumbers))]
	case 1:
		return strconv.Itoa(g.IntN(20) - 10)
	case 2:
		return strconv.FormatInt(int64(g.Uint64())>>g.IntN(64), 10)
	case 3:
		return g.decimal()
	case 4:
		return g.text("ab", 6)
	case 5:
		return g.text("\x00\x01\x02\xfe\xff", 5)
	case 6:
		return g.text("0123456789.-+E", 8)
	}
	s := make([]byte, g.IntN(12))
	for i := range s {
		s[i] = byte(g.IntN(256))
	}
	return string(s)
}

// decimal returns a decimal of up to 19 digits of any size, mostly canonical.
func (g pathGenerator) decimal() string {
	digits := strings.TrimLeft(g.text("0123456789", 1+g.IntN(19)), "0") + "7"
	sign := []string{"", "-"}[g.IntN(2)]
	switch g.IntN(3) {
	case 0:
		return sign + digits + strings.Repeat("0", g.IntN(32))
	case 1:
		return sign + "." + strings.Repeat("0", g.IntN(45)) + digits
	}
	at := g.IntN(len(digits))
	return sign + digits[:at] + "." + digits[at:]
}

func (g pathGenerator) text(alphabet string, longest int) string {
	s := make([]byte, g.IntN(longest+1))
	for i := range s {
		s[i] = alphabet[g.IntN(len(alphabet))]
	}
	return string(s)
}
