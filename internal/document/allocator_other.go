//go:build !cgo || !linux

package document

// AllocatorBytes returns false, since there is no C allocator.
func AllocatorBytes() (inUse, free uint64, ok bool) { return 0, 0, false }

// TrimAllocator does nothing.
func TrimAllocator() {}
