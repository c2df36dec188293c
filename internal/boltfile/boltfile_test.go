package boltfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/perigeedb/perigee/internal/leaktest"
	"github.com/perigeedb/perigee/internal/powercut"
)

// powercutFolder makes the test's process a program that is recorded.
const powercutFolder = "BOLTFILE_POWERCUT"

// syncFreelist makes it keep its free pages in the file, if it is "true".
const syncFreelist = "BOLTFILE_FREELIST"

func TestMain(m *testing.M) {
	if folder := os.Getenv(powercutFolder); folder != "" {
		if err := countUp(folder); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

var (
	bucket  = []byte("counts")
	counter = []byte("counter")
	options = bolt.Options{NoFreelistSync: true, FreelistType: bolt.FreelistMapType}
)

// counts is how often one process counts.
const counts = 8

// countUp increments a number in each of its commits, with values whose pages are used again.
// It prints the number once it is durable, and repeats what fails. After a failure it prints
// the number that it reads, too: what can be read then is durable.
func countUp(folder string) error {
	runtime.LockOSThread() // strace counts calls by thread
	path := filepath.Join(folder, "file.db")
	options := options
	if os.Getenv(syncFreelist) == "true" {
		options = bolt.Options{}
	}
	f, err := Open(path, options)
	if err != nil {
		fmt.Println("failed", err)
		if f, err = Open(path, options); err != nil {
			return err
		}
	}
	for range counts {
		var now uint64
		change := func(tx *bolt.Tx) (err error) {
			now, err = increment(tx)
			return err
		}
		for range 3 {
			if err = f.Update(change); err == nil {
				break
			}
			fmt.Println("failed", err)
			if err := f.View(func(tx *bolt.Tx) error {
				if b := tx.Bucket(bucket); b != nil {
					fmt.Println("count", binary.BigEndian.Uint64(b.Get(counter)))
				}
				return nil
			}); err != nil {
				fmt.Println("failed", err)
			}
		}
		if err != nil {
			return err
		}
		fmt.Println("count", now)
	}
	return f.Close()
}

func increment(tx *bolt.Tx) (uint64, error) {
	b, err := tx.CreateBucketIfNotExists(bucket)
	if err != nil {
		return 0, err
	}
	now := uint64(1)
	if last := b.Get(counter); last != nil {
		now += binary.BigEndian.Uint64(last)
	}
	number := binary.BigEndian.AppendUint64(nil, now)
	return now, errors.Join(b.Put(counter, number), b.Put([]byte{byte(now % 3)}, bytes.Repeat(number, int(300+now*317%700))))
}

// checkCount opens the file that a power cut has left. It is whole, and has the last number
// that was durable, or a later one.
func checkCount(t *testing.T, folder string, said []string) {
	f, err := Open(filepath.Join(folder, "file.db"), options)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var last, now uint64
	for _, line := range said {
		_, _ = fmt.Sscanf(line, "count %d", &last)
	}
	err = f.View(func(tx *bolt.Tx) error {
		for err := range tx.Check() {
			t.Error(err)
		}
		b := tx.Bucket(bucket)
		if b == nil {
			return nil
		}
		now = binary.BigEndian.Uint64(b.Get(counter))
		return b.ForEach(func(key, value []byte) error {
			if number := value[:8]; !bytes.Equal(value, bytes.Repeat(number, len(value)/8)) {
				return fmt.Errorf("the value of %q is torn", key)
			}
			return nil
		})
	})
	if err != nil {
		t.Error(err)
	}
	if now < last {
		t.Errorf("the file has %d, and %d was durable", now, last)
	}
	if err := f.Update(func(tx *bolt.Tx) error { _, err := increment(tx); return err }); err != nil {
		t.Errorf("a commit after the power cut: %v", err)
	}
}

func countRun(folder, fault string) powercut.Run {
	return powercut.SelfRun(fault, powercutFolder+"="+folder)
}

func TestPowerCut(t *testing.T) {
	folder := t.TempDir()
	r := powercut.Record(t, folder, countRun(folder, ""))
	r.EachLoss(t, checkCount)
	r.EachCut(t, 100, checkCount)
}

// TestKillAndPowerCut kills the process at a sync, and cuts the power while another process
// goes on: it may not write over what only the disk still needs.
func TestKillAndPowerCut(t *testing.T) {
	for n := range powercut.SomeOf(2 * counts) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			folder := t.TempDir()
			r := powercut.Record(t, folder, countRun(folder, fmt.Sprintf("fdatasync:signal=KILL:when=%d", 1+n)), countRun(folder, ""))
			r.EachLoss(t, checkCount)
			r.EachCut(t, 50, checkCount)
		})
	}
}

