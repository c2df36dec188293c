//go:build linux

package isolate

import (
	"golang.org/x/sys/unix"

	"github.com/perigeedb/perigee/internal/child"
)

// oldLoadingCalls are those of loadingCalls that newer architectures do not have.
func oldLoadingCalls() []child.Rule {
	return child.Allow(unix.SYS_READLINK, unix.SYS_OPEN, unix.SYS_STAT, unix.SYS_LSTAT, unix.SYS_ACCESS, unix.SYS_UNLINK, unix.SYS_RMDIR)
}
