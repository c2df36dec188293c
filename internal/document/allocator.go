//go:build cgo && linux

package document

/*
#include <stddef.h>
#include <stdlib.h>

// AddressSanitizer has its own allocator, which mallinfo2 does not cover.
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33) && !defined(__SANITIZE_ADDRESS__)
#include <malloc.h>
static int allocator_read(size_t *in_use, size_t *unused) {
	struct mallinfo2 m = mallinfo2();
	*in_use = m.uordblks + m.hblkhd;
	*unused = m.fordblks;
	return 1;
}
static int allocator_trim(size_t keep) { return malloc_trim(keep); }
#else
static int allocator_read(size_t *in_use, size_t *unused) { (void)in_use, (void)unused; return 0; }
static int allocator_trim(size_t keep) { (void)keep; return 0; }
#endif
*/
import "C"

// AllocatorBytes returns the bytes that C code of the process has allocated with malloc, and the
// freed bytes that malloc keeps, over all its arenas. ok is false if the C library does not report
// them.
func AllocatorBytes() (inUse, free uint64, ok bool) {
	var used, unused C.size_t
	if C.allocator_read(&used, &unused) == 0 {
		return 0, 0, false
	}
	return uint64(used), uint64(unused), true
}

// TrimAllocator returns memory that malloc keeps to the system. It takes about a second for a
// gigabyte in small pieces.
func TrimAllocator() { C.allocator_trim(0) }
