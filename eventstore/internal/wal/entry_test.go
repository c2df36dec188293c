package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/frame"
)

// numbered returns a unique entry of n rows.
func numbered(i, n int) *Entry {
	e := &Entry{
		Kind: Rows, Table: 3, Schema: 7, Pipeline: "pipe", Partition: "part",
		Range: event.Range{First: uint64(i * 1000), Count: uint64(n)}, MinTime: int64(i), MaxTime: int64(i + n), Appended: 99,
		IDs:     []int32{2, 5},
		Columns: &event.Columns{Rows: n, Spec: []event.Column{{Type: event.Int64}, {Type: event.String}}, Vectors: make([]event.Vector, 2)},
	}
	number, text := &e.Columns.Vectors[0], &e.Columns.Vectors[1]
	for row := range n {
		number.Ints = append(number.Ints, int64(i*1000+row))
		text.Bytes = fmt.Appendf(text.Bytes, "row %d of entry %d", row, i)
		text.Ends = append(text.Ends, uint32(len(text.Bytes)))
		e.Range.Fingerprints = append(e.Range.Fingerprints, uint32(i+row))
	}
	return e
}

// checkNumbered returns the number of an entry from numbered, or an error if it differs.
func checkNumbered(e *Entry) (i int, err error) {
	i = int(e.Range.First / 1000)
	want := numbered(i, int(e.Range.Count))
	if bytes.Equal(AppendEntry(nil, want), AppendEntry(nil, e)) {
		return i, nil
	}
	return i, fmt.Errorf("entry %d (-want +got):\n%s", i, cmp.Diff(want, e, cmpopts.EquateEmpty()))
}

func drawEntry(t *rapid.T) *Entry {
	e := &Entry{
		Kind: rapid.SampledFrom([]Kind{Rows, Reset}).Draw(t, "kind"), Table: rapid.Uint32().Draw(t, "table"), Schema: rapid.Uint64().Draw(t, "schema"),
		Pipeline: rapid.String().Draw(t, "pipeline"), Partition: rapid.String().Draw(t, "partition"),
		MinTime: rapid.Int64().Draw(t, "min"), MaxTime: rapid.Int64().Draw(t, "max"), Appended: rapid.Int64().Draw(t, "appended"),
		Range:   event.Range{First: rapid.Uint64().Draw(t, "first"), Count: rapid.Uint64Range(0, 20).Draw(t, "count")},
		Columns: &event.Columns{Rows: rapid.IntRange(0, 20).Draw(t, "rows")},
	}
	if rapid.Bool().Draw(t, "fingerprints") {
		e.Range.Fingerprints = rapid.SliceOfN(rapid.Uint32(), int(e.Range.Count), int(e.Range.Count)).Draw(t, "fingerprints")
	}
	rows := e.Columns.Rows
	for range rapid.IntRange(0, 5).Draw(t, "columns") {
		of := rapid.SampledFrom(allTypes()).Draw(t, "type")
		var v event.Vector
		switch layoutOf(of) {
		case integers:
			v.Ints = rapid.SliceOfN(rapid.Int64(), rows, rows).Draw(t, "ints")
		case floats:
			v.Floats = rapid.SliceOfN(rapid.Float64(), rows, rows).Draw(t, "floats")
		case texts:
			for range rows {
				v.Bytes = append(v.Bytes, rapid.String().Draw(t, "text")...)
				v.Ends = append(v.Ends, uint32(len(v.Bytes)))
			}
		}
		if rapid.Bool().Draw(t, "nullable") {
			v.Null = rapid.SliceOfN(rapid.Uint8Range(0, 1), rows, rows).Draw(t, "null")
		}
		e.IDs = append(e.IDs, rapid.Int32().Draw(t, "id"))
		e.Columns.Spec = append(e.Columns.Spec, event.Column{Type: of})
		e.Columns.Vectors = append(e.Columns.Vectors, v)
	}
	return e
}

