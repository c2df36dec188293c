package datafolder

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/perigeedb/perigee/event"
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

// TestUnlockWithACopy closes a lock of which a process that is being started still has a
// copy of the descriptor.
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
