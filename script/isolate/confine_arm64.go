//go:build linux

package isolate

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

func oldCalls() []rule { return nil }

func oldLoadingCalls() []rule { return nil }
