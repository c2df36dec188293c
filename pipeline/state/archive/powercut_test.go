package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/perigeedb/perigee/internal/powercut"
	"github.com/perigeedb/perigee/internal/s3client"
)

// powercutFolder makes the test's process a program that is recorded.
const powercutFolder = "ARCHIVE_POWERCUT"

func TestMain(m *testing.M) {
	if folder := os.Getenv(powercutFolder); folder != "" {
		if err := putObjects(folder); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// contents returns what an object has: several pages now and then.
func contents(i int) []byte { return bytes.Repeat(fmt.Appendf(nil, "%d ", i), 1+i%4*2000) }

// putObjects makes objects in the archive that it creates, and prints the name of each that Put has
// made durable. It repeats calls that fail.
func putObjects(top string) error {
	runtime.LockOSThread() // strace counts calls by thread
	place := folder(filepath.Join(top, "made", "archive"))
	for i := range 12 {
		name := fmt.Sprintf("users/%d/segments/%d", i%2, i)
		for try := 0; ; try++ {
			err := place.Put(context.Background(), name, contents(i))
			if err == nil {
				break
			}
			fmt.Println("failed", err)
			if try == 3 {
				return err
			}
		}
		fmt.Println("put", i, name)
	}
	return nil
}

func checkObjects(t *testing.T, top string, said []string) {
	place := folder(filepath.Join(top, "made", "archive"))
	for i := range 12 {
		name := fmt.Sprintf("users/%d/segments/%d", i%2, i)
		data, err := place.Get(t.Context(), name, 1<<20)
		if err == nil && !bytes.Equal(data, contents(i)) {
			t.Errorf("%s has %d bytes, and not those that were put", name, len(data))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
		for _, line := range said {
			if line == fmt.Sprint("put ", i, " ", name) && err != nil {
				t.Errorf("%s was put, and is gone", name)
			}
		}
		if err := place.Put(t.Context(), name, contents(i)); err != nil {
			t.Errorf("put %s again: %v", name, err)
		}
	}
}

func putRun(folder, fault string) powercut.Run {
	return powercut.SelfRun(fault, powercutFolder+"="+folder)
}

// TestPowerCut cuts the power while objects are put: those that were put are there, and whole.
func TestPowerCut(t *testing.T) {
	folder := t.TempDir()
	powercut.Record(t, folder, putRun(folder, "")).EachCut(t, 100, checkObjects)
}

// TestPowerCutLosesOne loses each single change that is not synced at some moment.
func TestPowerCutLosesOne(t *testing.T) {
	folder := t.TempDir()
	powercut.Record(t, folder, putRun(folder, "")).EachLoss(t, checkObjects)
}

// TestFailedSync lets one sync fail.
func TestFailedSync(t *testing.T) {
	for n := range powercut.SomeOf(20) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			folder := t.TempDir()
			powercut.Record(t, folder, putRun(folder, fmt.Sprintf("fsync:error=EIO:when=%d", n))).EachCut(t, 10, checkObjects)
		})
	}
}

// TestFullDisk puts objects on a full disk: that is an error, leaves no file, and succeeds when there is
// room.
func TestFullDisk(t *testing.T) {
	disk := powercut.SmallDisk(t, 1<<20)
	if disk == "" {
		return
	}
	place, err := Locate(filepath.Join(disk, "archive"), "", s3client.Settings{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := place.Put(t.Context(), "a/0", []byte("0")); err != nil {
		t.Fatal(err)
	}
	ballast := filepath.Join(disk, "ballast")
	powercut.Fill(t, ballast, 8<<10)
	large := make([]byte, 100<<10)
	if err := place.Put(t.Context(), "a/1", large); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("on a full disk: %v", err)
	}
	files, err := os.ReadDir(filepath.Join(disk, "archive", "a"))
	if err != nil || len(files) != 1 {
		t.Errorf("the folder has %v, %v, want 1 file", files, err)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := place.Put(t.Context(), "a/1", large); err != nil {
		t.Errorf("with room: %v", err)
	}
}
