//go:build cgo && luajit

// Package luajit is the raw binding to the Lua VM: its life, its sandbox and the
// limits that hold while scripts run compiled.
//
// A VM is used by one goroutine at a time, on any thread. Nothing unwinds across
// the border: every fault of a script comes back as a *Fault. After a limit a VM
// is broken and must be closed. A Watchdog is safe for concurrent use and watches
// the VMs that were opened with it.
package luajit
