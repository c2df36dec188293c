//go:build !cgo || !linux

package document

// AllocatorBytes reports false: there is no C allocator to ask.
func AllocatorBytes() (inUse, free uint64, ok bool) { return 0, 0, false }

// TrimAllocator does nothing.
func TrimAllocator() {}
