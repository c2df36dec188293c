package powercut

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"syscall"
	"testing"
)

const smallDiskVariable = "PERIGEE_SMALL_DISK" // where the disk is to be mounted

// SmallDisk runs a test on a disk that it can fill. It runs the test in another process,
// which has a file system in memory of the given size, and there returns its folder. In the
// first process it reports what the other one found, and returns "": the test is over. Where
// it may not mount, it skips the test, and fails if the environment has CI=true.
func SmallDisk(t *testing.T, bytes int) (folder string) {
	t.Helper()
	if folder := os.Getenv(smallDiskVariable); folder != "" {
		if err := syscall.Mount("tmpfs", folder, "tmpfs", 0, fmt.Sprintf("size=%d", bytes)); err != nil {
			t.Fatalf("mount a small disk: %v", err)
		}
		return folder
	}
	command := exec.Command(os.Args[0], "-test.v", "-test.run=^"+regexp.QuoteMeta(t.Name())+"$")
	command.Env = append(os.Environ(), smallDiskVariable+"="+t.TempDir())
	command.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if id := os.Getuid(); id != 0 {
		command.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		command.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: id, Size: 1}}
	}
	output, err := command.CombinedOutput()
	if _, failed := err.(*exec.ExitError); err != nil && !failed {
		if os.Getenv("CI") == "true" {
			t.Fatalf("this system does not let the test mount a disk of its own, which CI needs: %v", err)
		}
		t.Skipf("this system does not let the test mount a disk of its own: %v", err)
	} else if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	return ""
}

// Fill writes a file that takes all room of a disk but so many bytes. Removing it gives the
// room back.
func Fill(t testing.TB, path string, but int64) {
	t.Helper()
	var disk syscall.Statfs_t
	if err := syscall.Statfs(os.Getenv(smallDiskVariable), &disk); err != nil {
		t.Fatal(err)
	}
	size := int64(disk.Bfree)*disk.Bsize - but
	err := os.WriteFile(path, make([]byte, size), 0o600)
	if errors.Is(err, syscall.ENOSPC) { // others have written meanwhile
		var info os.FileInfo
		if info, err = os.Stat(path); err == nil {
			err = os.Truncate(path, max(0, info.Size()-but))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}
