//go:build !linux

package testserver

import "syscall"

// processAttributes returns nil: only Linux can tie a child to its parent.
func attributes(*account) *syscall.SysProcAttr { return nil }
