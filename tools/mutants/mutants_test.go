package main

import (
	"fmt"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestGoFaults(t *testing.T) {
	source := `package p

import "os"

func f(f *os.File, a []int) error {
	if len(a) < 3 && a[0] != 7 {
		a[1]++
		a[2] = 5
	}
	if err := f.Sync(); err != nil {
		return err
	}
	b := make([]int, 0, len(a)*2+1)
	if a[0] < a[1] {
		a[0] = a[1]
	}
	defer f.Close()
	return f.Close()
}
`
	want := []string{
		"x.go:6 negated condition: len(a) < 3 && a[0] != 7 -> !(len(a) < 3 && a[0] != 7)",
		"x.go:6 boundary: < -> <=",
		"x.go:6 off by one: 3 -> 4",
		"x.go:6 logic: && -> ||",
		"x.go:6 off by one: 0 -> 1",
		"x.go:6 comparison: != -> ==",
		"x.go:6 off by one: 7 -> 8",
		"x.go:7 off by one: 1 -> 2",
		"x.go:7 removed statement: a[1]++ -> nothing",
		"x.go:7 swapped statements: a[1]++ a[2] = 5 -> a[2] = 5 a[1]++",
		"x.go:8 off by one: 2 -> 3",
		"x.go:8 off by one: 5 -> 6",
		"x.go:8 removed statement: a[2] = 5 -> nothing",
		"x.go:10 removed sync, close or truncate: f.Sync() -> error(nil)",
		"x.go:10 dropped error check: err != nil -> (err != nil) && false",
		"x.go:14 negated condition: a[0] < a[1] -> !(a[0] < a[1])",
		"x.go:14 off by one: 0 -> 1",
		"x.go:14 off by one: 1 -> 2",
		"x.go:15 off by one: 0 -> 1",
		"x.go:15 off by one: 1 -> 2",
		"x.go:15 removed statement: a[0] = a[1] -> nothing",
		"x.go:17 removed statement: defer f.Close() -> nothing",
		"x.go:18 removed sync, close or truncate: f.Close() -> error(nil)",
	}
	faults, err := goFaults("x.go", []byte(source))
	if err != nil {
		t.Fatal(err)
	}
	checkFaults(t, faults, want, source)
}

func TestCFaults(t *testing.T) {
	source := `#define N 4 /* if (a < b) */
/* x < y */
static int f(int a, const char *b) {
  if (a <= 3 && b[0] == '<') {
    g(a, "1 + 1");
    h(b);
  }
  int n = a < c->len ? a : c->len;
  if (__builtin_expect(n == f(5, b), 1)) h(b);
  return a + 1;
}
`
	want := []string{
		"x.c:4 boundary: <= -> <",
		"x.c:4 off by one: 3 -> 4",
		"x.c:4 logic: && -> ||",
		"x.c:4 off by one: 0 -> 1",
		"x.c:4 comparison: == -> !=",
		`x.c:4 negated condition: (a <= 3 && b[0] == '<') -> (!(a <= 3 && b[0] == '<'))`,
		`x.c:5 removed statement: g(a, "1 + 1"); -> ;`,
		`x.c:5 swapped statements: g(a, "1 + 1"); h(b); -> h(b); g(a, "1 + 1");`,
		"x.c:6 removed statement: h(b); -> ;",
		"x.c:9 comparison: == -> !=",
		"x.c:9 off by one: 5 -> 6",
		`x.c:9 negated condition: (__builtin_expect(n == f(5, b), 1)) -> (!(__builtin_expect(n == f(5, b), 1)))`,
		"x.c:10 arithmetic: + -> -",
		"x.c:10 off by one: 1 -> 2",
	}
	checkFaults(t, cFaults("x.c", []byte(source)), want, source)
}

func checkFaults(t *testing.T, faults []fault, want []string, source string) {
	t.Helper()
	var got []string
	for _, f := range faults {
		got = append(got, f.String())
		if string(f.apply([]byte(source))) == source {
			t.Errorf("%s changes nothing", f)
		}
	}
	for _, w := range want {
		if !slices.Contains(got, w) {
			t.Errorf("missing: %s", w)
		}
	}
	for _, g := range got {
		if !slices.Contains(want, g) {
			t.Errorf("unexpected: %s", g)
		}
	}
}

// TestChoose: the order depends on the seed and on each fault's line alone, and rare kinds come as
// often as frequent ones.
func TestChoose(t *testing.T) {
	makeFaults := func(firstLine, n int) []fault {
		faults := []fault{{line: firstLine, kind: kindDurable}, {line: firstLine + 1, kind: kindSwap}}
		for i := range n {
			faults = append(faults, fault{line: firstLine + 2 + i, kind: kindBoundary, source: fmt.Sprint("line ", i/2)})
		}
		return faults
	}
	sources := func(faults []fault) (of []string) {
		for _, f := range faults {
			of = append(of, f.kind+" "+f.source)
		}
		return of
	}
	faults, longer, other := makeFaults(1, 100), makeFaults(50, 101), makeFaults(1, 100)
	choose(faults, 1)
	choose(longer, 1)
	choose(other, 2)
	if slices.Equal(faults, other) {
		t.Error("two seeds give one order")
	}
	kept := slices.DeleteFunc(sources(longer), func(source string) bool { return source == "boundary line 50" })
	if !slices.Equal(sources(faults), kept) {
		t.Error("faults change their order where a line comes in elsewhere")
	}
	for _, kind := range []string{kindDurable, kindSwap} {
		if !slices.ContainsFunc(faults[:3], func(f fault) bool { return f.kind == kind }) {
			t.Errorf("%s comes late", kind)
		}
	}
	if got := slices.SortedFunc(slices.Values(faults), func(a, b fault) int { return a.line - b.line }); !slices.Equal(got, makeFaults(1, 100)) {
		t.Error("the order is not one of the same faults")
	}
}

func TestCommute(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want bool
	}{
		{"s->broken = 0;", "s->changes++;", true},
		{"e->generation = 0;", "e->expiry = expiry;", true},
		{"p.node[i].kind = kind", "p.depth++", true},
		{"i = 1", "a[i] = 2", false},
		{"a[1]++", "a[2] = 5", false},
		{"s.x = 1", "s.y = s.x", false},
		{"s.x = s.y", "s.y = 1", false},
		{"s = other", "s.y = 1", false},
		{"r.doc = int(position - f.first)", "r.position = position", true},
		{"r.doc = position", "position = 1", false},
		{"c->null[r] = 1;", "c->floats[r] = 0;", true},
		{"c->null[r] = 1;", "r = 0;", false},
		{"n->count = 0;", "n->height = (uint16_t)height;", true},
		{"n->count = 0;", "m->height = n->count;", false},
		{"n->count = 0;", "m = *n;", false},
		{"n.count = 0;", "m = &n;", true},
		{"n.count = 0;", "m = all & n;", false},
		{"n.count = 0", "all = append(all, n)", false},
		{"b.Count++", "b.Fingerprints = append(b.Fingerprints, crc32.Checksum(doc, table))", true},
		{"x = f()", "y = 1", false},
		{"m.first = nil", "m.mu.Unlock()", false},
		{"a->x = 1;", "b->x = 2;", false},
		{"x += 1", "y = 2", true},
		{"c.Files = slices.Clone(t.Files)", "c.Deletes = slices.Clone(t.Deletes)", true},
		{"data = binary.LittleEndian.AppendUint32(data, k.Arrived)", "newest = max(newest, k.Arrived)", true},
		{"data = append(data, a)", "data = append(data, b)", false},
		{"x = append(x, y...)", "y = append(y, 1)", false},
		{"x = append(x, next())", "y = 1", false},
		{"delete(b.queues, name)", "b.total -= size", true},
		{"delete(b.queues, name)", "size = len(b.queues)", false},
		{"delete(b.queues, name)", "name = other", false},
		{"delete(m, next())", "y = 1", false},
		{"a, b = b, a", "c = b", false},
		{"free(x->table);", "free(x->last_names);", true},
		{"free(x->table);", "x->table = NULL;", false},
		{"free(x->row[0]);", "free(x->row);", false},
		{`snprintf(part, sizeof part, "%s/a", folder);`, `snprintf(whole, sizeof whole, "%s/b", folder);`, true},
		{`snprintf(part, sizeof part, "%s/a", folder);`, `snprintf(whole, sizeof whole, "%s/b", part);`, false},
		{`n = snprintf(part, sizeof part, "%s/a", folder);`, `first = part[0];`, false},
	} {
		if got := commute(test.a, test.b); got != test.want {
			t.Errorf("%s %s: %v", test.a, test.b, got)
		}
	}
}

