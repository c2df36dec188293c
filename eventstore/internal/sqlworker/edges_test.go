//go:build linux && cgo

package sqlworker

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/eventstore/internal/protocol"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
	"github.com/perigeedb/perigee/internal/frame"
)

// TestReports reads what a process wrote before its end.
func TestReports(t *testing.T) {
	for _, test := range []struct {
		report string
		memory bool
		line   string
	}{
		{"fatal error: runtime: out of memory\n\ngoroutine 1", true, "fatal error: runtime: out of memory"},
		{"runtime: mmap: cannot allocate memory\n", true, "runtime: mmap: cannot allocate memory"},
		{"terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc", true, "terminate called after throwing an instance of 'std::bad_alloc'"},
		{"goroutine 1\npanic: no\n", false, "panic: no"},
		{"SIGSEGV: segmentation violation\r\n", false, "SIGSEGV: segmentation violation"},
		{"sql worker: no settings", false, "sql worker: no settings"},
		{"a panic: in the middle", false, ""},
		{"", false, ""},
		{"panic: " + strings.Repeat("x", 193), false, "panic: " + strings.Repeat("x", 193)},
		{"panic: " + strings.Repeat("x", 194), false, "panic: " + strings.Repeat("x", 193)},
		{"panic: " + strings.Repeat("x", 192) + "é", false, "panic: " + strings.Repeat("x", 192)},
	} {
		if got := lacksMemory(test.report); got != test.memory {
			t.Errorf("%q: no memory: %v", test.report, got)
		}
		if got := crashLine(test.report); got != test.line {
			t.Errorf("%q: %q, want %q", test.report, got, test.line)
		}
	}
}

// TestManifestIsReadOnce: a worker that has a version of the manifest does not read it again for
// that version or an older one.
func TestManifestIsReadOnce(t *testing.T) {
	saved := manifest.New()
	var read []uint64
	m := manifests{folder: t.TempDir(), loaded: func(m *manifest.Manifest) { read = append(read, m.Version) }}
	for _, step := range []struct {
		saved, asked, want uint64 // want is 0 for an error
		read               []uint64
	}{
		{5, 6, 0, nil}, {5, 5, 5, []uint64{5}}, {7, 5, 5, []uint64{5}}, {7, 4, 5, []uint64{5}},
		{7, 6, 7, []uint64{5, 7}}, {7, 7, 7, []uint64{5, 7}}, {7, 8, 0, []uint64{5, 7}},
	} {
		saved.Version = step.saved
		if err := saved.Save(m.folder); err != nil {
			t.Fatal(err)
		}
		var version uint64
		got, err := m.load(step.asked)
		if err == nil {
			version = got.Version
		}
		if version != step.want || !slices.Equal(read, step.read) {
			t.Errorf("version %d of %d is saved: got %d, %v; want %d; read %v, want %v", step.asked, step.saved, version, err, step.want, read, step.read)
		}
	}
}

