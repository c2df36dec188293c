package boltfile

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
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
					order.PutUint64(spoilt[to*pageSize:], uint64(to))
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
		if order.Uint16(whole[at+8:]) != branchFlag {
			continue
		}
		spoilt := append([]byte(nil), whole...)
		order.PutUint16(spoilt[at+10:], 0)
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

// fileWithLargeValue makes a file whose bucket has a value of 4 MB.
func fileWithLargeValue(t *testing.T) (path string, pageSize int) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "file.db")
	f, err := Open(path, options)
	if err != nil {
		t.Fatal(err)
	}
	err = f.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucket(bucket)
		if err != nil {
			return err
		}
		return errors.Join(b.Put([]byte("a large value"), make([]byte, 4<<20)), b.Put([]byte("key behind it"), counter))
	})
	if err != nil {
		t.Fatal(err)
	}
	pageSize = f.Info().PageSize
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return path, pageSize
}

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestValuesAreNotRead checks a file with a large value, in little memory. A key behind the value
// that is out of order is damage.
func TestValuesAreNotRead(t *testing.T) {
	path, pageSize := fileWithLargeValue(t)
	var err error
	if n := allocated(func() { err = checkPages(path, pageSize) }); err != nil || n > 1<<20 {
		t.Errorf("%d bytes for a value of 4 MB, %v", n, err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	copy(content[bytes.LastIndex(content, []byte("key behind it")):], "KEY")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := checkPages(path, pageSize); !errors.Is(err, ErrDamaged) {
		t.Errorf("a key out of order: %v", err)
	}
}

// TestDamagedCounts: a page that says that a million others belong to it, and meta pages that
// agree, do not ask for their memory.
func TestDamagedCounts(t *testing.T) {
	path, pageSize := fileWithLargeValue(t)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range metaPages {
		meta := content[i*pageSize+pageHeader:]
		order.PutUint64(meta[metaEnd:], 1<<40)
		sum := fnv.New64a()
		sum.Write(meta[:metaSum])
		order.PutUint64(meta[metaSum:], sum.Sum64())
	}
	for at := metaPages * pageSize; at < len(content); at += pageSize {
		if order.Uint16(content[at+8:]) == leafFlag && order.Uint64(content[at:]) == uint64(at/pageSize) {
			order.PutUint32(content[at+12:], 1<<14)
		}
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if n := allocated(func() { err = checkPages(path, pageSize) }); !errors.Is(err, ErrDamaged) || n > 1<<20 {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// TestCutBuckets: a small bucket lies in a value, behind its header, as a page with another header. A value
// that has no room for both is damage.
func TestCutBuckets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file.db")
	f, err := Open(path, options)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Update(func(tx *bolt.Tx) error { _, err := tx.CreateBucket(bucket); return err }); err != nil {
		t.Fatal(err)
	}
	pageSize := f.Info().PageSize
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for size := range uint32(bucketHeader + pageHeader + 1) {
		for at := metaPages * pageSize; at < len(content); at += pageSize {
			if e := content[at+pageHeader:]; order.Uint16(content[at+8:]) == leafFlag && order.Uint32(e) == bucketFlag {
				order.PutUint32(e[12:], size)
			}
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := checkPages(path, pageSize); errors.Is(err, ErrDamaged) != (size < bucketHeader+pageHeader) {
			t.Errorf("a bucket of %d bytes: %v", size, err)
		}
	}
}

// TestShortFile cuts a file behind its first page, where bbolt finds a meta page that is right.
func TestShortFile(t *testing.T) {
	path, _ := fileWithLargeValue(t)
	for _, size := range []int64{4096, 100, 0} {
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
		f, err := Open(path, options)
		if err == nil {
			f.Close()
		}
		if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), path) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

// TestOtherErrorsAreNotDamage: an error of a system call, and another process, say nothing about the file.
func TestOtherErrorsAreNotDamage(t *testing.T) {
	folder := t.TempDir()
	for _, path := range []string{filepath.Join(folder, "none", "file.db"), filepath.Join(folder, "loop")} {
		_ = os.Symlink("loop", filepath.Join(folder, "loop"))
		if err := check(path, options); err == nil || errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", path, err)
		}
	}
	path, _ := fileWithLargeValue(t)
	f, err := Open(path, options)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	options := options
	options.Timeout = time.Millisecond
	if err := check(path, options); !errors.Is(err, berrors.ErrTimeout) || errors.Is(err, ErrDamaged) {
		t.Errorf("a second time: %v", err)
	}
}

// TestRestoreMeta opens files with one damaged meta page: the other decides, and the damaged one is
// whole again afterwards.
func TestRestoreMeta(t *testing.T) {
	for commits := range 4 {
		for damaged := range metaPages {
			path := filepath.Join(t.TempDir(), "file.db")
			f, err := Open(path, options)
			if err != nil {
				t.Fatal(err)
			}
			size := f.Info().PageSize
			for range commits {
				if err := f.Update(func(tx *bolt.Tx) error { _, err := increment(tx); return err }); err != nil {
					t.Fatal(err)
				}
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			bytes, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			clear(bytes[damaged*size:][:size])
			if err := os.WriteFile(path, bytes, 0o600); err != nil {
				t.Fatal(err)
			}
			if f, err = Open(path, options); err != nil {
				t.Errorf("%d commits, meta page %d damaged: %v", commits, damaged, err)
				continue
			}
			if err := f.View(func(tx *bolt.Tx) error { return <-tx.Check() }); err != nil {
				t.Errorf("%d commits, meta page %d damaged: got %v from a check, want none", commits, damaged, err)
			}
			for range 3 {
				if err := f.Update(func(tx *bolt.Tx) error { _, err := increment(tx); return err }); err != nil {
					t.Errorf("%d commits, meta page %d damaged: a commit afterwards: %v", commits, damaged, err)
				}
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
			if bytes, err = os.ReadFile(path); err != nil || !isMeta(bytes[pageHeader:]) || !isMeta(bytes[size+pageHeader:]) {
				t.Errorf("%d commits, meta page %d damaged: it is still damaged (%v)", commits, damaged, err)
			}
		}
	}
}
