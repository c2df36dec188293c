package manifest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
)

// drawChange changes a clone as the store does: it replaces objects, and adds, removes and moves
// them.
func drawChange(t *rapid.T, m *Manifest) {
	number := rapid.Uint64().Draw(t, "number")
	if len(m.Tables) == 0 || rapid.IntRange(0, 9).Draw(t, "what") == 0 {
		m.AddTable(&Table{Name: fmt.Sprint("t", m.NextTable), NextColumn: 2, Schemas: []*Schema{{Version: 1}}})
		return
	}
	i := rapid.IntRange(0, len(m.Tables)-1).Draw(t, "table")
	table := m.Tables[i]
	switch rapid.IntRange(0, 9).Draw(t, "change") {
	case 0:
		m.Tables = slices.Delete(m.Tables, i, i+1)
	case 1:
		m.Tables = append(slices.Delete(m.Tables, i, i+1), table)
	case 2:
		table.Rename(fmt.Sprint("renamed", m.NextTable), number%2 == 0)
		m.NextTable++
	case 3:
		table.Retention, table.Sort = catalog.Duration(number%1e6), []string{fmt.Sprint(number)}
	case 4:
		c := Column{ID: table.NextColumn, Name: fmt.Sprint("c", number), Path: []string{"c"}, Type: event.Int64}
		table.NextColumn++
		table.Schemas = append(table.Schemas, &Schema{Version: table.Current().Version + 1, Columns: append(slices.Clone(table.Current().Columns), c)})
	case 5:
		table.Deletes = drawList(t, table.Deletes, func() *Delete { return &Delete{Predicate: fmt.Sprint(number)} })
	case 6:
		table.Partitions = drawList(t, table.Partitions, func() *Partition {
			return &Partition{Pipeline: "p", Partition: fmt.Sprint(number), Ranges: [][2]uint64{{number / 2, 3}}}
		})
	case 7:
		table.Fingerprints = drawList(t, table.Fingerprints, func() *FingerprintsFile { return &FingerprintsFile{Number: number} })
		table.Keys = drawList(t, table.Keys, func() *KeysFile { return &KeysFile{Number: number} })
	default:
		table.Files = drawList(t, table.Files, func() *File {
			m.NextSegment++
			return &File{Name: FileName("", m.NextSegment-1, 0), Segment: m.NextSegment - 1, Schema: table.Current().Version, Rows: 1}
		})
	}
}

// drawList removes some elements, moves others, and adds some.
func drawList[T any](t *rapid.T, list []*T, add func() *T) []*T {
	for range rapid.IntRange(0, 2).Draw(t, "removals") {
		if n := len(list); n > 0 {
			i := rapid.IntRange(0, n-1).Draw(t, "removed")
			list = slices.Delete(list, i, i+1)
		}
	}
	if n := len(list); n > 1 && rapid.Bool().Draw(t, "move") {
		i := rapid.IntRange(0, n-1).Draw(t, "moved")
		list[0], list[i] = list[i], list[0]
	}
	for range rapid.IntRange(0, 3).Draw(t, "additions") {
		i := rapid.IntRange(0, len(list)).Draw(t, "added")
		list = slices.Insert(list, i, add())
	}
	return list
}

// TestVersions saves many versions, with several writers one after the other, and reads each as
// a new process, and some as one that has read earlier ones.
func TestVersions(t *testing.T) {
	folder := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		m := New()
		w, r := NewWriter(folder), NewReader(folder)
		for range rapid.IntRange(1, 30).Draw(t, "versions") {
			m = m.Clone()
			m.Version++
			for range rapid.IntRange(0, 3).Draw(t, "changes") {
				drawChange(t, m)
			}
			if rapid.IntRange(0, 9).Draw(t, "restart") == 0 {
				w = NewWriter(folder)
			}
			if err := w.Save(m); err != nil {
				t.Fatal(err)
			}
			got, err := Load(folder)
			if err != nil {
				t.Fatal(err)
			}
			wantManifest(t, "a new process", m, got)
			if rapid.Bool().Draw(t, "read") {
				if got, err = r.Load(); err != nil {
					t.Fatal(err)
				}
				wantManifest(t, "a process that has read before", m, got)
			}
		}
	})
}

// wantManifest compares manifests; an empty list is equal to a missing one.
func wantManifest(t *rapid.T, what string, want, got *Manifest) {
	t.Helper()
	texts := [2]string{}
	for i, m := range []*Manifest{want, got} {
		text, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		texts[i] = string(text)
	}
	if texts[0] != texts[1] {
		t.Fatalf("%s: (-want +got):\n%s", what, cmp.Diff(strings.Split(texts[0], "\n"), strings.Split(texts[1], "\n")))
	}
}

