//go:build linux

package isolate

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

// oldCalls are those of runningCalls that newer architectures do not have.
func oldCalls() []rule { return allow(unix.SYS_POLL, unix.SYS_EPOLL_WAIT, unix.SYS_ARCH_PRCTL) }

// oldLoadingCalls are those of loadingCalls.
func oldLoadingCalls() []rule {
	return allow(unix.SYS_READLINK, unix.SYS_OPEN, unix.SYS_STAT, unix.SYS_LSTAT, unix.SYS_ACCESS, unix.SYS_UNLINK, unix.SYS_RMDIR)
}
