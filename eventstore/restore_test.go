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
	appendPrinted(t, p, 0, 10)
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
