package datafolder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// Check returns a *FolderError if the folder exists and this process must not use it: if a later
// version has written it, or if a user other than this process's user and root could change it,
// for example replace a file by a link. It changes nothing.
//
// Write permission of a group counts as that of others, even of the user's own group, because
// many systems share one group among all users. Check ignores the folders above.
func Check(folder string) error {
	info, err := os.Stat(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("check the data folder: %w", err)
	}
	owner, known := info.Sys().(*syscall.Stat_t)
	if !known || !info.IsDir() {
		return nil // opening the folder reports the fault
	}
	if err := judge(folder, int(owner.Uid), os.Geteuid(), info.Mode()); err != nil {
		return err
	}
	return checkFormat(folder)
}

// judge returns an error if a process of user me cannot trust a folder.
func judge(folder string, owner, me int, mode fs.FileMode) error {
	const othersWrite = 0o022
	switch {
	case owner != me && owner != 0:
		return &FolderError{
			Message: fmt.Sprintf("data folder %s belongs to %s, and this process runs as %s", folder, nameOf(owner), nameOf(me)),
			Hint: fmt.Sprintf("run perigee as that user (sudo -u '#%d', docker run --user %[1]d), or change its owner (chown -R %d %s), or set data to another folder",
				owner, me, folder),
		}
	case mode&othersWrite == 0:
		return nil
	case owner == me:
		return &FolderError{
			Message: fmt.Sprintf("data folder %s can be changed by others (mode %#o)", folder, mode.Perm()),
			Hint:    fmt.Sprintf("remove the write permission of others (chmod go-w %s), or set data to a folder below it, which perigee creates with the right permissions", folder),
		}
	}
	return &FolderError{ // such as a volume of a container, created by root
		Message: fmt.Sprintf("data folder %s can be changed by others (mode %#o), and belongs to root", folder, mode.Perm()),
		Hint:    "set data to a folder below it, which perigee creates with the right permissions",
	}
}

// nameOf returns the name and ID of a user.
func nameOf(id int) string {
	u, err := user.LookupId(strconv.Itoa(id))
	if err != nil {
		return fmt.Sprintf("user %d", id)
	}
	return fmt.Sprintf("user %s (%d)", u.Username, id)
}

// A FolderError is returned for a folder that other users could change, or that a later version
// has written.
type FolderError struct {
	Message string
	Hint    string
}

func (e *FolderError) Error() string { return e.Message }

// ErrorHint implements event.Hinter.
func (e *FolderError) ErrorHint() string { return e.Hint }