// TestFindFaults: faults are where a test of this build can notice them.
func TestFindFaults(t *testing.T) {
	faults, err := findFaults("../..")
	if err != nil {
		t.Fatal(err)
	}
	places := map[string]bool{}
	for _, f := range faults {
		places[f.file] = true
	}
	for path, want := range map[string]bool{
		"pipeline/replay.go":             true,
		"internal/document/edit.c":       true,
		"pipeline/outbox_test.go":        false,
		"internal/powercut/disk.go":      false,
		"internal/child/filter_arm64.go": runtime.GOARCH == "arm64",
		"internal/child/filter_other.go": runtime.GOARCH != "arm64" && runtime.GOARCH != "amd64",
	} {
		if places[path] != want {
			t.Errorf("faults in %s: %v", path, places[path])
		}
	}
}

// TestCovering: a fault is tried with the tests that run its line; where none is known to, with
// those that run something of its file, or of its folder for C.
func TestCovering(t *testing.T) {
	ran := blocks{}
	ran.add([]byte("mode: set\nm/a/x.go:3.20,5.2 1 1\nm/a/x.go:7.20,9.2 1 0\n"), 0)
	ran.add([]byte("mode: set\nm/a/x.go:3.20,5.2 1 1\nm/a/x.go:5.9,9.2 1 12\nm/b/y.go:1.1,2.2 1 1\n"), 1)
	other := blocks{}
	other.add([]byte("mode: set\nm/b/y.go:1.1,2.2 1 1\n"), 0)
	c := &coverage{Folders: map[string]*folderCoverage{
		"a": {Blocks: ran.byFile("m"), Tests: []test{{"a", "TestSlow", 2}, {"a", "TestQuick", 1}}},
		"b": {Blocks: other.byFile("m"), Tests: []test{{"b", "TestOther", 1}}},
	}}
	for _, test := range []struct {
		file string
		line int
		want []string
	}{
		{"a/x.go", 4, []string{"TestQuick", "TestSlow"}},
		{"a/x.go", 7, []string{"TestQuick"}},
		{"a/x.go", 20, []string{"TestQuick", "TestSlow"}},
		{"b/y.go", 1, []string{"TestQuick", "TestOther"}},
		{"b/z.c", 1, []string{"TestQuick", "TestOther"}},
		{"b/z.go", 1, nil},
	} {
		var got []string
		for _, test := range c.covering(fault{file: test.file, line: test.line}) {
			got = append(got, test.Name)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s:%d: %q", test.file, test.line, got)
		}
	}
}

