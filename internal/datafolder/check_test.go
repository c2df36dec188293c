package datafolder

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
)

func TestWhoMayChangeAFolder(t *testing.T) {
	const me, other = 1000, 1001
	for _, test := range []struct {
		name      string
		owner, me int
		mode      fs.FileMode
		want      string // part of the error; "" means none
		hint      string
	}{
		{"private", me, me, 0o700, "", ""},
		{"readable by all", me, me, 0o755, "", ""},
		{"of root, for all to read", 0, me, 0o755, "", ""},
		{"root's own", 0, 0, 0o700, "", ""},
		{"of another user", other, me, 0o700, "belongs to user 1001", "chown -R 1000 /data"},
		{"of a user, while root runs", other, 0, 0o700, "belongs to user 1001", "sudo -u '#1001'"},
		{"writable by a group", me, me, 0o770, "can be changed by others (mode 0770)", "chmod go-w /data"},
		{"writable by all", me, me, 0o777, "can be changed by others (mode 0777)", "chmod go-w /data"},
		{"as /tmp", 0, me, 0o777 | fs.ModeSticky, "belongs to root", "a folder below it"},
		{"a volume with a group", 0, me, 0o770 | fs.ModeSetgid, "belongs to root", "a folder below it"},
		{"of another user and writable", other, me, 0o777, "belongs to user 1001", "chown"},
	} {
		err := judge("/data", test.owner, test.me, fs.ModeDir|test.mode)
		if (err == nil) != (test.want == "") || err != nil && (!strings.Contains(err.Error(), test.want) || !strings.Contains(event.HintOf(err), test.hint)) {
			t.Errorf("%s: %v (%s), want %q (%q)", test.name, err, event.HintOf(err), test.want, test.hint)
		}
	}
}

// TestFoldersOfOthersAreRefused locks folders of the disk that others can change, and one below
// such a folder, which is made for this user alone.
func TestFoldersOfOthersAreRefused(t *testing.T) {
	refused := func(folder, want string) {
		t.Helper()
		before, _ := os.ReadDir(folder)
		lock, err := Lock(folder)
		if err == nil {
			lock.Close()
		}
		if _, ok := errors.AsType[*FolderError](err); !ok || !strings.Contains(err.Error(), want) || event.HintOf(err) == "" {
			t.Errorf("%s: %v, want %q and a hint", folder, err, want)
		}
		if after, _ := os.ReadDir(folder); len(after) != len(before) {
			t.Errorf("%s: %d files after it was refused, want %d", folder, len(after), len(before))
		}
	}
	for _, mode := range []os.FileMode{0o777, 0o770, 0o702, 0o777 | os.ModeSticky} {
		folder := t.TempDir()
		if err := os.Chmod(folder, mode); err != nil {
			t.Fatal(err)
		}
		refused(folder, "can be changed by others")
		below, err := Lock(filepath.Join(folder, "below"))
		if err != nil {
			t.Fatalf("a folder below one of mode %v: %v", mode, err)
		}
		below.Close()
	}
	folder := t.TempDir()
	if err := os.Chown(folder, 12345, -1); err != nil {
		t.Skip("only root can give a folder away")
	}
	refused(folder, "belongs to user 12345")
}

// TestLockFollowsNoLink plants a link in the place of the lock: the file that it leads to stays
// as it is.
func TestLockFollowsNoLink(t *testing.T) {
	for _, exists := range []bool{true, false} {
		folder, target := t.TempDir(), filepath.Join(t.TempDir(), "target")
		if exists {
			if err := os.WriteFile(target, []byte("precious"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink(target, filepath.Join(folder, lockName)); err != nil {
			t.Fatal(err)
		}
		if lock, err := Lock(folder); err == nil || !strings.Contains(err.Error(), "is a link") {
			t.Errorf("locked %v, %v", lock, err)
		}
		if text, err := os.ReadFile(target); exists && string(text) != "precious" || !exists && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("behind the link: %q, %v", text, err)
		}
	}
}
