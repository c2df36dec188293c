package manifest

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/event"
)

func TestFingerprints(t *testing.T) {
	folder, table := t.TempDir(), sample().Tables[0]
	changes := []RangeChange{
		{Pipeline: "p", Partition: "☾", Range: event.Range{First: 1<<64 - 3, Count: 2, Fingerprints: []uint32{1, 1<<32 - 1}}},
		{Pipeline: "p", Partition: "", Reset: true, Range: event.Range{Count: 7}},
		{Pipeline: "", Partition: "x", Range: event.Range{First: 1, Count: 1 << 40}},
	}
	entry, err := WriteFingerprints(folder, table, 9, changes)
	if err != nil || entry.Number != 9 || entry.Events != 2 || entry.Written.IsZero() {
		t.Fatalf("wrote %+v, %v", entry, err)
	}
	got, err := ReadFingerprints(folder, table, 9)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(changes, got); diff != "" {
		t.Errorf("read (-want +got):\n%s", diff)
	}
	path := table.Path(folder, FingerprintsName(9))
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		if err := os.WriteFile(path, whole[:i], 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadFingerprints(folder, table, 9); err == nil {
			t.Errorf("a file cut off at %d was read", i)
		}
	}
	os.Remove(path)
	if _, err := ReadFingerprints(folder, table, 9); err == nil {
		t.Error("a missing file was read")
	}
}

func FuzzDecodeChanges(f *testing.F) {
	f.Add([]byte("\x01p\x00\x00\x05\x01\x01\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		decodeChanges(data)
	})
}

func TestApplyRangeChange(t *testing.T) {
	var have event.Ranges
	for _, step := range []struct {
		change RangeChange
		want   event.Ranges
	}{
		{RangeChange{Range: event.Range{First: 10, Count: 5}}, event.Ranges{{First: 10, Count: 5}}},
		{RangeChange{Range: event.Range{First: 12, Count: 8}}, event.Ranges{{First: 10, Count: 10}}},
		{RangeChange{Reset: true, Range: event.Range{Count: 15}}, event.Ranges{{First: 0, Count: 15}}},
		{RangeChange{Reset: true, Range: event.Range{Count: 0}}, nil},
		{RangeChange{Reset: true, Range: event.Range{Count: 3}}, event.Ranges{{First: 0, Count: 3}}},
	} {
		have = step.change.Apply(have)
		if diff := cmp.Diff(step.want, have); diff != "" {
			t.Errorf("after %+v (-want +got):\n%s", step.change, diff)
		}
	}
}

func TestPartition(t *testing.T) {
	have := event.Ranges{{First: 3, Count: 2, Fingerprints: []uint32{1, 2}}, {First: 9, Count: 1}}
	p := NewPartition("pipe", "part", have)
	if diff := cmp.Diff(event.Ranges{{First: 3, Count: 2}, {First: 9, Count: 1}}, p.Committed()); diff != "" {
		t.Errorf("committed (-want +got):\n%s", diff)
	}
}
