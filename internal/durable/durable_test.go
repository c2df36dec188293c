package durable

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// A disk is a file system in memory that records the calls and knows what a crash
// may leave of them: file data and folder entries reach the platter when they are
// synced, and may or may not do so before.
type disk struct {
	calls []string
	fail  string // the call that fails
	open  int    // files and folders

	live    map[string]*inode // names as a running process sees them
	durable map[string]*inode // names that a crash cannot undo
}

type inode struct{ data, synced string }

type handle struct {
	disk *disk
	name string
	node *inode // nil for a folder
}

func newDisk(files map[string]string) *disk {
	d := &disk{live: map[string]*inode{}, durable: map[string]*inode{}}
	for name, data := range files {
		d.live[name] = &inode{data, data}
		d.durable[name] = d.live[name]
	}
	return d
}

func (d *disk) call(format string, args ...any) error {
	call := fmt.Sprintf(format, args...)
	d.calls = append(d.calls, call)
	if call == d.fail {
		return errors.New("failed to " + call)
	}
	return nil
}

func (d *disk) OpenFile(name string, flag int, _ os.FileMode) (file, error) {
	if flag == os.O_RDONLY {
		d.open++
		return &handle{disk: d, name: name}, nil
	}
	if err := d.call("create %s", name); err != nil {
		return nil, err
	}
	if d.live[name] == nil {
		d.live[name] = &inode{}
	}
	d.live[name].data = ""
	d.open++
	return &handle{d, name, d.live[name]}, nil
}

func (d *disk) Rename(from, to string) error {
	if err := d.call("rename %s %s", from, to); err != nil {
		return err
	}
	d.live[to] = d.live[from]
	delete(d.live, from)
	return nil
}

func (d *disk) Remove(name string) error {
	if err := d.call("remove %s", name); err != nil {
		return err
	}
	if d.live[name] == nil {
		return os.ErrNotExist
	}
	delete(d.live, name)
	return nil
}

func (d *disk) Mkdir(name string, _ os.FileMode) error { return d.call("mkdir %s", name) }

// IsDir knows of the folder dir and of those that were made.
func (d *disk) IsDir(name string) bool {
	return name == "dir" || slices.Contains(d.calls, "mkdir "+name)
}

func (h *handle) Write(p []byte) (int, error) {
	if err := h.disk.call("write %s", h.name); err != nil {
		return 0, err
	}
	h.node.data += string(p)
	return len(p), nil
}

func (h *handle) Sync() error {
	if err := h.disk.call("sync %s", h.name); err != nil {
		return err
	}
	if h.node == nil {
		h.disk.durable = maps.Clone(h.disk.live)
	} else {
		h.node.synced = h.node.data
	}
	return nil
}

// Close is not among the calls: only that it comes, and fails, matters.
func (h *handle) Close() error {
	h.disk.open--
	if call := "close " + h.name; call == h.disk.fail {
		return errors.New("failed to " + call)
	}
	return nil
}

// afterCrash lists what a file may hold once the machine is up again: its name is
// the durable or the live one, its data what was synced or what was written.
func (d *disk) afterCrash(name string) (contents []string) {
	for _, names := range []map[string]*inode{d.durable, d.live} {
		if node := names[name]; node == nil {
			contents = append(contents, "absent")
		} else {
			contents = append(contents, node.synced, node.data)
		}
	}
	slices.Sort(contents)
	return slices.Compact(contents)
}

func TestWriteFileOrder(t *testing.T) {
	d := newDisk(nil)
	if err := writeFile(d, "dir/f", []byte("new"), 0o600, true); err != nil {
		t.Fatal(err)
	}
	want := "create dir/f.new, write dir/f.new, sync dir/f.new, rename dir/f.new dir/f, sync dir"
	if got := strings.Join(d.calls, ", "); got != want {
		t.Errorf("calls: %s\nwant: %s", got, want)
	}
}

// TestWriteFileSurvivesACrash stops after each call, for a file that exists and one
// that does not.
func TestWriteFileSurvivesACrash(t *testing.T) {
	for _, old := range []string{"old", "absent"} {
		files := map[string]string{"dir/f.new": "left behind"}
		if old != "absent" {
			files["dir/f"] = old
		}
		whole := newDisk(files)
		if err := writeFile(whole, "dir/f", []byte("new"), 0o600, true); err != nil {
			t.Fatal(err)
		}
		if got := whole.afterCrash("dir/f"); !slices.Equal(got, []string{"new"}) {
			t.Errorf("after WriteFile returned, a crash may leave %q", got)
		}
		for _, call := range whole.calls {
			d := newDisk(files)
			d.fail = call
			if err := writeFile(d, "dir/f", []byte("new"), 0o600, true); err == nil || !strings.Contains(err.Error(), call) {
				t.Errorf("%s failed, and WriteFile returned %v", call, err)
			}
			for _, content := range d.afterCrash("dir/f") {
				if content != old && content != "new" {
					t.Errorf("a crash at %s may leave %q", call, content)
				}
			}
		}
	}
}

