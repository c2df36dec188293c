package nodedb_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"unicode"

	"github.com/perigeedb/perigee/nodedb"
)

func TestDumpAndLoad(t *testing.T) {
	store := open(t, nodedb.Options{})
	p := nodedb.Name("^d")
	check(t, store.Update(ctx, func(tx *nodedb.Tx) error {
		for i, v := range []any{1, "x", true, "", "\x00\n\"é", 0.5, "5", strings.Repeat("\x00", 300_000)} {
			check(t, tx.Set(p.At(i, "s"), v))
		}
		for i := range 25_000 {
			check(t, tx.Set(nodedb.Name("^many").At(i), i))
		}
		return nil
	}))
	var dump bytes.Buffer
	check(t, store.Dump(ctx, &dump, nil))
	if strings.ContainsFunc(dump.String(), func(r rune) bool { return r != '\n' && unicode.IsControl(r) }) {
		t.Error("the dump has control characters")
	}
	copied := open(t, nodedb.Options{})
	told := uint64(0)
	n, err := copied.Load(ctx, iotest.OneByteReader(bytes.NewReader(dump.Bytes())), func(lines uint64) { told = lines })
	check(t, err)
	if n != 25_008 || told != n {
		t.Errorf("loaded %d nodes, told %d", n, told)
	}
	var again bytes.Buffer
	check(t, copied.Dump(ctx, &again, nil))
	if !bytes.Equal(dump.Bytes(), again.Bytes()) {
		t.Error("the dump of what was loaded differs")
	}
	var part bytes.Buffer
	check(t, store.Dump(ctx, &part, nil, p.At(0), p.At(1)))
	if part.String() != "^d(0,\"s\")=1\n^d(1,\"s\")=\"x\"\n" {
		t.Errorf("a part is %q", part.String())
	}
	wantError(t, store.Dump(ctx, failingWriter{}, nil), io.ErrShortWrite)
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func TestLoadRefuses(t *testing.T) {
	store := open(t, nodedb.Options{})
	for text, place := range map[string]string{
		"^a(1)=1\nx\n":      "line 2",
		"^a(1)=1\n^a(2)=\n": "line 2, column 7",
		"^a(1)=\"x":         "line 1",
		"^a(1)=1x":          "line 1, column 8",
		"^a(1)":             "line 1, column 6",
		"^a(1,)=1":          "line 1, column 6",
		"\n\n^a(1)=$C(x)\n": "line 3",
		"a\nZWR\nb\nZWR\n":  "line 3", // only the first two lines can be a header
		"a\n^b=ZWR\n":       "line 1",
		"^a=1\n^b=ZWR\n":    "line 2",
		"^a=1\nZWR\n":       "line 2",
		"^a=$Z(1)":          "line 1",

		"a\n" + strings.Repeat("b", 253) + "ZWR=\n": "line 1",
	} {
		_, err := store.Load(ctx, strings.NewReader(text), nil)
		if !errors.Is(err, nodedb.ErrArgument) || !strings.Contains(err.Error(), place) {
			t.Errorf("%q: %v, want %s", text, err, place)
		}
	}
	if n := must(store.Stat()).Nodes; n != 0 {
		t.Errorf("%d nodes of transactions that failed", n)
	}
	broken := errors.New("broken")
	_, err := store.Load(ctx, io.MultiReader(strings.NewReader("^a=1\n"), iotest.ErrReader(broken)), nil)
	wantError(t, err, broken)
	want(t, session(t, store), nodedb.Name("^a"), 1)
}

// TestLoadInSteps loads short lines, at most 10,000 per transaction, and lines of 8 MiB, at most 16
// MiB of text per transaction.
func TestLoadInSteps(t *testing.T) {
	store := open(t, nodedb.Options{})
	for _, test := range []struct {
		bytes, lines int
		steps        []uint64
	}{
		{20, 25_000, []uint64{10_000, 20_000, 25_000}},
		{8 << 20, 5, []uint64{2, 4, 5}},
	} {
		var text strings.Builder
		for i := range test.lines {
			head := fmt.Sprintf("^n(%d)=\"", i)
			text.WriteString(head + strings.Repeat("x", test.bytes-len(head)-1) + "\"\n")
		}
		var steps []uint64
		nodes, err := store.Load(ctx, strings.NewReader(text.String()), func(lines uint64) { steps = append(steps, lines) })
		if err != nil || nodes != uint64(test.lines) || !slices.Equal(steps, test.steps) {
			t.Errorf("%d lines: loaded %d nodes in steps of %d, %v; want %d", test.lines, nodes, steps, err, test.steps)
		}
	}
}

func TestLoadOfAnExtract(t *testing.T) {
	store := open(t, nodedb.Options{})
	for _, text := range []string{"label\n23-NOV-2026  12:00:00 ZWR\n^m=1\n", "\n23-NOV-2026  12:00:00 ZWR\n^m=1\n", "label UTF-8\r\n23-NOV-2026  12:00:00 ZWR\r\n^m=1\r\n\r\n"} {
		if n := must(store.Load(ctx, strings.NewReader(text), nil)); n != 1 {
			t.Errorf("%d nodes of %q", n, text)
		}
	}
	_, err := store.Load(ctx, strings.NewReader("label\nno format\n^m=1\n"), nil)
	wantError(t, err, nodedb.ErrArgument)
}