func allTypes() (all []event.Type) {
	for _, name := range event.TableTypeNames() {
		of, _ := event.ParseType(name)
		all = append(all, of)
	}
	return all
}

// TestEveryTypeHasALayout fails if package event gets a type that the log cannot store.
func TestEveryTypeHasALayout(t *testing.T) {
	for _, of := range allTypes() {
		if layoutOf(of) == 0 {
			t.Errorf("%v has no layout", of)
		}
	}
}

// TestEntries encodes entries back to back and decodes them into the same memory.
func TestEntries(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var frames []byte
		var want []*Entry
		for range rapid.IntRange(1, 4).Draw(t, "entries") {
			want = append(want, drawEntry(t))
			frames = AppendEntry(frames, want[len(want)-1])
		}
		if err := checkFrames(frames); err != nil {
			t.Fatal(err)
		}
		var got Entry
		for _, e := range want {
			n, _ := frameSize(frames)
			stamp(frames[:n], trailer{commit: 1, offset: 2, key: 3})
			record, err := frame.Read(bytes.NewReader(frames[:n]), nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := got.Decode(record); err != nil {
				t.Fatal(err)
			}
			for i := range e.Columns.Vectors {
				if v := &e.Columns.Vectors[i]; !slices.Contains(v.Null, 1) {
					v.Null = nil
				}
			}
			if diff := cmp.Diff(e, &got, cmpopts.EquateEmpty(), cmpopts.EquateNaNs()); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
			checkColumns(t, record, &got)
			frames = frames[n:]
		}
	})
}

// checkColumns compares the columns of a record with those of its decoded entry.
func checkColumns(t *rapid.T, record Record, e *Entry) {
	i := 0
	for v := range record.Vectors() {
		if diff := cmp.Diff(e.Columns.Vectors[i], v, cmpopts.EquateNaNs()); diff != "" {
			t.Fatalf("vector %d (-want +got):\n%s", i, diff)
		}
		i++
	}
	if i != len(e.IDs) {
		t.Fatalf("got %d vectors, want %d", i, len(e.IDs))
	}
	for i, id := range e.IDs {
		if slices.Index(e.IDs, id) < i {
			continue // Column returns the first
		}
		kind, v, found := record.Column(id)
		if diff := cmp.Diff(e.Columns.Vectors[i], v, cmpopts.EquateNaNs()); diff != "" || !found || kind != e.Columns.Spec[i].Type {
			t.Fatalf("column %d: found %v, type %v (-want +got):\n%s", id, found, kind, diff)
		}
	}
	missing := int32(0)
	for slices.Contains(e.IDs, missing) {
		missing++
	}
	if _, _, found := record.Column(missing); found {
		t.Fatalf("column %d: found, ids %v", missing, e.IDs)
	}
}

// TestStampAgain appends a frame again, at another place, after a failed write.
func TestStampAgain(t *testing.T) {
	f := AppendEntry(nil, numbered(1, 3))
	stamp(f, trailer{commit: 128, offset: 256, key: 1})
	want := trailer{commit: 1024, offset: 2048, key: 2}
	stamp(f, want)
	record, err := frame.Read(bytes.NewReader(f), nil)
	if err != nil || parseTrailer(record) != want {
		t.Errorf("%+v, %v; want %+v", parseTrailer(record), err, want)
	}
}

