package wal

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/frame"
)

// numbered returns an entry of n rows that nothing else has.
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
		e.Range.Prints = append(e.Range.Prints, uint32(i+row))
	}
	return e
}

// checkNumbered returns the number of an entry that numbered has made, and an error if it is
// another.
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
		e.Range.Prints = rapid.SliceOfN(rapid.Uint32(), int(e.Range.Count), int(e.Range.Count)).Draw(t, "prints")
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

// TestEveryTypeHasALayout fails when event gets a type that the log cannot store.
func TestEveryTypeHasALayout(t *testing.T) {
	for _, of := range allTypes() {
		if layoutOf(of) == 0 {
			t.Errorf("%v has no layout", of)
		}
	}
}

// TestEntries encodes entries behind each other and decodes them into the same memory.
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
			frames = frames[n:]
		}
	})
}

// TestStampAgain appends a frame again, at another place, after a write that failed.
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

// TestContradictions panics instead of storing what nobody could read.
func TestContradictions(t *testing.T) {
	for name, spoil := range map[string]func(e *Entry){
		"too few values":   func(e *Entry) { e.Columns.Vectors[0].Ints = e.Columns.Vectors[0].Ints[1:] },
		"too few ends":     func(e *Entry) { e.Columns.Vectors[1].Ends = e.Columns.Vectors[1].Ends[1:] },
		"ends that return": func(e *Entry) { e.Columns.Vectors[1].Ends[1] = 0 },
		"bytes left over":  func(e *Entry) { e.Columns.Vectors[1].Bytes = append(e.Columns.Vectors[1].Bytes, 'x') },
		"too few nulls":    func(e *Entry) { e.Columns.Vectors[0].Null = []uint8{1} },
		"no id":            func(e *Entry) { e.IDs = e.IDs[1:] },
		"unknown type":     func(e *Entry) { e.Columns.Spec[0].Type = 0 },
		"too few prints":   func(e *Entry) { e.Range.Prints = e.Range.Prints[1:] },
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

// FuzzDecode decodes anything: it is an error, or an entry that encodes to the same again.
func FuzzDecode(f *testing.F) {
	for _, e := range []*Entry{numbered(1, 3), {Kind: Reset, Pipeline: "pipe", Range: event.Range{Count: 7}}, {Kind: Rows}} {
		f.Add(AppendEntry(nil, e)[frame.PrefixSize:])
	}
	f.Fuzz(func(t *testing.T, record []byte) {
		var e, again Entry
		if err := e.Decode(slices.Clone(record)); err != nil {
			return
		}
		if n := uint64(len(e.Range.Prints)); n != 0 && n != e.Range.Count {
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
	frame.PutPrefix(f, 0, 0) // as AppendEntry marks it
	l := open(t, t.TempDir(), small)
	if _, err := l.Append(t.Context(), f); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
}

// TestAllocations counts: encoding into memory that is there allocates nothing, whatever the
// rows, and an append a few small things.
func TestAllocations(t *testing.T) {
	e := numbered(1, 1000)
	e.Range.Prints = nil
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
