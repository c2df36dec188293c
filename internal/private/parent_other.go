//go:build !linux

package private

import "syscall"

// dieWithParent asks for nothing: only Linux can tie a child to its parent.
func dieWithParent() *syscall.SysProcAttr { return nil }