// TestContradictions checks that inconsistent entries panic instead of becoming unreadable.
func TestContradictions(t *testing.T) {
	for name, spoil := range map[string]func(e *Entry){
		"too few values":       func(e *Entry) { e.Columns.Vectors[0].Ints = e.Columns.Vectors[0].Ints[1:] },
		"too few ends":         func(e *Entry) { e.Columns.Vectors[1].Ends = e.Columns.Vectors[1].Ends[1:] },
		"ends that return":     func(e *Entry) { e.Columns.Vectors[1].Ends[1] = 0 },
		"bytes left over":      func(e *Entry) { e.Columns.Vectors[1].Bytes = append(e.Columns.Vectors[1].Bytes, 'x') },
		"too few nulls":        func(e *Entry) { e.Columns.Vectors[0].Null = []uint8{1} },
		"no id":                func(e *Entry) { e.IDs = e.IDs[1:] },
		"unknown type":         func(e *Entry) { e.Columns.Spec[0].Type = 0 },
		"too few fingerprints": func(e *Entry) { e.Range.Fingerprints = e.Range.Fingerprints[1:] },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("AppendEntry has encoded it")
				}
			}()
			e := numbered(1, 3)
			spoil(e)
			AppendEntry(nil, e)
		})
	}
}

// FuzzDecode decodes arbitrary data. The result is an error, or an entry that encodes to the
// same data.
func FuzzDecode(f *testing.F) {
	for _, e := range []*Entry{numbered(1, 3), {Kind: Reset, Pipeline: "pipe", Range: event.Range{Count: 7}}, {Kind: Rows}} {
		f.Add(AppendEntry(nil, e)[frame.PrefixSize:])
	}
	f.Fuzz(func(t *testing.T, record []byte) {
		var e, again Entry
		if err := e.Decode(slices.Clone(record)); err != nil {
			return
		}
		if n := uint64(len(e.Range.Fingerprints)); n != 0 && n != e.Range.Count {
			t.Fatalf("%d fingerprints of %v", n, e.Range)
		}
		for i := range e.Columns.Vectors {
			if v := &e.Columns.Vectors[i]; layoutOf(e.Columns.Spec[i].Type) == texts {
				for row := range v.Ends {
					v.Text(row)
				}
			}
		}
		if err := again.Decode(AppendEntry(nil, &e)[frame.PrefixSize:]); err != nil {
			t.Fatalf("decoded, encoded and not decoded again: %v", err)
		}
		for i := range e.Columns.Vectors {
			if v := &e.Columns.Vectors[i]; !slices.Contains(v.Null, 1) {
				v.Null = nil
			}
		}
		if diff := cmp.Diff(e, again, cmpopts.EquateEmpty(), cmpopts.EquateNaNs()); diff != "" {
			t.Errorf("(-first +second):\n%s", diff)
		}
	})
}

func TestTooLarge(t *testing.T) {
	f := AppendEntry(nil, numbered(1, 1))
	frame.PutPrefix(f, 0, 0) // as AppendEntry marks a record that is too long
	l := open(t, t.TempDir(), small)
	if _, err := l.Append(t.Context(), f); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
}

// TestAllocations checks that encoding into existing memory allocates nothing, whatever the
// rows, and that an append allocates only a few small objects.
func TestAllocations(t *testing.T) {
	e := numbered(1, 1000)
	e.Range.Fingerprints = nil
	buffer := AppendEntry(nil, e)
	if n := testing.AllocsPerRun(100, func() { buffer = AppendEntry(buffer[:0], e) }); n != 0 {
		t.Errorf("encoding allocates %v times", n)
	}
	l := open(t, t.TempDir(), Options{FileSize: 64 << 20})
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() {
		if _, err := l.Append(ctx, buffer); err != nil {
			t.Fatal(err)
		}
	}); n > 8 {
		t.Errorf("an append allocates %v times", n)
	}
}

// TestContradictingRecords decodes records with inconsistent lengths and offsets, which
// AppendEntry never writes.
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

// everything returns an entry with a column of each layout, nulls and fingerprints.
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

// TestUndecodable opens a log with a complete frame that holds no valid entry. That must be
// an error, and nothing may be dropped.
func TestUndecodable(t *testing.T) {
	folder := t.TempDir()
	l := open(t, folder, small)
	at := put(t, l, 0, 1)
	end := l.End()
	record := frame.Begin(nil)
	record = append(record, make([]byte, 24)...) // too short for an entry
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