func TestRemoveSurvivesACrash(t *testing.T) {
	d := newDisk(map[string]string{"dir/f": "old"})
	if err := remove(d, "dir/f"); err != nil {
		t.Fatal(err)
	}
	if got := d.afterCrash("dir/f"); !slices.Equal(got, []string{"absent"}) {
		t.Errorf("after Remove returned, a crash may leave %q", got)
	}
	if err := remove(d, "dir/f"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("removing what does not exist: %v", err)
	}
}

// TestRemoveAgainAfterAFailedSync: what is gone, but perhaps not for good, is no os.ErrNotExist
// before its folder is synced.
func TestRemoveAgainAfterAFailedSync(t *testing.T) {
	d := newDisk(map[string]string{"dir/f": "old"})
	d.fail = "sync dir"
	for range 2 {
		if err := remove(d, "dir/f"); err == nil || errors.Is(err, os.ErrNotExist) {
			t.Errorf("removing, while the folder cannot be synced: %v", err)
		}
	}
	d.fail = ""
	if err := remove(d, "dir/f"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("removing what was removed: %v", err)
	}
	if got := d.afterCrash("dir/f"); !slices.Equal(got, []string{"absent"}) {
		t.Errorf("after Remove returned, a crash may leave %q", got)
	}
}

func TestMkdirAllOrder(t *testing.T) {
	d := newDisk(nil)
	for range 2 {
		if err := mkdirAll(d, "dir/a/b", 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := strings.Join(d.calls, ", "), "sync ., mkdir dir/a, sync dir, mkdir dir/a/b, sync dir/a, sync dir/a"; got != want {
		t.Errorf("calls: %s\nwant: %s", got, want)
	}
}

// TestFolderWithoutSync has a file system that cannot sync folders, and one that
// fails to.
func TestFolderWithoutSync(t *testing.T) {
	for err, want := range map[error]bool{syscall.EINVAL: true, syscall.EIO: false} {
		got := syncDir(folderFails{system{}, &os.PathError{Op: "sync", Path: "dir", Err: err}}, t.TempDir())
		if (got == nil) != want {
			t.Errorf("%v: syncing the folder returned %v", err, got)
		}
	}
}

type folderFails struct {
	fileSystem
	err error
}

func (f folderFails) OpenFile(string, int, os.FileMode) (file, error) { return f, nil }
func (f folderFails) Write([]byte) (int, error)                       { return 0, f.err }
func (f folderFails) Sync() error                                     { return f.err }
func (f folderFails) Close() error                                    { return nil }

// TestRealFiles does on the operating system what the other tests do in memory.
func TestRealFiles(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	for _, write := range []func(string, []byte, os.FileMode) error{WriteFile, WriteFileNoSync} {
		for _, text := range []string{"longer text", "short"} {
			if err := write(name, []byte(text), 0o640); err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(name); string(got) != text || err != nil {
				t.Errorf("read %q, %v", got, err)
			}
		}
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o640 {
		t.Error(info.Mode(), err)
	}
	if err := Remove(name); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(filepath.Dir(name)); len(left) > 0 || err != nil {
		t.Error(left, err)
	}
	folder := filepath.Join(name, "a", "b")
	for range 2 {
		if err := MkdirAll(folder, 0o700); err != nil {
			t.Error(err)
		}
	}
	if info, err := os.Stat(folder); err != nil || info.Mode().Perm() != 0o700 {
		t.Error(info.Mode(), err)
	}
	if err := WriteFile(filepath.Join(folder, "f"), nil, 0o600); err != nil {
		t.Error(err)
	}
	if err := MkdirAll(filepath.Join(folder, "f", "g"), 0o700); err == nil {
		t.Errorf("a folder was made in a file: %v", err)
	}
	if err := WriteFile(filepath.Join(name, "absent", "f"), nil, 0o600); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file in no folder: %v", err)
	}
}

// TestNothingStaysOpen: whichever call fails, every file and folder is closed, and an error of
// closing a file is that of writing it.
func TestNothingStaysOpen(t *testing.T) {
	files := map[string]string{"dir/f": "old"}
	do := func(d *disk) error {
		return errors.Join(writeFile(d, "dir/f", []byte("new"), 0o600, true), mkdirAll(d, "dir/a/b", 0o700), remove(d, "dir/f"))
	}
	whole := newDisk(files)
	if err := do(whole); err != nil {
		t.Fatal(err)
	}
	for _, call := range append(whole.calls, "close dir/f.new", "close dir") {
		d := newDisk(files)
		d.fail = call
		if err := do(d); err == nil || !strings.Contains(err.Error(), "failed to "+call) {
			t.Errorf("%s failed: %v", call, err)
		}
		if d.open != 0 {
			t.Errorf("%s failed: %d are left open", call, d.open)
		}
	}
	if whole.open != 0 {
		t.Errorf("%d are left open", whole.open)
	}
	d := newDisk(files)
	d.fail = "close dir/f.new"
	_ = writeFile(d, "dir/f", []byte("new"), 0o600, true)
	if got := d.afterCrash("dir/f"); !slices.Equal(got, []string{"old"}) {
		t.Errorf("a file that could not be closed leaves %q", got)
	}
}
