package manifest

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Place identifies a folder as long as it stays on its file system: a copy, or a folder that
// was made again, is another place. It has the folder's inode number and, because file systems
// reuse these, its time of creation.
func Place(folder string) string {
	var s unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, folder, 0, unix.STATX_INO|unix.STATX_BTIME, &s); err != nil {
		return unknownPlace
	}
	place := fmt.Sprint(s.Ino)
	if s.Mask&unix.STATX_BTIME != 0 {
		place += fmt.Sprintf("-%d.%09d", s.Btime.Sec, s.Btime.Nsec)
	}
	return place
}
