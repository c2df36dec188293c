package testserver

import "syscall"

// processAttributes make the kernel kill the child when its parent dies, and run it as the
// account, if any.
func processAttributes(as *account) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if as != nil {
		attr.Credential = &syscall.Credential{Uid: uint32(as.uid), Gid: uint32(as.gid)}
	}
	return attr
}
