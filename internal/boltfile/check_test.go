package boltfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// TestMisplacedPages puts each page of a file in the place of each other one, as a disk leaves a
// page that was there before: the file is damaged, or bbolt finds nothing wrong with it.
func TestMisplacedPages(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file.db")
	f, err := Open(path, bolt.Options{PageSize: 1024})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		err := f.Update(func(tx *bolt.Tx) error {
			b, err := tx.CreateBucket([]byte(name))
			for i := 0; i < 8 && err == nil; i++ {
				err = b.Put(fmt.Appendf(nil, "%s key %02d", name, i), make([]byte, 100+i%3*700))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Update(func(tx *bolt.Tx) error { return tx.Bucket([]byte("b")).Delete([]byte("b key 05")) }); err != nil {
		t.Fatal(err)
	}
	pageSize := f.Info().PageSize
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	damaged, opened := 0, 0
	for to := metaPages; to < len(whole)/pageSize; to++ {
		for from := metaPages; from < len(whole)/pageSize; from++ {
			for _, renumbered := range []bool{true, false} {
				spoilt := append([]byte(nil), whole...)
				copy(spoilt[to*pageSize:(to+1)*pageSize], whole[from*pageSize:])
				if renumbered {
					binary.LittleEndian.PutUint64(spoilt[to*pageSize:], uint64(to))
				}
				if err := os.WriteFile(path, spoilt, 0o600); err != nil {
					t.Fatal(err)
				}
				err := checkPages(path, pageSize)
				switch {
				case errors.Is(err, ErrDamaged):
					damaged++
					continue
				case err != nil:
					t.Fatal(err)
				case from == to:
					opened++
				}
				checkWithBolt(t, path, fmt.Sprintf("page %d in the place of %d", from, to))
			}
		}
	}
	branches := 0
	for at := metaPages * pageSize; at < len(whole); at += pageSize {
		if binary.LittleEndian.Uint16(whole[at+8:]) != branchFlag {
			continue
		}
		spoilt := append([]byte(nil), whole...)
		binary.LittleEndian.PutUint16(spoilt[at+10:], 0)
		if err := os.WriteFile(path, spoilt, 0o600); err != nil {
			t.Fatal(err)
		}
		if errors.Is(checkPages(path, pageSize), ErrDamaged) {
			branches++
		}
	}
	if branches == 0 {
		t.Error("no empty branch gave damage")
	}
	if pages := len(whole)/pageSize - metaPages; opened != 2*pages || damaged < 10*pages {
		t.Errorf("of %d pages, %d were in their place and %d gave damage", pages, opened, damaged)
	}
}

// checkWithBolt lets bbolt look at a file whose pages are said to belong together.
func checkWithBolt(t *testing.T, path, what string) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	defer db.Close()
	_ = db.View(func(tx *bolt.Tx) error {
		for err := range tx.Check() {
			if !strings.Contains(err.Error(), "unreachable unfreed") {
				t.Errorf("%s: %v", what, err)
			}
		}
		return nil
	})
}
