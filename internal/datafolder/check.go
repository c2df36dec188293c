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

// Check returns a *FolderError if the folder exists and somebody but this process's user and
// root could change what is in it: put a link in the place of a file, or a file in the place of
// another. It changes nothing.
//
// The right of a group counts as that of others, also where it is the user's own group: many
// systems have one group for all people. Folders above are the operator's affair.
func Check(folder string) error {
	info, err := os.Stat(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at data folder: %w", err)
	}
	owner, known := info.Sys().(*syscall.Stat_t)
	if !known || !info.IsDir() {
		return nil // opening it says what is wrong
	}
	return judge(folder, int(owner.Uid), os.Geteuid(), info.Mode())
}

// judge decides whether a process of a user may trust a folder.
func judge(folder string, owner, me int, mode fs.FileMode) error {
	const othersWrite = 0o022
	switch {
	case owner != me && owner != 0:
		return &FolderError{
			Message: fmt.Sprintf("data folder %s belongs to %s, and this process runs as %s", folder, nameOf(owner), nameOf(me)),
			Hint: fmt.Sprintf("run perigee as that user (sudo -u '#%d', docker run --user %[1]d), or give the folder to this one (chown -R %d %s), or set data to another folder",
				owner, me, folder),
		}
	case mode&othersWrite == 0:
		return nil
	case owner == me:
		return &FolderError{
			Message: fmt.Sprintf("data folder %s can be changed by others (mode %#o)", folder, mode.Perm()),
			Hint:    fmt.Sprintf("take the right away (chmod go-w %s), or set data to a folder below it, which perigee creates for its user alone", folder),
		}
	}
	return &FolderError{ // a volume of a container, which root has made
		Message: fmt.Sprintf("data folder %s can be changed by others (mode %#o), and belongs to root", folder, mode.Perm()),
		Hint:    "set data to a folder below it, which perigee creates for its user alone",
	}
}

// nameOf names a user for people.
func nameOf(id int) string {
	u, err := user.LookupId(strconv.Itoa(id))
	if err != nil {
		return fmt.Sprintf("user %d", id)
	}
	return fmt.Sprintf("user %s (%d)", u.Username, id)
}

// A FolderError says that a folder cannot be trusted.
type FolderError struct {
	Message string
	Hint    string
}

func (e *FolderError) Error() string { return e.Message }

// ErrorHint implements event.Hinter.
func (e *FolderError) ErrorHint() string { return e.Hint }
