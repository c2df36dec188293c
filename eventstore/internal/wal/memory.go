package wal

import (
	"encoding/binary"
	"unsafe"
)

// The log is little-endian. The machine must be too, because arrays are copied from memory
// unchanged.
var machineFits = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

type number interface{ int64 | float64 | uint32 }

// bytesOf returns the memory of s.
func bytesOf[T number](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(*new(T))))
}

// viewOf returns b as numbers. They share the memory of b if it is aligned for them;
// otherwise they are copies.
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
