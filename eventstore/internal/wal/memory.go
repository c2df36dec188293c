package wal

import (
	"encoding/binary"
	"unsafe"
)

// The log's numbers are little-endian, and so must be the machine's: arrays are copied as
// they lie in memory.
var machineFits = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

type number interface{ int64 | float64 | uint32 }

// bytesOf returns the memory of s.
func bytesOf[T number](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(*new(T))))
}

// viewOf returns b as numbers. They share its memory if that is aligned for them, and else
// are copies.
func viewOf[T number](b []byte) []T {
	n := len(b) / int(unsafe.Sizeof(*new(T)))
	start := unsafe.Pointer(unsafe.SliceData(b))
	if uintptr(start)%unsafe.Alignof(*new(T)) == 0 {
		return unsafe.Slice((*T)(start), n)
	}
	copied := make([]T, n)
	copy(bytesOf(copied), b)
	return copied
}
