//go:build linux && cgo

package eventstore

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/perigeedb/perigee/internal/powercut"
)

// restoreFolder turns the test's process into a program that restores the backup in a folder.
const restoreFolder = "EVENTSTORE_RESTORE"

const (
	archiveName  = "archive.tar"
	restoredName = "made/events"
)

func restoreArchive(folder string) error {
	archive, err := os.Open(filepath.Join(folder, archiveName))
	if err != nil {
		return err
	}
	defer archive.Close()
	if err := Restore(filepath.Join(folder, restoredName), archive); err != nil {
		return err
	}
	fmt.Println("restored")
	return nil
}

// TestRestorePowerCut cuts the power at every moment of a restore and loses one unsynced
// write, name or file. The folder must then hold the whole store or not exist.
func TestRestorePowerCut(t *testing.T) {
	s := openStore(t, t.TempDir())
	p := take(t, openTable(t, s, TableConfig{Event: "kind"}))
	appendFingerprinted(t, p, 0, 10)
	appendDocs(t, p, 10, `{"id":1,"kind":"a"}`)
	seal(t, s)
	appendDocs(t, p, 11, `{"id":2,"kind":"b"}`)
	var archive bytes.Buffer
	if err := s.Backup(t.Context(), &archive); err != nil {
		t.Fatal(err)
	}
	want := map[string][]byte{}
	for in := tar.NewReader(bytes.NewReader(archive.Bytes())); ; {
		header, err := in.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if want[header.Name], err = io.ReadAll(in); err != nil {
			t.Fatal(err)
		}
	}
	if len(want) != 6 { // log, rows, bloom filters, fingerprints, manifest, checksums
		t.Fatalf("the backup has %d files", len(want))
	}
	delete(want, sumsName)
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, archiveName), archive.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	powercut.Record(t, folder, powercut.SelfRun("", restoreFolder+"="+folder)).EachLoss(t, func(t *testing.T, folder string, said []string) {
		folder = filepath.Join(folder, restoredName)
		if _, err := os.Stat(folder); errors.Is(err, os.ErrNotExist) && len(said) == 0 {
			return
		}
		for name, content := range want {
			if got, err := os.ReadFile(filepath.Join(folder, name)); err != nil || !bytes.Equal(got, content) {
				t.Errorf("%s has %d bytes, not the %d of the backup, %v", name, len(got), len(content), err)
			}
		}
	})
}

// TestIncarnations checks that a store begins an incarnation in a copy of its folder and when
// it is restored from a backup, and not when it is opened again.
func TestIncarnations(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	appendDocs(t, take(t, openTable(t, s, TableConfig{})), 0, `{"id":1}`)
	seal(t, s)
	var archive bytes.Buffer
	if err := s.Backup(t.Context(), &archive); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	restored, copied := filepath.Join(t.TempDir(), "restored"), filepath.Join(t.TempDir(), "copied")
	if err := errors.Join(Restore(restored, &archive), os.CopyFS(copied, os.DirFS(folder))); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, test := range []struct {
		name, folder string
		want         int
	}{{"again", folder, 1}, {"restored", restored, 2}, {"restored, again", restored, 2}, {"copied", copied, 2}} {
		s := openStore(t, test.folder)
		m := s.current()
		if got := len(m.Incarnations); got != test.want || m.IncarnationOf(m.Tables[0].Files[0].Segment) == nil {
			t.Errorf("%s: %d incarnations, want %d", test.name, got, test.want)
		}
		seen[m.Incarnations[len(m.Incarnations)-1].ID] = true
		if got := ask(t, s, `SELECT count(*) FROM events`); got != "1" {
			t.Errorf("%s: %s rows", test.name, got)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if len(seen) != 3 {
		t.Errorf("got %d different incarnations in three folders, want 3", len(seen))
	}
}
