//go:build linux && cgo

package sqlworker

import (
	"golang.org/x/sys/unix"

	"github.com/perigeedb/perigee/internal/child"
)

// oldFileCalls returns the legacy file system calls, which newer architectures lack.
func oldFileCalls() []child.Rule {
	return child.Allow(unix.SYS_READLINK, unix.SYS_OPEN, unix.SYS_STAT, unix.SYS_LSTAT, unix.SYS_ACCESS, unix.SYS_UNLINK, unix.SYS_MKDIR, unix.SYS_RMDIR, unix.SYS_RENAME)
}