// TestPlan: the tests that run the line come first, quick ones before slow ones and those of the
// package before those of its users; the rest of the package comes last.
func TestPlan(t *testing.T) {
	c := &coverage{Folders: map[string]*folderCoverage{
		"a": {
			Tests:  []test{{"a", "TestA", 4}, {"a", "TestB", 8}, {"a", "TestC", 1}},
			Blocks: map[string][]block{"a/x.go": {{1, 9, []int{0, 1}}}},
		},
		"near": {Tests: []test{{"near", "TestD", 1}}, Blocks: map[string][]block{"a/x.go": {{1, 9, []int{0}}}}},
		"far":  {Tests: []test{{"far", "TestE", 1}}, Blocks: map[string][]block{"a/x.go": {{1, 9, []int{0}}}, "none/x.go": {{1, 9, []int{0}}}}},
	}}
	tree := &tree{
		importers: map[string][]string{"a": {"unrelated", "near"}, "near": {"far", "a"}, "none": {"far"}},
		hasTests:  map[string]bool{"a": true, "near": true, "far": true, "unrelated": true, "none": false},
		users:     1,
	}
	for file, want := range map[string][]testRun{
		"a/x.go": {
			{folder: "a", tests: []string{"TestA"}, seconds: 4},
			{folder: "a", tests: []string{"TestB"}, seconds: 8},
			{folder: "near", tests: []string{"TestD"}, seconds: 1},
			{folder: "a", tests: []string{"TestA", "TestB"}, others: true, seconds: 1},
		},
		"none/x.go": {{folder: "far", tests: []string{"TestE"}, seconds: 1}},
		"a/b/c/x.c": {{folder: "a", others: true, seconds: 13}},
	} {
		if got := tree.plan(fault{file: file, line: 5}, c); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v", file, got)
		}
	}
}

// TestTryFaults: as many faults as asked for count, the first ones that do, whatever the number of trees.
func TestTryFaults(t *testing.T) {
	var faults []fault
	for i := range 20 {
		faults = append(faults, fault{line: i})
	}
	for _, trees := range []int{1, 2, 7} {
		var counted []int
		err := tryFaults(t.Context(), trees, slices.Clone(faults), 10, func(_ int, f fault) (verdict, error) {
			if f.line%3 == 0 {
				return verdict{invalid: "does not compile"}, nil
			}
			return verdict{}, nil
		}, func(f fault, v verdict) {
			if v.invalid == "" {
				counted = append(counted, f.line)
			}
		})
		slices.Sort(counted)
		if want := []int{1, 2, 4, 5, 7, 8, 10, 11, 13, 14}; err != nil || !slices.Equal(counted, want) {
			t.Errorf("%d trees: %v, %v", trees, counted, err)
		}
	}
}

// TestGuards finds the files that have no faults, which may have been renamed.
func TestGuards(t *testing.T) {
	for guard := range strings.SplitSeq(guards, ",") {
		if files, err := filepath.Glob(filepath.Join("../..", guard+"*")); err != nil || len(files) == 0 {
			t.Errorf("no file has the name %s: %v", guard, err)
		}
	}
}
