package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/frame"
)

// TestContradictingRecords decodes records whose lengths and offsets contradict each other, as
// no AppendEntry makes them.
func TestContradictingRecords(t *testing.T) {
	whole := AppendEntry(nil, everything(3))[frame.PrefixSize:]
	column := func(i int) int { return headSize + i*columnSize }
	end := uint32(len(whole) - trailerSize)
	u32 := func(at int, value uint32) func(b []byte) []byte {
		return func(b []byte) []byte { binary.LittleEndian.PutUint32(b[at:], value); return b }
	}
	at := func(b int) uint32 { return binary.LittleEndian.Uint32(whole[b:]) }
	for name, spoil := range map[string]func(b []byte) []byte{
		"nothing":                      func(b []byte) []byte { return nil },
		"no head":                      func(b []byte) []byte { return b[:headSize+trailerSize-8] },
		"not a multiple of 8":          func(b []byte) []byte { return b[:len(b)-1] },
		"cut off":                      func(b []byte) []byte { return b[:len(b)-64] },
		"more columns than bytes":      u32(20, (end-headSize)/columnSize+1),
		"names in the head":            u32(72, headSize-8),
		"names beside a multiple of 8": u32(72, at(72)+1),
		"names behind the record":      u32(72, end+8),
		"a name too long":              u32(64, end),
		"a partition too long":         u32(68, end),
		"more fingerprints than bytes": func(b []byte) []byte { binary.LittleEndian.PutUint64(b[48:], 1<<62); return b },
		"fingerprints behind":          u32(76, end),
		"fingerprints in the head":     u32(76, 8),
		"a column without a type":      func(b []byte) []byte { b[column(0)+4] = 0; return b },
		"a column without a layout":    func(b []byte) []byte { b[column(0)+4], b[column(0)+5] = 0, 0; return b },
		"another layout":               func(b []byte) []byte { b[column(0)+5] = byte(floats); return b },
		"null bytes behind":            u32(column(0)+8, end),
		"null bytes in the head":       u32(column(0)+8, 8),
		"values behind":                u32(column(0)+12, end),
		"values in the head":           u32(column(0)+12, 0),
		"a value too few":              u32(column(0)+16, 16),
		"a value too many":             u32(column(0)+16, 32),
		"a float too few":              u32(column(2)+16, 16),
		"ends in the head":             u32(column(1)+20, 0),
		"ends behind":                  u32(column(1)+20, end),
		"ends that return":             u32(int(at(column(1)+20)), 1000),
		"an end behind the bytes":      u32(int(at(column(1)+20))+8, at(column(1)+16)+1),
		"an end before the bytes end":  u32(int(at(column(1)+20))+8, at(column(1)+16)-1),
		"another number of rows":       u32(16, 4),
		"2^31 rows":                    u32(16, 1<<31),
	} {
		var e Entry
		if err := e.Decode(spoil(slices.Clone(whole))); !errors.Is(err, errRecord) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var e Entry
	if err := e.Decode(whole); err != nil || e.Rows() != 3 {
		t.Errorf("unspoilt: %v", err)
	}
	if n := (&Entry{Kind: Reset}).Rows(); n != 0 {
		t.Errorf("an entry without columns has %d rows", n)
	}
}

// everything is an entry with a column of each layout, nulls and fingerprints.
func everything(rows int) *Entry {
	e := numbered(1, rows)
	e.IDs = append(e.IDs, 6)
	e.Columns.Spec = append(e.Columns.Spec, event.Column{Type: event.Float64})
	e.Columns.Vectors = append(e.Columns.Vectors, event.Vector{Floats: make([]float64, rows)})
	for i := range e.Columns.Vectors {
		e.Columns.Vectors[i].Null = append(make([]uint8, rows-1), 1)
	}
	return e
}

// TestRefused asks for what no log does.
func TestRefused(t *testing.T) {
	folder := t.TempDir()
	if _, err := Open(folder, Options{Store: strings.Repeat("s", storeMax+1)}, nil); err == nil || !strings.Contains(err.Error(), "more than 32 bytes") {
		t.Errorf("a long id: %v", err)
	}
	o := small
	o.Store = strings.Repeat("s", storeMax)
	l := open(t, folder, o)
	put(t, l, 0, 1)
	if l, visited := reopen(t, l, folder, o); !slices.Equal(visited, upTo(1)) {
		t.Errorf("with the longest id, %s, visited %v", l.options.Store, visited)
	}
	good := AppendEntry(nil, numbered(1, 1))
	changed := func(length int) []byte {
		f := slices.Clone(good)
		frame.PutPrefix(f, length, 0)
		return f
	}
	l = open(t, t.TempDir(), small)
	for name, frames := range map[string][]byte{
		"nothing":                 nil,
		"a frame that is cut off": good[:len(good)-8],
		"a frame and a half":      append(slices.Clone(good), good[:len(good)/2]...),
		"no trailer":              changed(trailerSize - 8),
		"nothing but a trailer":   changed(trailerSize),
		"not a multiple of 8":     changed(trailerSize + 1),
		"longer than it is":       changed(len(good)),
	} {
		if _, err := l.Append(t.Context(), frames); err == nil {
			t.Errorf("%s was appended", name)
		}
	}
	if end := l.End(); end != (Position{File: 1, Offset: FirstFrame}) || len(l.Ends()) > 0 {
		t.Errorf("the log ends at %v", end)
	}
	o = small
	o.ReadOnly = true
	readOnly := open(t, folder, Options{Store: strings.Repeat("s", storeMax), ReadOnly: true})
	for what, err := range map[string]error{
		"RemoveBefore": readOnly.RemoveBefore(9), "Rotate": readOnly.Rotate(t.Context()), "Scrub": readOnly.Scrub(t.Context()),
		"Append": func() error { _, err := readOnly.Append(t.Context(), good); return err }(),
	} {
		if !errors.Is(err, ErrReadOnly) {
			t.Errorf("%s of a log that is open read-only: %v", what, err)
		}
	}
	_ = l.Close()
	if err := l.Scrub(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("Scrub after Close: %v", err)
	}
}

// TestUndecodable opens a log with a frame that is whole and holds no entry: no later version of
// a file is damage, and nothing is dropped.
func TestUndecodable(t *testing.T) {
	folder := t.TempDir()
	l := open(t, folder, small)
	at := put(t, l, 0, 1)
	end := l.End()
	record := frame.Begin(nil)
	record = append(record, make([]byte, 24)...) // too short for any entry
	if _, err := l.Append(t.Context(), finishRecord(record, 0)); err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	_, err := Open(folder, small, nil)
	if err == nil || !strings.Contains(err.Error(), "00001.log: offset "+strings.TrimPrefix(end.String(), "1:")+": "+errRecord.Error()) {
		t.Errorf("entry at %v, and one that cannot be decoded at %v: %v", at, end, err)
	}
	if _, damage := errors.AsType[*DamageError](err); damage {
		t.Errorf("%T", err)
	}
}

func TestDamageIsNamed(t *testing.T) {
	folder := t.TempDir()
	o := Options{FileSize: 1200}
	build(t, folder, o, 20, 5)
	for _, number := range []uint64{2, 3} {
		if err := os.Remove(Path(folder, number)); err != nil {
			t.Fatal(err)
		}
	}
	changeFile(t, folder, 1, func(b []byte) []byte { clear(b[headerSize+64:][:64]); return b })
	_, err := Open(folder, o, nil)
	damage, ok := errors.AsType[*DamageError](err)
	if !ok || len(damage.Damage) != 2 {
		t.Fatalf("%v", err)
	}
	for _, d := range damage.Damage {
		want := Path(folder, 2) + ": and the 1 files after it are missing"
		if d.Path == Path(folder, 1) {
			want = Path(folder, 1) + ": the "
		}
		if !strings.HasPrefix(d.String(), want) {
			t.Errorf("%s, want %s", d, want)
		}
	}
	if hint := damage.ErrorHint(); !strings.Contains(hint, "restore the folder from a backup") {
		t.Error(hint)
	}
	if !strings.Contains(err.Error(), "; ") || !strings.HasPrefix(damage.Error(), "the event log has lost an unknown number of rows: ") {
		t.Error(err)
	}
}

// TestOddNames holds that only files of the log are taken for such.
func TestOddNames(t *testing.T) {
	folder := t.TempDir()
	build(t, folder, small, 2, 1)
	content, err := os.ReadFile(Path(folder, 1))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"2.log", "00000000000000000002", "00000000000000000002.log.old", "-0000000000000000002.log", "+0000000000000000002.log", "99999999999999999999.log"} {
		if err := os.WriteFile(folder+"/"+name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if l, visited := reopen(t, nil, folder, small); !slices.Equal(visited, upTo(2)) || len(l.Ends()) != 1 {
		t.Errorf("visited %v, files %+v", visited, l.Ends())
	}
}

// TestFullFile fills a file to its last byte: one entry less of room begins the next.
func TestFullFile(t *testing.T) {
	l := open(t, t.TempDir(), Options{FileSize: 1 << 20})
	put(t, l, 0, 5)
	if p := put(t, l, 1, 5); p.File != l.Ends()[0].Number {
		t.Fatalf("the second entry is at %v", p)
	}
	end := l.Ends()[0].End
	for size, files := range map[int64]int{end + 1: 1, end: 1, end - 1: 2} {
		l := open(t, t.TempDir(), Options{FileSize: size})
		put(t, l, 0, 5)
		put(t, l, 1, 5)
		if n := len(l.Ends()); n != files {
			t.Errorf("two entries that take %d bytes are in %d files of %d", end, n, size)
		}
	}
}

// TestSpareSize holds which files become the next one: those of the usual size, of which there is
// one at a time.
func TestSpareSize(t *testing.T) {
	folder := t.TempDir()
	l := open(t, folder, small)
	for size, spare := range map[int64]bool{
		small.FileSize - 1: false, small.FileSize: true, small.FileSize + 1: true, 2*small.FileSize - 1: true, 2 * small.FileSize: false,
	} {
		for number := range uint64(2) {
			if err := os.WriteFile(Path(folder, 100+number), bytes.Repeat([]byte("x"), int(size)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		l.mu.Lock()
		err := errors.Join(l.discardFile(100), l.discardFile(101), l.discardFile(102))
		if l.hasSpare != spare {
			t.Errorf("a file of %d bytes becomes the next one: %v", size, l.hasSpare)
		}
		l.hasSpare = false
		l.mu.Unlock()
		if err != nil {
			t.Error(err)
		}
		left, _ := listFiles(folder)
		if _, err := os.Stat(folder + "/" + spareName); len(left) > 0 || (err == nil) != spare {
			t.Errorf("of files of %d bytes, %v are left, and a spare one: %v", size, left, err)
		}
		_ = os.Remove(folder + "/" + spareName)
	}
}

// TestNothingToDo removes and scrubs where nothing was removed: the log stays as it is.
func TestNothingToDo(t *testing.T) {
	l := open(t, t.TempDir(), small)
	if err := errors.Join(l.RemoveBefore(10), l.Scrub(t.Context()), l.Rotate(t.Context())); err != nil || len(l.Ends()) > 0 {
		t.Errorf("of an empty log: %v, files %+v", err, l.Ends())
	}
	put(t, l, 0, 1)
	before := l.Ends()
	if err := errors.Join(l.RemoveBefore(1), l.Scrub(t.Context())); err != nil || !reflect.DeepEqual(before, l.Ends()) {
		t.Errorf("%v, files %+v, and before %+v", err, l.Ends(), before)
	}
	put(t, l, 1, 1)
	if got := entries(t, l); !slices.Equal(got, upTo(2)) || len(l.Ends()) != 1 {
		t.Errorf("%v are durable, in files %+v", got, l.Ends())
	}
}

// TestOpenLeavesClosedFiles holds that a file which is closed never changes.
func TestOpenLeavesClosedFiles(t *testing.T) {
	folder := t.TempDir()
	o := Options{FileSize: 1200}
	last := build(t, folder, o, 20, 5)[19].File
	read := func() (all []string) {
		for number := range last - 1 {
			content, err := os.ReadFile(Path(folder, number+1))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, string(content))
		}
		return all
	}
	before := read()
	for range 2 {
		_ = open(t, folder, o).Close()
	}
	if !slices.Equal(before, read()) {
		t.Error("opening the log has changed a closed file")
	}
}
