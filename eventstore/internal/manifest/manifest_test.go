package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
)

// sample returns a manifest that uses every field.
func sample() *Manifest {
	m := New()
	m.Version, m.LogStart, m.NextTable, m.NextSegment, m.NextDelete = 7, 5, 3, 9, 3
	m.Tables = []*Table{{
		ID: 2, Name: "Events", Time: "time", Event: "event", Retention: catalog.Duration(720 * time.Hour), Sort: []string{"event"}, Bloom: []string{"user"},
		NextColumn: 4,
		Schemas: []*Schema{
			{Version: 1, Columns: []Column{{ID: 2, Name: "time", Path: []string{"time"}, Type: event.Timestamp, Required: true, Declared: true}, {ID: 3, Name: "x", Path: []string{"a", "x"}}}},
			{Version: 4, Rest: true, Columns: []Column{{ID: 2, Name: "time", Path: []string{"time"}, Type: event.Timestamp}, {ID: 3, Name: "x", Path: []string{"a", "x"}, Type: event.Int64, Wide: true}}},
		},
		Files:        []*File{{Name: FileName("2026-11-23", 8, 0), Segment: 8, Schema: 4, Day: "2026-11-23", Rows: 3, Bytes: 5, MinTime: -1, MaxTime: 1, Log: 4, Bloom: BloomName(FileName("2026-11-23", 8, 0)), Deleted: 1}},
		Deletes:      []*Delete{{Number: 2, Predicate: "x < 3 AND \"time\" > '2026'", Before: wal.Position{File: 5, Offset: 4096}, RequestedAt: time.Unix(1, 0).UTC()}},
		Partitions:   []*Partition{{Pipeline: "p", Partition: "a b", Ranges: [][2]uint64{{0, 3}, {1<<63 + 1, 2}}}},
		Fingerprints: []*FingerprintsFile{{Number: 8, Events: 2, Written: time.Unix(2, 0).UTC()}},
	}}
	return m
}

func TestSaveAndLoad(t *testing.T) {
	folder := t.TempDir()
	if _, err := Load(folder); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("an empty folder: %v, want os.ErrNotExist", err)
	}
	w := NewWriter(folder)
	for _, want := range []*Manifest{New(), sample()} {
		if err := w.Save(want); err != nil {
			t.Fatal(err)
		}
		got, err := Load(folder)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("loaded (-want +got):\n%s", diff)
		}
	}
}