// TestChangeCosts checks that a change writes as much as it changes, that the files do not grow
// for ever, and that no base stays behind.
func TestChangeCosts(t *testing.T) {
	folder := t.TempDir()
	m := large(2000, 1000)
	w := NewWriter(folder)
	if err := w.Save(m); err != nil {
		t.Fatal(err)
	}
	before := sizes(t, folder)
	m = sealed(m)
	if err := w.Save(m); err != nil {
		t.Fatal(err)
	}
	if grown := sizes(t, folder) - before; grown <= 0 || grown > 2048 {
		t.Errorf("a change of one file and one partition took %d bytes, want at most 2048", grown)
	}
	for range 2500 {
		m = sealed(m)
		if err := w.Save(m); err != nil {
			t.Fatal(err)
		}
	}
	whole, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if size := sizes(t, folder); size > 4*int64(len(whole)) {
		t.Errorf("the files of a manifest of %d bytes have %d, want at most four times as many", len(whole), size)
	}
	if bases, err := filepath.Glob(filepath.Join(folder, basePrefix+"*")); len(bases) != 1 || err != nil {
		t.Errorf("bases %v, %v; want one", bases, err)
	}
}

func sizes(t testing.TB, folder string) (bytes int64) {
	t.Helper()
	files, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		info, err := f.Info()
		if err != nil {
			t.Fatal(err)
		}
		bytes += info.Size()
	}
	return bytes
}

// large returns a manifest of one table with files and partitions.
func large(files, partitions int) *Manifest {
	m := New()
	m.Version, m.LogStart = 1, 2
	table := &Table{Name: "events", NextColumn: 2, Schemas: []*Schema{{Version: 1}}}
	m.AddTable(table)
	for range files {
		addFile(m)
	}
	for i := range partitions {
		table.Partitions = append(table.Partitions, &Partition{Pipeline: "p", Partition: fmt.Sprint("topic/", i), Ranges: [][2]uint64{{0, uint64(i)}}})
	}
	return m
}

func addFile(m *Manifest) {
	name := FileName("2026-11-27", m.NextSegment, 0)
	m.Tables[0].Files = append(m.Tables[0].Files, &File{
		Name: name, Segment: m.NextSegment, Schema: 1, Day: "2026-11-27", Rows: 100_000, Bytes: 2_000_000, MinTime: 1795392000000000, MaxTime: 1795392600000000,
		Log: 1, Bloom: BloomName(name), GroupRows: 16_384, GroupBytes: 900_000, Format: FileFormat,
	})
	m.NextSegment++
}

// sealed returns the version after one more segment, which moves one partition.
func sealed(m *Manifest) *Manifest {
	m = m.Clone()
	m.Version++
	addFile(m)
	table := m.Tables[0]
	i := int(m.Version) % len(table.Partitions)
	p := *table.Partitions[i]
	p.Ranges = [][2]uint64{{0, p.Ranges[0][1] + 100_000}}
	table.Partitions[i] = &p
	return m
}

// TestReadWhileSaving reads while versions are saved and their bases replaced.
func TestReadWhileSaving(t *testing.T) {
	folder, m := t.TempDir(), large(50, 50)
	w := NewWriter(folder)
	if err := w.Save(m); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		for i := range 400 {
			if i%5 == 0 {
				w = NewWriter(folder)
			}
			m = sealed(m)
			if err := w.Save(m); err != nil {
				done <- err
				return
			}
		}
		close(done)
	}()
	reads, last, r := 0, uint64(0), NewReader(folder)
	for {
		select {
		case err := <-done:
			if err != nil || reads == 0 {
				t.Errorf("%d versions were read: %v", reads, err)
			}
			return
		default:
		}
		got, err := r.Load()
		if err != nil {
			<-done
			t.Fatal(err)
		}
		if got.Version < last {
			t.Errorf("version %d was read after version %d", got.Version, last)
		}
		reads, last = reads+1, got.Version
	}
}

// BenchmarkSave saves the version after one sealed segment, in a store of 20,000 segments and
// 10,000 partitions, and reads it as a worker does.
func BenchmarkSave(b *testing.B) {
	folder, m := b.TempDir(), large(20_000, 10_000)
	w, r := NewWriter(folder), NewReader(folder)
	if err := w.Save(m); err != nil {
		b.Fatal(err)
	}
	if _, err := r.Load(); err != nil {
		b.Fatal(err)
	}
	before, saves := sizes(b, folder), 0
	var saving, reading time.Duration
	for b.Loop() {
		next := sealed(m)
		began := time.Now()
		if err := w.Save(next); err != nil {
			b.Fatal(err)
		}
		saving += time.Since(began)
		began = time.Now()
		if _, err := r.Load(); err != nil {
			b.Fatal(err)
		}
		reading += time.Since(began)
		m = next
		if saves++; saves == 1 {
			b.ReportMetric(float64(sizes(b, folder)-before), "bytes/change")
		}
	}
	b.ReportMetric(saving.Seconds()*1000/float64(saves), "ms/save")
	b.ReportMetric(reading.Seconds()*1000/float64(saves), "ms/read")
}
