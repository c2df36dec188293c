//go:build linux

package isolate

import (
	"golang.org/x/sys/unix"

	"github.com/perigeedb/perigee/internal/child"
)

// oldFileCalls are those of fileCalls that newer architectures do not have.
func oldFileCalls() []child.Rule { return child.Allow(unix.SYS_READLINK) }