// TestDamage changes each byte of the files of a manifest, and truncates them at each byte.
func TestDamage(t *testing.T) {
	for name, save := range map[string]func(folder string, m *Manifest) (base string, err error){
		"from a backup": func(folder string, m *Manifest) (string, error) {
			text, err := m.Encode()
			if err == nil {
				err = os.WriteFile(filepath.Join(folder, Name), text, 0o600)
			}
			return "", err
		},
		"with an edit": func(folder string, m *Manifest) (string, error) {
			w := NewWriter(folder)
			err := w.Save(m)
			next := m.Clone()
			next.Version++
			next.Tables[0].Time = ""
			return fmt.Sprint(basePrefix, m.Version), errors.Join(err, w.Save(next))
		},
	} {
		folder := t.TempDir()
		base, err := save(folder, sample())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Load(folder); err != nil {
			t.Fatal(err)
		}
		damageEach(t, name, folder, filepath.Join(folder, Name))
		if base != "" {
			damageEach(t, name, folder, filepath.Join(folder, base))
			if err := os.Remove(filepath.Join(folder, base)); err != nil {
				t.Fatal(err)
			}
			if damage, ok := errors.AsType[*DamageError](loadError(folder)); !ok || damage.File != filepath.Join(folder, base) || damage.Reason != "it is missing" {
				t.Errorf("%s: without its base: %v", name, damage)
			}
		}
	}
	folder := t.TempDir()
	for _, base := range []string{"", "lock", "../" + basePrefix + "1", basePrefix + "1/../x"} {
		text := withHead(baseFormat, fmt.Appendf(nil, `{"base":%q,"bytes":1,"checksum":1}`, base))
		if err := os.WriteFile(filepath.Join(folder, Name), text, 0o600); err != nil {
			t.Fatal(err)
		}
		err := loadError(folder)
		if damage, ok := errors.AsType[*DamageError](err); !ok || !strings.Contains(damage.Reason, "it names 1 bytes of") {
			t.Errorf("base %q: got %v, want a *DamageError about the name", base, err)
		}
	}
	if err := os.WriteFile(filepath.Join(folder, Name), withHead(3, []byte("{}")), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := loadError(folder); err == nil || !strings.Contains(err.Error(), "has format 3; this version of perigee reads formats 1 and 2") {
		t.Errorf("a newer format: %v", err)
	}
}

func loadError(folder string) error {
	_, err := Load(folder)
	return err
}

// damageEach damages one file of a manifest in many ways, one after the other, and puts it back.
func damageEach(t *testing.T, name, folder, path string) {
	t.Helper()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	load := func(text []byte) error {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return loadError(folder)
	}
	for i := range whole {
		if load(whole[:i]) == nil {
			t.Fatalf("%s: %s with %d bytes instead of %d was loaded", name, path, i, len(whole))
		}
		for bit := range 8 {
			changed := bytes.Clone(whole)
			changed[i] ^= 1 << bit
			if load(changed) == nil {
				t.Fatalf("%s: %s with bit %d of byte %d changed was loaded", name, path, bit, i)
			}
		}
	}
	if damage, ok := errors.AsType[*DamageError](load(whole[:len(whole)-1])); !ok || damage.File != path {
		t.Errorf("%s: got %v, want a *DamageError that names %s", name, damage, path)
	}
	if err := load(whole); err != nil {
		t.Errorf("%s: put back: %v", name, err)
	}
}

// TestContradictions checks that an inconsistent manifest is never written.
func TestContradictions(t *testing.T) {
	for want, spoil := range map[string]func(*Manifest){
		"it has no valid store ID":                func(m *Manifest) { m.Store = "" },
		"invalid table name":                      func(m *Manifest) { m.Tables[0].Name = "../x" },
		"two tables are called":                   func(m *Manifest) { m.Tables = append(m.Tables, &Table{ID: 1, Name: "EVENTS"}) },
		"Events has an invalid or duplicate ID 3": func(m *Manifest) { m.Tables[0].ID = 3 },
		"it has no schema":                        func(m *Manifest) { m.Tables[0].Schemas = nil },
		"not newer than the one before":           func(m *Manifest) { m.Tables[0].Schemas[1].Version = 1 },
		"column time of schema version 4 has an invalid or duplicate ID 1": func(m *Manifest) { m.Tables[0].Schemas[1].Columns[0].ID = RestID },
		"column x of schema version 1 has an invalid or duplicate ID 3":    func(m *Manifest) { m.Tables[0].NextColumn = 3 },
		"invalid or repeated file":                                         func(m *Manifest) { m.Tables[0].Files[0].Name = "../../x" },
		"version 3, which is unknown":                                      func(m *Manifest) { m.Tables[0].Files[0].Schema = 3 },
		"number that is not assigned":                                      func(m *Manifest) { m.NextSegment = 8 },
		"also read from the log":                                           func(m *Manifest) { m.LogStart = 4 },
		"range of 9 events":                                                func(m *Manifest) { m.Tables[0].Partitions[0].Ranges[0] = [2]uint64{1<<64 - 1, 9} },
	} {
		m := sample()
		spoil(m)
		if err := NewWriter(t.TempDir()).Save(m); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestCloneIsIndependent(t *testing.T) {
	m, want := sample(), sample()
	want.Store = m.Store
	next := m.Clone()
	next.Version++
	table := next.Tables[0]
	table.Name = "other"
	table.Files[0] = &File{}
	table.Files = append(table.Files, &File{})
	table.Schemas = append(table.Schemas, &Schema{})
	table.Partitions[0] = &Partition{}
	table.Deletes[0] = nil
	table.Fingerprints[0] = nil
	next.Tables = append(next.Tables, &Table{})
	if diff := cmp.Diff(want, m); diff != "" {
		t.Errorf("the original (-want +got):\n%s", diff)
	}
}

func TestFiles(t *testing.T) {
	folder, m := t.TempDir(), sample()
	table := m.Tables[0]
	kept := []string{table.Files[0].Name, table.Files[0].Bloom, FingerprintsName(8)}
	others := []string{"2026-11-23/0000000009-0.parquet", "2026-11-24/x", "ranges-0000000007", "../gone/undated/y"}
	for _, name := range append(kept, others...) {
		path := table.Path(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("12345"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.RemoveOthers(folder); err != nil {
		t.Fatal(err)
	}
	var left []string
	filepath.WalkDir(TablesFolder(folder), func(path string, _ os.DirEntry, _ error) error {
		name, _ := filepath.Rel(folder, path)
		left = append(left, filepath.ToSlash(name))
		return nil
	})
	want := []string{"tables", "tables/Events", "tables/Events/2026-11-23", "tables/Events/2026-11-23/0000000008-0.bloom", "tables/Events/2026-11-23/0000000008-0.parquet", "tables/Events/ranges-0000000008"}
	if diff := cmp.Diff(want, left); diff != "" {
		t.Errorf("what is left (-want +got):\n%s", diff)
	}
	if err := m.Verify(folder); err != nil {
		t.Error(err)
	}
	if err := os.Truncate(table.Path(folder, kept[0]), 4); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(table.Path(folder, kept[1])); err != nil {
		t.Fatal(err)
	}
	err := m.Verify(folder)
	for _, part := range []string{"it has 4 bytes, not 5 (3 rows of table Events)", "0000000008-0.bloom is damaged: it is missing"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("got %v, want %q", err, part)
		}
	}
	for range 2 {
		if err := table.RemoveFile(folder, kept[0]); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(table.Path(folder, "2026-11-23")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the empty folder of a day: %v", err)
	}
}