// TestFailedSync lets one sync fail, and later ones not make up for it.
func TestFailedSync(t *testing.T) {
	for call, n := range map[string]int{"fsync": 2, "fdatasync": 2 * counts} {
		for n := range powercut.SomeOf(n) {
			t.Run(fmt.Sprint(call, n), func(t *testing.T) {
				folder := t.TempDir()
				powercut.Record(t, folder, countRun(folder, fmt.Sprintf("%s:error=EIO:when=%d", call, n))).EachLoss(t, checkCount)
			})
		}
	}
}

// TestLyingSync has syncs do nothing and say that all is well, and cuts the power. The file opens,
// or says that it is damaged; one that opens has no page in two places, and goes on.
func TestLyingSync(t *testing.T) {
	for name, o := range map[string]bolt.Options{"without free pages": options, "with free pages": {}} {
		for _, from := range []int{1, 9} {
			t.Run(fmt.Sprint(name, from), func(t *testing.T) {
				folder := t.TempDir()
				run := countRun(folder, fmt.Sprintf("fsync,fdatasync:retval=0:when=%d+", from))
				run.Command.Env = append(run.Command.Env, syncFreelist+"="+strconv.FormatBool(!o.NoFreelistSync))
				opened, damaged := 0, 0
				powercut.Record(t, folder, run).EachCut(t, 150, func(t *testing.T, folder string, _ []string) {
					path := filepath.Join(folder, "file.db")
					f, err := Open(path, o)
					if err != nil {
						damaged++
						if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), path) {
							t.Errorf("%v: it does not say which file is damaged", err)
						}
						return
					}
					opened++
					defer f.Close()
					_ = f.View(func(tx *bolt.Tx) error {
						for err := range tx.Check() {
							if !strings.Contains(err.Error(), "unreachable unfreed") {
								t.Error(err)
							}
						}
						return nil
					})
					for range 5 {
						if err := f.Update(func(tx *bolt.Tx) error { return tx.DeleteBucket(bucket) }); err != nil && !errors.Is(err, berrors.ErrBucketNotFound) {
							t.Errorf("remove all: %v", err)
						}
						if err := f.Update(func(tx *bolt.Tx) error { _, err := increment(tx); return err }); err != nil {
							t.Errorf("a commit after the power cut: %v", err)
						}
					}
				})
				if opened < 20 || damaged < 5 {
					t.Errorf("%d files could be opened, %d were damaged", opened, damaged)
				}
			})
		}
	}
}

// TestCannotBegin has a folder in the place of the file that is renamed when it is whole.
func TestCannotBegin(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file.db")
	if err := os.MkdirAll(path+".new/folder", 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, options); !errors.Is(err, syscall.ENOTEMPTY) {
		t.Errorf("error %v, want one that says that the folder is not empty", err)
	}
}

// TestNothingStaysOpen opens a file again and again, whole and damaged.
func TestNothingStaysOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file.db")
	leaktest.Closed(t, path, func() {
		for range 3 {
			f, err := Open(path, options)
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(path, bytes.Repeat([]byte("damaged "), 4096), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := Open(path, options)
		if err == nil {
			f.Close()
		}
		if !errors.Is(err, ErrDamaged) || !errors.Is(err, berrors.ErrInvalid) || !strings.Contains(err.Error(), path) {
			t.Errorf("a damaged file: %v", err)
		}
	})
}
