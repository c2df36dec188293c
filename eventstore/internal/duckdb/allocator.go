//go:build linux && cgo

package duckdb

/*
#include <stddef.h>

// DuckDB allocates with a jemalloc of its own on some platforms. The symbol is weak: without it,
// nothing is trimmed.
int duckdb_je_mallctl(const char *name, void *old, size_t *old_size, void *value, size_t size) __attribute__((weak));

static void trim_allocator(void) {
	if (duckdb_je_mallctl)
		duckdb_je_mallctl("arena.4096.purge", NULL, NULL, NULL, 0); // 4096 stands for all arenas
}
*/
import "C"

// TrimAllocator returns the memory to the system that DuckDB has freed and that its allocator
// would keep for some seconds. It takes up to 25 ms for 100 MB.
func TrimAllocator() { C.trim_allocator() }
