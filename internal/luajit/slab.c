#include "slab.h"

#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
enum { SLAB_SIZE = 0 }; /* it shall see every block */
#else
enum { SLAB_SIZE = 1 << 20 }; /* of which the system gives what is touched */
#endif

void pg_slab_open(pg_slab *s) {
	*s = (pg_slab){0};
	s->data = s->cut = s->end = SLAB_SIZE ? malloc(SLAB_SIZE) : NULL;
	if (s->data) s->end += SLAB_SIZE;
}

void pg_slab_close(pg_slab *s) { free(s->data); }

static inline size_t units(size_t size) { return (size + SLAB_UNIT - 1) / SLAB_UNIT; }

static inline int is_ours(const pg_slab *s, const void *block) {
	return (const char *)block >= s->data && (const char *)block < s->end;
}

static inline void *take(pg_slab *s, size_t n) {
	void *block = s->free[n];
	if (block) {
		memcpy(&s->free[n], block, sizeof block);
		__builtin_prefetch(s->free[n], 1); // the next one to be taken says what comes after it
		return block;
	}
	size_t size = n * SLAB_UNIT;
	if ((size_t)(s->end - s->cut) < size) return malloc(size);
	block = s->cut;
	s->cut += size;
	return block;
}

void pg_slab_free(pg_slab *s, void *block, size_t size) {
	if (!is_ours(s, block)) {
		free(block);
		return;
	}
	memcpy(block, &s->free[units(size)], sizeof block);
	s->free[units(size)] = block;
}

void *pg_slab_resize(pg_slab *s, void *block, size_t old, size_t size) {
	int ours = is_ours(s, block);
	if (block && !ours) return realloc(block, size);
	if (ours && units(old) == units(size)) return block;
	void *fresh = size <= SLAB_LARGEST ? take(s, units(size)) : malloc(size);
	if (!fresh || !block) return fresh;
	memcpy(fresh, block, old < size ? old : size);
	pg_slab_free(s, block, old);
	return fresh;
}
