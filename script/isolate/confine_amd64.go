//go:build linux

package isolate

import (
	"golang.org/x/sys/unix"

	"github.com/perigeedb/perigee/internal/child"
)

// oldFileCalls are file calls that exist only on older architectures.
func oldFileCalls() []child.Rule { return child.Allow(unix.SYS_READLINK) }