// TestPlacesOfErrors finds line and column of what DuckDB marks with a caret.
func TestPlacesOfErrors(t *testing.T) {
	for _, test := range []struct {
		message, sql string
		want         protocol.QueryError
	}{
		{"Binder Error: no\n\nLINE 1: SELECT x\n               ^", "SELECT x", protocol.QueryError{Message: "no", Line: 1, Column: 8}},
		{"Binder Error: no\n\nLINE 2: x\n        ^", "SELECT\nx", protocol.QueryError{Message: "no", Line: 2, Column: 1}},
		{"Binder Error: no\n\nLINE 1: ...éé, xx\n               ^", "SELECT ééé, xx", protocol.QueryError{Message: "no", Line: 1, Column: 13}},
		{"Binder Error: no\n\nLINE 1: x\n", "x", protocol.QueryError{Message: "no", Line: 1, Column: 1}},
		{"Binder Error: no\n\nLINE 1: x\n                      ^", "x", protocol.QueryError{Message: "no", Line: 1, Column: 1}},
		{"Binder Error: column q\nCandidate bindings: \"a\",\n \"b\"", "q", protocol.QueryError{Message: "column q", Hint: `Candidate bindings: "a", "b"`}},
		{"Catalog Error: f\nDid you mean \"g\"?\n\nLINE 1: f()\n        ^", "f()", protocol.QueryError{Message: "f", Hint: `Did you mean "g"?`, Line: 1, Column: 1}},
		{"Out of Memory Error: no\n\nPossible solutions:\n* SET memory", "x", protocol.QueryError{Message: "no"}},
		{"just words", "x", protocol.QueryError{Message: "just words"}},
	} {
		got, ok := errors.AsType[*protocol.QueryError](queryError(duckError(test.message), test.sql))
		if !ok || *got != test.want {
			t.Errorf("%q: %+v, want %+v", test.message, got, test.want)
		}
	}
	if err := queryError(io.ErrUnexpectedEOF, "x"); err != io.ErrUnexpectedEOF {
		t.Errorf("an error that is not DuckDB's: %v", err)
	}
	for message, want := range map[string]bool{
		"Out of Memory Error: x": true, "IO Error: Failed to pin block": true, "failed to allocate data of size 3": true, "std::bad_alloc": true,
		"Could not allocate block": true, "Binder Error: Out of Memory": false, "": false,
	} {
		if got := outOfMemory(fmt.Errorf("query: %w", duckError(message))); got != want {
			t.Errorf("%q: out of memory: %v", message, got)
		}
	}
	if outOfMemory(errors.New("Out of Memory Error: x")) {
		t.Error("another's error is DuckDB's")
	}
	for want, q := range map[string]protocol.QueryError{"m": {Message: "m"}, "m (h)": {Message: "m", Hint: "h"}, "line 2, column 3: m (h)": {Message: "m", Hint: "h", Line: 2, Column: 3}} {
		if got := q.Error(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestPlacesInPredicates holds that a place in a statement becomes one in the predicate, whose
// first line begins behind other words.
func TestPlacesInPredicates(t *testing.T) {
	const begin, predicate = "SELECT 1 FROM events WHERE ", "a = 1 AND\n                              b = 2"
	for message, want := range map[string]protocol.QueryError{
		"Binder Error: no\n\nLINE 1: SELECT 1 FROM events WHERE a = 1 AND\n                                   ^":     {Message: "no", Line: 1, Column: 1},
		"Binder Error: no\n\nLINE 1: SELECT 1 FROM events WHERE a = 1 AND\n                                       ^": {Message: "no", Line: 1, Column: 5},
		"Binder Error: no\n\nLINE 1: SELECT 1 FROM events WHERE a = 1 AND\n               ^":                         {Message: "no", Line: 1, Column: 1},
		"Binder Error: no\n\nLINE 2:                               b = 2\n                                      ^":   {Message: "no", Line: 2, Column: 31},
		"Binder Error: no": {Message: "no"},
	} {
		got, ok := errors.AsType[*protocol.QueryError](predicateError(begin, begin+predicate, duckError(message)))
		if !ok || *got != want {
			t.Errorf("%q: %+v, want %+v", message, got, want)
		}
	}
	for _, err := range []error{nil, io.ErrUnexpectedEOF} {
		if got := predicateError(begin, begin+predicate, err); got != err {
			t.Errorf("%v instead of %v", got, err)
		}
	}
}

// TestMessages reads messages back, as long as they may be, and streams that end within one.
func TestMessages(t *testing.T) {
	var b bytes.Buffer
	w := protocol.NewWriter(&b)
	if err := errors.Join(w.Write(protocol.RowsMessage, []byte("ab"), nil, []byte("c")), w.Write(protocol.EndOfRequest), w.WriteJSON(protocol.DoneMessage, map[string]int{"a": 1}), w.Flush()); err != nil {
		t.Fatal(err)
	}
	whole := bytes.Clone(b.Bytes())
	in := protocol.NewReader(&b)
	for _, want := range []struct {
		kind protocol.Kind
		text string
	}{{protocol.RowsMessage, "abc"}, {protocol.EndOfRequest, ""}, {protocol.DoneMessage, `{"a":1}`}} {
		if kind, text, err := in.Read(); kind != want.kind || string(text) != want.text || err != nil {
			t.Errorf("read %d %q, %v; want %d %q", kind, text, err, want.kind, want.text)
		}
	}
	if _, _, err := in.Read(); err != io.ErrUnexpectedEOF {
		t.Errorf("behind the last message: %v", err)
	}
	for n := range protocol.HeadBytes + 3 {
		if kind, text, err := protocol.NewReader(bytes.NewReader(whole[:n])).Read(); err != io.ErrUnexpectedEOF {
			t.Errorf("the first %d bytes: %d %q, %v", n, kind, text, err)
		}
	}
	for size, want := range map[uint32]error{protocol.MaxBytes: nil, protocol.MaxBytes + 1: protocol.ErrInvalidMessage, math.MaxUint32: protocol.ErrInvalidMessage} {
		head := []byte{byte(protocol.StreamMessage), byte(size), byte(size >> 8), byte(size >> 16), byte(size >> 24)}
		if kind, n, err := protocol.NewReader(bytes.NewReader(head)).ReadHead(); err != want || err == nil && (kind != protocol.StreamMessage || n != int(size)) {
			t.Errorf("a message of %d bytes: %d bytes, %v; want %v", size, n, err, want)
		}
	}
	if err := w.WriteJSON(protocol.DoneMessage, func() {}); err == nil {
		t.Error("a function was written as JSON")
	}
	full := protocol.NewWriter(failing{})
	if err := errors.Join(full.Write(protocol.RowsMessage, make([]byte, 128<<10)), full.Flush()); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("to where nobody reads: %v", err)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// TestRowsOfRequests reads the messages that follow a request: rows of a table, and nothing else.
func TestRowsOfRequests(t *testing.T) {
	for _, test := range []struct {
		kind protocol.Kind
		body string
		err  error
	}{
		{protocol.RowsMessage, "\x02\x00\x00\x00[1]", nil}, {protocol.RowsMessage, "\x02\x00\x00\x00", nil},
		{protocol.RowsMessage, "\x02\x00\x00", protocol.ErrInvalidMessage}, {protocol.RowsMessage, "", protocol.ErrInvalidMessage},
		{protocol.ValuesMessage, "\x02\x00\x00\x00[1]", protocol.ErrInvalidMessage}, {protocol.RequestMessage, "{}", protocol.ErrInvalidMessage},
	} {
		var b bytes.Buffer
		w := protocol.NewWriter(&b)
		if err := errors.Join(w.Write(test.kind, []byte(test.body)), w.Flush()); err != nil {
			t.Fatal(err)
		}
		j := &job{in: protocol.NewReader(&b)}
		table, rows, err := j.nextRows()
		if err != test.err || err == nil && (table != 2 || string(rows) != test.body[4:]) {
			t.Errorf("message %d %q: table %d, rows %q, %v", test.kind, test.body, table, rows, err)
		}
		if _, _, err := j.nextRows(); err != protocol.ErrCanceled {
			t.Errorf("at the end of the stream: %v", err)
		}
	}
}

// TestEndOf reads what ends an answer.
func TestEndOf(t *testing.T) {
	if err := endOf(protocol.DoneMessage, nil); err != io.EOF {
		t.Errorf("the end: %v", err)
	}
	for _, kind := range []protocol.Kind{protocol.RequestMessage, protocol.StreamMessage, 0, 99} {
		if err := endOf(kind, nil); err != protocol.ErrInvalidMessage {
			t.Errorf("message %d: %v", kind, err)
		}
	}
	if err := endOf(protocol.FailedMessage, []byte("{")); err == nil || err == io.EOF {
		t.Errorf("a failure that cannot be read: %v", err)
	}
	text, err := json.Marshal(protocol.NewFailure(&protocol.QueryError{Message: "m", Line: 3}))
	if err != nil {
		t.Fatal(err)
	}
	if q, ok := errors.AsType[*protocol.QueryError](endOf(protocol.FailedMessage, text)); !ok || *q != (protocol.QueryError{Message: "m", Line: 3}) {
		t.Errorf("a failure: %v", q)
	}
}

// TestTextOfValues spells values that consist of others for people, which is as JSON.
func TestTextOfValues(t *testing.T) {
	for _, test := range []struct {
		value any
		want  string
	}{
		{[]any{}, `[]`},
		{[]any{int64(1)}, `[1]`},
		{[]any{int64(1), nil, 2.5}, `[1,null,2.5]`},
		{[]any{[]any{"a", "<\""}, []any{true, false}}, `[["a","<\""],[true,false]]`},
		{protocol.Struct{}, `{}`},
		{protocol.Struct{{Name: "a", Value: uint64(1)}}, `{"a":1}`},
		{protocol.Struct{{Name: "a", Value: math.Inf(1)}, {Name: "b c", Value: protocol.JSON(`{"x":1}`)}, {Name: "d", Value: []any{protocol.Struct{{Name: "e", Value: float32(0.1)}, {Name: "f", Value: []byte{0xff}}}}}},
			`{"a":null,"b c":{"x":1},"d":[{"e":0.1,"f":"/w=="}]}`},
	} {
		if got := protocol.Text(test.value); got != test.want {
			t.Errorf("%v became %s, want %s", test.value, got, test.want)
		}
	}
}

// TestSendExternal sends the rows of tables in pieces of many rows: each is an array of JSON, and
// together they are all rows, in order.
func TestSendExternal(t *testing.T) {
	rows := func(n, size int, last error) func(yield func(any, error) bool) {
		return func(yield func(any, error) bool) {
			for i := range n {
				if !yield(map[string]any{"i": i, "text": strings.Repeat("x", size)}, nil) {
					return
				}
			}
			if last != nil {
				yield(nil, last)
			}
		}
	}
	none, last := External{Name: "none", Rows: rows(0, 0, nil)}, 3<<8+2
	tables := append(slices.Repeat([]External{none}, last), External{Name: "one", Rows: rows(1, 3, nil)})
	tables[1] = External{Name: "large", Rows: rows(50, 100_000, nil)}
	var b bytes.Buffer
	w := protocol.NewWriter(&b)
	if err := errors.Join(sendExternal(w, tables), w.Flush()); err != nil {
		t.Fatal(err)
	}
	got, pieces := map[int]int{}, 0
	for in := protocol.NewReader(&b); ; pieces++ {
		kind, text, err := in.Read()
		if err != nil {
			break
		}
		index := int(text[0]) | int(text[1])<<8
		var some []struct{ I int }
		if err := json.Unmarshal(text[4:], &some); kind != protocol.RowsMessage || err != nil || len(some) == 0 || len(text) > 2*chunkBytes {
			t.Fatalf("message %d with %d rows in %d bytes: %v", kind, len(some), len(text), err)
		}
		for _, row := range some {
			if row.I != got[index] {
				t.Errorf("table %d: row %d comes instead of %d", index, row.I, got[index])
			}
			got[index]++
		}
	}
	if !maps.Equal(got, map[int]int{1: 50, last: 1}) || pieces < 5 || pieces > 10 {
		t.Errorf("rows %v in %d pieces", got, pieces)
	}
	failed := errors.New("failed")
	if err := sendExternal(w, []External{{Name: "t", Rows: rows(1, 1, failed)}}); !errors.Is(err, failed) || !strings.Contains(err.Error(), "copy t for the query") {
		t.Errorf("rows that fail: %v", err)
	}
	explained := &protocol.QueryError{Message: "m"}
	if err := sendExternal(w, []External{{Name: "t", Rows: rows(1, 1, explained)}}); err != error(explained) {
		t.Errorf("rows that fail with an explanation: %v", err)
	}
	if err := sendExternal(w, []External{{Name: "t", Rows: func(yield func(any, error) bool) { yield(func() {}, nil) }}}); err == nil {
		t.Error("a row that is no JSON was sent")
	}
	for _, size := range []int{10, 2 << 20} {
		if err := sendExternal(protocol.NewWriter(failing{}), []External{{Name: "t", Rows: rows(3, size, nil)}}); size > chunkBytes && !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("rows of %d bytes, to where nobody reads: %v", size, err)
		}
	}
}

// TestPreparedDatabase takes the last free database of a worker for queries: another is made
// before it is needed.
func TestPreparedDatabase(t *testing.T) {
	d := databases{settings: protocol.Settings{Folder: t.TempDir(), Role: protocol.QueryRole, Threads: 1}}
	first, err := d.take(64 << 20)
	if err != nil {
		t.Fatal(err)
	}
	free := func() int {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.free)
	}
	for start := time.Now(); free() == 0; time.Sleep(time.Millisecond) {
		if time.Since(start) > 10*time.Second {
			t.Fatal("no database is prepared")
		}
	}
	second, err := d.take(64 << 20)
	if err != nil || second.number != 2 {
		t.Errorf("took database %d, want 2, which was prepared: %v", second.number, err)
	}
	d.put(first, true)
	d.put(second, true)
}

// TestFreeDatabases uses databases again: only with the memory limit that they have, not after an
// error, and no more than a few are kept.
func TestFreeDatabases(t *testing.T) {
	d := databases{settings: protocol.Settings{Folder: t.TempDir(), Role: protocol.MergeRole, Threads: 1}}
	take := func(memory int64, again *database) *database {
		t.Helper()
		one, err := d.take(memory)
		if err != nil {
			t.Fatal(err)
		}
		if again != nil && one != again || again == nil && one.number != uint64(d.made) {
			t.Errorf("database %d with %d bytes of memory, of %d that were made", one.number, memory, d.made)
		}
		return one
	}
	const small, large = 64 << 20, 128 << 20
	first := take(small, nil)
	d.put(first, false)
	second := take(large, nil)
	d.put(second, false)
	take(small, first)
	take(large, second)
	d.put(second, true)
	third := take(large, nil)
	fourth := take(large, nil)
	d.put(first, false)
	d.put(third, false)
	d.put(fourth, false) // one too many
	take(large, third)
	d.put(take(large, nil), true)
	d.put(third, true)
	take(small, first)
	d.put(first, true)
}

// TestClosedDatabases holds that a database which goes ends its threads.
func TestClosedDatabases(t *testing.T) {
	const threads, rounds = 8, 10
	count := func() int {
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Fatal(err)
		}
		return len(tasks)
	}
	d := databases{settings: protocol.Settings{Folder: t.TempDir(), Role: protocol.QueryRole, Threads: threads}}
	before := count()
	for range rounds {
		one, err := d.take(64 << 20)
		if err != nil {
			t.Fatal(err)
		}
		if started := count() - before; started < threads/2 {
			t.Fatalf("a database has started %d threads", started)
		}
		d.put(one, true)
	}
	// The runtime may have started some of its own.
	if left := count() - before; left > threads*rounds/2 {
		t.Errorf("%d threads are left of %d databases with %d each", left, rounds, threads)
	}
}

func TestParamsAreEncoded(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	params := []protocol.Param{
		{Name: "a"}, {Value: true}, {Value: false}, {Value: int64(math.MinInt64)}, {Value: 1.5}, {Value: math.Inf(1)}, {Value: "x"}, {Value: ""},
		{Value: []byte{0, 255}}, {Value: at}, {Value: protocol.TimestampNS(-1)},
	}
	encoded, err := protocol.EncodeParams(params)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(encoded)
	if err != nil {
		t.Fatal(err)
	}
	var read []protocol.JSONParam
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	for i, got := range protocol.DecodeParams(read) {
		if !reflect.DeepEqual(params[i], got) {
			t.Errorf("%#v is passed on as %#v", params[i], got)
		}
	}
	if wide, err := protocol.EncodeParams([]protocol.Param{{Value: 7}}); err != nil || protocol.DecodeParams(wide)[0].Value != int64(7) {
		t.Errorf("an int: %v", err)
	}
	if _, err := protocol.EncodeParams([]protocol.Param{{Value: uint8(7)}}); err == nil || !strings.Contains(err.Error(), "a parameter cannot be a uint8") {
		t.Errorf("a type that no parameter has: %v", err)
	}
}

// TestUnionOfBounds holds what two references to a table need together.
func TestUnionOfBounds(t *testing.T) {
	a := bounds{min: 10, max: 20, equal: map[string][]string{"x": {"1"}, "y": {"2"}}}
	b := bounds{min: 5, max: 15, equal: map[string][]string{"x": {"3"}}}
	want := bounds{min: 5, max: 20, equal: map[string][]string{"x": {"1", "3"}}}
	if got := a.union(b); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	want.equal["x"] = []string{"3", "1"}
	if got := b.union(a); !reflect.DeepEqual(got, want) || len(a.equal["x"]) != 1 {
		t.Errorf("%+v", got)
	}
	if got := a.union(unbounded); got.min != math.MinInt64 || got.max != math.MaxInt64 || len(got.equal) != 0 {
		t.Errorf("with one that needs all: %+v", got)
	}
}

// TestRangesOfRowGroups finds the row groups that may have values, in as few ranges as there
// can be.
func TestRangesOfRowGroups(t *testing.T) {
	filter := func(values ...string) bloomFilter {
		f := newBloomFilter(len(values))
		for _, v := range values {
			f.add(hashValue(v))
		}
		return f
	}
	file := &bloomFile{groups: []int64{10, 10, 5}, filters: map[int32][]bloomFilter{
		2: {filter("a"), filter("b"), filter("a", "b")}, 3: {filter("x"), filter("x"), filter("y")},
	}}
	for _, test := range []struct {
		wanted map[int32][]string
		want   []rowRange
	}{
		{nil, []rowRange{{0, 25}}},
		{map[int32][]string{2: {"a"}}, []rowRange{{0, 10}, {20, 25}}},
		{map[int32][]string{2: {"b"}}, []rowRange{{10, 25}}},
		{map[int32][]string{2: {"a", "b"}}, []rowRange{{0, 25}}},
		{map[int32][]string{2: {"none"}}, nil},
		{map[int32][]string{2: {"a"}, 3: {"x"}}, []rowRange{{0, 10}}},
		{map[int32][]string{2: {"b"}, 3: {"y"}}, []rowRange{{20, 25}}},
		{map[int32][]string{9: {"a"}}, []rowRange{{0, 25}}}, // a column without filters
	} {
		hashes := map[int32][]uint64{}
		for id, values := range test.wanted {
			for _, v := range values {
				hashes[id] = append(hashes[id], hashValue(v))
			}
		}
		if got := file.find(hashes); !slices.Equal(got, test.want) {
			t.Errorf("%v: rows %v, want %v", test.wanted, got, test.want)
		}
	}
	for values, bytes := range map[int]int{0: 32, 10: 32, 11: 64, 21: 64, 22: 96, 16_384: 32 * 1537} {
		if got := len(newBloomFilter(values)); got != bytes {
			t.Errorf("a filter of %d values has %d bytes, want %d", values, got, bytes)
		}
	}
}

// TestRememberedStatements holds how many statements are remembered, and which go.
func TestRememberedStatements(t *testing.T) {
	c := openTestConn(t)
	var s statements
	sql := func(i int) string { return fmt.Sprintf("SELECT %d", i) }
	parse := func(text string) *statement {
		t.Helper()
		parsed, err := s.parse(c, text)
		if err != nil || parsed == nil {
			t.Fatalf("%.20s: %v", text, err)
		}
		return parsed
	}
	first := parse(sql(0))
	for i := range statementsMax {
		parse(sql(i))
	}
	if parse(sql(0)) != first {
		t.Error("the first of as many as are remembered was forgotten")
	}
	last := parse(sql(statementsMax))
	if parse(sql(0)) == first {
		t.Error("one more was remembered, and none forgotten")
	}
	if parse(sql(statementsMax)) != last || len(s.parsed) != statementsMax || len(s.order) != statementsMax {
		t.Errorf("%d statements are remembered, in an order of %d", len(s.parsed), len(s.order))
	}
	for length, remembered := range map[int]bool{rememberedMax: true, rememberedMax + 1: false} {
		text := "SELECT 1" + strings.Repeat(" ", length-8)
		before := parse(text)
		if again := parse(text) == before; again != remembered {
			t.Errorf("a statement of %d bytes is remembered: %v", length, again)
		}
	}
}

// TestTablesOfStatements: a statement reads the tables that it names, and every table if it lists
// them.
func TestTablesOfStatements(t *testing.T) {
	c := openTestConn(t)
	for sql, others := range map[string]bool{
		"SELECT a FROM wanted": false, "FROM Wanted w WHERE EXISTS (FROM wanted)": false, "SUMMARIZE wanted": true,
		"FROM wanted, range(3)": true, "FROM wanted, duckdb_tables": true, "FROM wanted, information_schema.tables": true,
	} {
		s, err := c.parse(sql)
		if err != nil || s == nil {
			t.Errorf("%s: %v", sql, err)
			continue
		}
		if !s.reads("WANTED") || s.reads("other") != others {
			t.Errorf("%s reads the table that it names: %v, others: %v, want %v", sql, s.reads("WANTED"), s.reads("other"), others)
		}
	}
}

// TestCutNewest estimates from when on there are so many rows.
func TestCutNewest(t *testing.T) {
	parts := []part{{0, 99, 100}, {50, 149, 100}, {1000, 1000, 7}}
	for _, test := range []struct {
		rows, after int64
		ok          bool
	}{{7, 1000, true}, {8, 149, true}, {57, 100, true}, {206, 1, true}, {207, 0, false}, {1000, 0, false}} {
		after, ok := cutNewest(parts, test.rows)
		if ok != test.ok || ok && (after > test.after || rowsFrom(parts, after) < float64(test.rows)) || ok && rowsFrom(parts, after+1) >= float64(test.rows) {
			t.Errorf("the newest %d rows: from %d on, %v; want %d, %v", test.rows, after, ok, test.after, test.ok)
		}
	}
	for after, want := range map[int64]float64{1001: 0, 1000: 7, 150: 7, 149: 8, 99: 7 + 51 + 1, 0: 207, -50: 207} {
		if got := rowsFrom(parts, after); math.Abs(got-want) > 1e-9 {
			t.Errorf("from %d on there are %v rows, want %v", after, got, want)
		}
	}
}

// TestLogFiles reads frames around damaged parts, up to an end and not beyond, and closes files
// that nobody reads.
func TestLogFiles(t *testing.T) {
	f := newFolder(t, Options{})
	f.logSize = 1 << 16
	table := f.addTable("events")
	var begins []int64
	for i := range 4 {
		begins = append(begins, wal.FirstFrame)
		if len(f.ends) > 0 {
			begins[i] = f.ends[0].End
		}
		f.appendFrame(1, frameOf(table, 2, testRow(10*i)))
	}
	f.appendFrame(2, frameOf(table, 3, testRow(100)))
	f.appendFrame(3, binary.LittleEndian.AppendUint64(nil, 1<<20))
	unreadable := frameOf(table, 3, testRow(100))
	clear(unreadable[frame.PrefixSize+1:])
	f.appendFrame(4, unreadable)
	long, unread := f.ends[2], f.ends[3]
	f.ends = f.ends[:2]
	logs := newLogFiles(manifest.LogFolder(f.path))
	view := func(first uint64, ends ...wal.FileEnd) (rows []int) {
		t.Helper()
		v, err := logs.open(first, ends)
		if err != nil {
			t.Fatal(err)
		}
		defer v.close()
		for _, frame := range v.of(table.ID) {
			rows = append(rows, int(frame.columns.Vectors[0].Ints[0]))
		}
		if len(v.of(99)) > 0 {
			t.Error("a table that is not there has frames")
		}
		return rows
	}
	upTo := func(n int) wal.FileEnd { return wal.FileEnd{Number: 1, End: begins[n]} }
	for _, test := range []struct {
		got, want []int
	}{
		{view(1, upTo(0)), nil},
		{view(1, upTo(2)), []int{0, 10}},
		{view(1, f.ends...), []int{0, 10, 20, 30, 100}},
		{view(1, upTo(1)), []int{0}}, // one that began before sees no more than it did
		{view(2, f.ends...), []int{100}},
		{view(3, f.ends...), nil},
	} {
		if !slices.Equal(test.got, test.want) {
			t.Errorf("rows %v, want %v", test.got, test.want)
		}
	}
	held, err := logs.open(1, f.ends)
	if err != nil {
		t.Fatal(err)
	}
	view(2, f.ends[1])
	if len(logs.files) != 2 {
		t.Errorf("%d files are mapped while a query reads both", len(logs.files))
	}
	held.close()
	view(2, f.ends[1])
	if len(logs.files) != 1 || logs.files[2] == nil {
		t.Errorf("%d files are mapped, and one is listed", len(logs.files))
	}
	damaged := f.ends[0]
	damaged.Damaged = []wal.Span{{Begin: begins[1], End: begins[3]}}
	if got := view(1, damaged); !slices.Equal(got, []int{0, 30}) {
		t.Errorf("around a damaged part: rows %v", got)
	}
	for name, end := range map[string]wal.FileEnd{
		"is missing":                {Number: 9, End: 4096},
		"has no frame where one is": {Number: 2, End: f.ends[1].End + 64},
		"is shorter than its end":   {Number: 2, End: 1 << 20},
		"is shorter than a frame":   long,
		"has a frame without sense": unread,
	} {
		if _, err := logs.open(1, []wal.FileEnd{end}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("read file %d of the log", end.Number)) {
			t.Errorf("a file that %s: %v", name, err)
		}
	}
}

// TestFilteredRows reads the rows of frames with some values, which the scan leaves out itself:
// texts of each length, integers, nulls, at every place of a chunk.
func TestFilteredRows(t *testing.T) {
	f := newFolder(t, Options{})
	table := f.addTable("events", column(5, "key", event.String), column(6, "n", event.Int64))
	first := 0
	for _, rows := range []int{1, 2047, 2048, 2049, 5000} {
		fill := testRow(first)
		f.appendFrame(1, frameOf(table, rows, func(c manifest.Column, v *event.Vector, row int) {
			id := first + row
			switch c.Name {
			case "key":
				addText(v, strings.Repeat("k", id%20))
				v.Null[row] = uint8(id / 100 % 2)
			case "n":
				v.Ints = append(v.Ints, int64(id%7-3))
				v.Null[row] = uint8(id / 1000 % 2)
			default:
				fill(c, v, row)
			}
		}))
		first += rows
	}
	for _, where := range []string{
		`key = ''`, `key = 'k'`, `key = 'kkkkkkkkkkkk'`, `key = 'kkkkkkkkkkkkk'`, `key IN ('kkk', 'kkkkkkkkkkkkkkkkkkk', 'x')`, `key = 'x'`, `n = 0`, `n = -3`, `n IN (1, 2, 99)`, `n = 99`,
		`key = 'kk' AND n = 1`, `key IN ('', 'kkkk') AND n IN (-1, 3)`, `id = 0`, `id = ` + fmt.Sprint(first-1), `id IN (0, 1, 2047, 2048, 2049, 4095, 4096, 6145)`,
	} {
		chosen, all := `SELECT count(*), sum(id), count(n), min(key) FROM events WHERE `+where, `SELECT count(*), sum(id), count(n), min(key) FROM events WHERE (`+where+`) OR id = -1`
		if got, want := f.ask(chosen), f.ask(all); got != want {
			t.Errorf("%s: %s, want %s", where, got, want)
		}
	}
}

// TestClosedBlooms holds that filters of files which are gone are not kept mapped.
func TestClosedBlooms(t *testing.T) {
	f := newFolder(t, Options{})
	table := f.addTable("events")
	f.appendFrame(1, frameOf(table, 100, testRow(0)))
	f.seal(1)
	f.appendFrame(2, frameOf(table, 100, testRow(100)))
	f.seal(2)
	var b blooms
	b.choose(f.path, table, selection{files: table.Files, equal: map[string][]string{"event": {"event--0"}}})
	if len(b.files) != 2 || b.files[table.Path(f.path, table.Files[0].Bloom)].mapped == nil {
		t.Fatalf("%d files are mapped", len(b.files))
	}
	table.Files = table.Files[1:]
	b.keep(f.path, f.m)
	if len(b.files) != 1 || b.files[table.Path(f.path, table.Files[0].Bloom)] == nil {
		t.Errorf("%d files are mapped, and one is there", len(b.files))
	}
	missing := table.Path(f.path, "nothing.bloom")
	if got := b.open(missing); got == nil || len(got.groups) > 0 || got.mapped != nil {
		t.Errorf("a file that is missing: %+v", got)
	}
	if err := os.WriteFile(missing, []byte("nothing\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := b.open(missing); len(got.groups) > 0 {
		t.Error("what cannot be read is looked at again")
	}
	b.keep(f.path, f.m)
	if diff := cmp.Diff(1, len(b.files)); diff != "" {
		t.Error(diff)
	}
}
