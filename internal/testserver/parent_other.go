//go:build !linux

package testserver

import "syscall"

// processAttributes returns nil: only Linux can tie a child to its parent.
func processAttributes(*account, syscall.Signal) *syscall.SysProcAttr { return nil }
