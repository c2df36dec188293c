//go:build cgo && luajit

package luajit

/*
#include "vm.h"
*/
import "C"

import (
	"unsafe"
)

// Cover makes the VM record the lines that run, for ReadLines. The VM must not compile: compiled
// code calls no hooks.
func (vm *VM) Cover() { C.plua_vm_cover(vm.c) }

// ReadLines passes the lines that ran since the last call to take, with the file that the script
// required, or "" for its own text.
func (vm *VM) ReadLines(take func(file string, line int)) {
	readLines(&vm.c.lines, "", take)
	for file := vm.c.files; file != nil; file = file.next {
		readLines(&file.lines, C.GoString(&file.chunk[1]), take)
	}
}

func readLines(lines *C.plua_lines, file string, take func(file string, line int)) {
	ran := unsafe.Slice((*byte)(unsafe.Pointer(lines.ran)), int(lines.count))
	for line := range ran {
		if ran[line] != 0 {
			ran[line] = 0
			take(file, line)
		}
	}
}
