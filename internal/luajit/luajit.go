//go:build cgo && luajit

// Package luajit is the low-level binding to the Lua VM: its life cycle, its sandbox, and the
// limits that apply to running scripts, even compiled ones.
//
// Only one goroutine at a time may use a VM, on any thread. No error unwinds between C and Go: a
// script's error is returned as an *Error. After a limit was exceeded, a VM is broken and must be
// closed. A Watchdog is safe for concurrent use and watches the VMs opened with it.
package luajit
