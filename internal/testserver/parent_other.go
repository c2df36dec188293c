//go:build !linux

package testserver

import "syscall"

// attributes asks for nothing: only Linux can tie a child to its parent.
func attributes(*account) *syscall.SysProcAttr { return nil }
