package testserver

import "syscall"

// processAttributes make the kernel send the child a signal when its parent dies, and run it
// as the account, if any.
func processAttributes(as *account, death syscall.Signal) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Pdeathsig: death, Setpgid: true}
	if as != nil {
		attr.Credential = &syscall.Credential{Uid: uint32(as.uid), Gid: uint32(as.gid)}
	}
	return attr
}
