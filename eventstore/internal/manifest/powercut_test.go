package manifest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/durable"
	"github.com/perigeedb/perigee/internal/powercut"
)

// powercutFolder turns the test's process into a program that is recorded.
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

// dayFile returns the name of the table file that saveAndRemove creates and removes in a
// version.
func dayFile(version uint64) string { return fmt.Sprintf("2026-11-%02d/file", 10+version) }

func fingerprintsOf(version uint64) []RangeChange {
	return []RangeChange{{Pipeline: "p", Partition: "a", Range: event.Range{First: version, Count: 2, Fingerprints: []uint32{1, uint32(version)}}}}
}

// saveAndRemove saves versions of a manifest, writes fingerprint files and removes others. It
// prints what is durable. Only the folders of odd versions have a second file, which keeps
// the folder; the other folders are removed with their file. It retries failures, and it
// continues after the version that it finds.
func saveAndRemove(folder string) error {
	runtime.LockOSThread() // strace counts calls by thread
	m, err := Load(folder)
	if errors.Is(err, os.ErrNotExist) {
		m, err = sample(), nil
	}
	if err != nil {
		return err
	}
	w, t := NewWriter(folder), m.Tables[0]
	for range 3 {
		m = m.Clone()
		m.Version++
		m.Tables[0].Deletes = append(m.Tables[0].Deletes, &Delete{Number: m.Version})
		m.NextDelete = m.Version + 1
		path := t.Path(folder, dayFile(m.Version))
		for _, step := range []struct {
			done string
			do   func() error
		}{
			{"saved", func() error { return w.Save(m) }},
			{"fingerprinted", func() error { _, err := WriteFingerprints(folder, t, m.Version, fingerprintsOf(m.Version)); return err }},
			{"", func() error { return durable.MkdirAll(filepath.Dir(path), 0o700) }},
			{"", func() error { return durable.WriteFile(path, []byte("rows"), 0o600) }},
			{"", func() error {
				if m.Version%2 == 0 {
					return nil
				}
				return durable.WriteFile(path+" that stays", []byte("rows"), 0o600)
			}},
			{"removed", func() error { return t.RemoveFile(folder, dayFile(m.Version)) }},
		} {
			err := step.do()
			if err != nil {
				fmt.Println("failed", m.Version, err)
				err = step.do()
			}
			if err != nil {
				return err
			}
			if step.done != "" {
				fmt.Println(step.done, m.Version)
			}
		}
	}
	return nil
}

// syncs is the minimum number of syncs in a run.
const syncs = 30

func saveRun(folder, fault string) powercut.Run {
	return powercut.SelfRun(fault, powercutFolder+"="+folder)
}

// TestPowerCutLosesOne cuts the power at each moment and loses a single unsynced change.
func TestPowerCutLosesOne(t *testing.T) {
	folder := t.TempDir()
	powercut.Record(t, folder, saveRun(folder, "")).EachLoss(t, checkManifest)
}

// TestFailedSync makes one sync fail; later syncs do not make up for it.
func TestFailedSync(t *testing.T) {
	for n := range powercut.SomeOf(syncs) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			folder := t.TempDir()
			powercut.Record(t, folder, saveRun(folder, fmt.Sprintf("fsync:error=EIO:when=%d", n))).EachLoss(t, checkManifest)
		})
	}
}

// TestKillAndPowerCut kills the process at a sync, and cuts the power while another
// continues.
func TestKillAndPowerCut(t *testing.T) {
	for n := range powercut.SomeOf(syncs) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			folder := t.TempDir()
			killed := saveRun(folder, fmt.Sprintf("fsync:signal=KILL:when=%d", n))
			powercut.Record(t, folder, killed, saveRun(folder, "")).EachLoss(t, checkManifest)
		})
	}
}

// checkManifest checks that everything reported durable exists: the manifest or a newer one,
// and the fingerprints. It also checks that removed files are gone.
func checkManifest(t *testing.T, folder string, said []string) {
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
		case "fingerprinted":
			got, err := ReadFingerprints(folder, table, version)
			if diff := cmp.Diff(fingerprintsOf(version), got); err != nil || diff != "" {
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
		t.Fatalf("the manifest after version %d was saved: %+v, %v", saved, m, err)
	}
	for i, d := range m.Tables[0].Deletes[1:] {
		if want := sample().Version + 1 + uint64(i); d.Number != want {
			t.Errorf("version %d: delete %d has number %d, want %d", m.Version, i, d.Number, want)
		}
	}
	if got, want := len(m.Tables[0].Deletes)-1, int(m.Version-sample().Version); got != want {
		t.Errorf("version %d has %d new deletes, want %d", m.Version, got, want)
	}
}
