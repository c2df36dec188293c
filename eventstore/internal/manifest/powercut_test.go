package manifest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/durable"
	"github.com/perigeedb/perigee/internal/powercut"
)

// powercutFolder makes the test's process a program that is recorded.
const powercutFolder = "MANIFEST_POWERCUT"

func TestMain(m *testing.M) {
	if folder := os.Getenv(powercutFolder); folder != "" {
		if err := saveAndRemove(folder); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// dayFile is the file of a table that saveAndRemove makes and removes in a version.
func dayFile(version uint64) string { return fmt.Sprintf("2026-11-%02d/file", 10+version) }

func printsOf(version uint64) []RangeChange {
	return []RangeChange{{Pipeline: "p", Partition: "a", Range: event.Range{First: version, Count: 2, Prints: []uint32{1, uint32(version)}}}}
}

// saveAndRemove saves versions of a manifest, and writes files of fingerprints and removes
// others. It says what is durable. Only the folders of odd versions have a second file, which
// keeps the folder: the others go with their file.
func saveAndRemove(folder string) error {
	m := sample()
	t := m.Tables[0]
	for range 3 {
		m.Version++
		if err := m.Save(folder); err != nil {
			return err
		}
		fmt.Println("saved", m.Version)
		if _, err := WritePrints(folder, t, m.Version, printsOf(m.Version)); err != nil {
			return err
		}
		fmt.Println("printed", m.Version)
		path := t.Path(folder, dayFile(m.Version))
		err := durable.MkdirAll(filepath.Dir(path), 0o700)
		if err == nil {
			err = durable.WriteFile(path, []byte("rows"), 0o600)
		}
		if err == nil && m.Version%2 == 1 {
			err = durable.WriteFile(path+" that stays", []byte("rows"), 0o600)
		}
		if err == nil {
			err = t.RemoveFile(folder, dayFile(m.Version))
		}
		if err != nil {
			return err
		}
		fmt.Println("removed", m.Version)
	}
	return nil
}

// TestPowerCutLosesOne loses each single change that is not synced at some moment.
func TestPowerCutLosesOne(t *testing.T) {
	folder := t.TempDir()
	run := powercut.SelfRun("", powercutFolder+"="+folder)
	powercut.Record(t, folder, run).EachLoss(t, func(t *testing.T, folder string, said []string) {
		table := sample().Tables[0]
		saved := uint64(0)
		for _, line := range said {
			var what string
			var version uint64
			if _, err := fmt.Sscanf(line, "%s %d", &what, &version); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			switch what {
			case "saved":
				saved = version
			case "printed":
				got, err := ReadPrints(folder, table, version)
				if diff := cmp.Diff(printsOf(version), got); err != nil || diff != "" {
					t.Errorf("fingerprints of version %d: %v (-want +got)\n%s", version, err, diff)
				}
			case "removed":
				if _, err := os.Stat(table.Path(folder, dayFile(version))); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("the file that version %d has removed: %v", version, err)
				}
				if _, err := os.Stat(table.Path(folder, dayFile(version)) + " that stays"); version%2 == 1 && err != nil {
					t.Errorf("the file that version %d has beside it: %v", version, err)
				}
			}
		}
		m, err := Load(folder)
		if saved == 0 && errors.Is(err, os.ErrNotExist) {
			return
		}
		if err != nil || m.Version < saved {
			t.Errorf("the manifest after version %d was saved: %+v, %v", saved, m, err)
		}
	})
}
