package datafolder

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/leaktest"
)

func TestLock(t *testing.T) {
	folder := t.TempDir() + "/made/here"
	first, err := Lock(folder)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Lock(folder)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("in use by process %d", os.Getpid())) || event.HintOf(err) == "" {
		t.Errorf("the second owner gets %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Lock(folder)
	if err != nil {
		t.Fatalf("a folder that was released: %v", err)
	}
	again.Close()
}

// TestUnlockWithACopy closes a lock while a process that is being started still has a copy of
// its descriptor.
func TestUnlockWithACopy(t *testing.T) {
	folder := t.TempDir()
	lock, err := Lock(folder)
	if err != nil {
		t.Fatal(err)
	}
	held, err := syscall.Dup(int(lock.(*lockedFile).file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(held)
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Lock(folder)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

// TestLockAfterKill locks a folder whose owner has ended without releasing it. A child that
// the owner was starting still has a copy of the descriptor.
func TestLockAfterKill(t *testing.T) {
	folder := t.TempDir()
	lock, err := Lock(folder)
	if err != nil {
		t.Fatal(err)
	}
	file := lock.(*lockedFile).file
	child := exec.Command("sleep", "0.2")
	child.ExtraFiles = []*os.File{file}
	if err := errors.Join(child.Start(), file.Close()); err != nil {
		t.Fatal(err)
	}
	again, err := Lock(folder)
	if err != nil {
		t.Error(err)
	} else {
		again.Close()
	}
	if err := child.Wait(); err != nil {
		t.Error(err)
	}
}

// TestLocksAreClosed: neither a lock that was released nor one that was refused stays open.
func TestLocksAreClosed(t *testing.T) {
	folder := t.TempDir()
	leaktest.Closed(t, folder, func() {
		first, err := Lock(folder)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Lock(folder); err == nil || !strings.Contains(err.Error(), "in use by") {
			t.Errorf("a second lock: %v", err)
		}
		if err := first.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestLockNamesItsOwner: the file holds one process ID, also where a longer one was.
func TestLockNamesItsOwner(t *testing.T) {
	folder := t.TempDir()
	if Used(folder) {
		t.Error("a new folder counts as used")
	}
	if err := os.WriteFile(filepath.Join(folder, lockName), []byte("12345678901234\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	lock, err := Lock(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if text, err := os.ReadFile(filepath.Join(folder, lockName)); string(text) != fmt.Sprintln(os.Getpid()) || err != nil || !Used(folder) {
		t.Errorf("the lock holds %q, %v", text, err)
	}
	if _, err := LockFile(filepath.Join(folder, "absent"), "x"); err == nil || !strings.Contains(err.Error(), "lock data folder") {
		t.Errorf("a folder that is not there: %v", err)
	}
	if _, err := Lock(filepath.Join(folder, lockName, "below")); err == nil || !strings.Contains(err.Error(), "create data folder") {
		t.Errorf("a folder in a file: %v", err)
	}
}
