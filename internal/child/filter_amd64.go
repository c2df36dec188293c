//go:build linux

package child

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

// oldCalls are calls like RunningCalls that exist only on older architectures.
func oldCalls() []Rule { return Allow(unix.SYS_POLL, unix.SYS_EPOLL_WAIT, unix.SYS_ARCH_PRCTL) }
