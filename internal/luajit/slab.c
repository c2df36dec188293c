#include "slab.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
enum { PG_SLAB_SIZE = 0 }; /* AddressSanitizer must see every block */
#else
enum { PG_SLAB_SIZE = 1 << 20 }; /* the system provides only the pages that are touched */
#endif

void pg_slab_open(pg_slab *s) {
	*s = (pg_slab){0};
	if (!PG_SLAB_SIZE) return;
	/* Not from malloc: a block of this size that is freed raises malloc's threshold for
	 * mmap, and later slabs fragment its arenas. */
	char *data = mmap(NULL, PG_SLAB_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (data == MAP_FAILED) return;
	s->data = s->cut = data;
	s->end = data + PG_SLAB_SIZE;
}

void pg_slab_close(pg_slab *s) {
	if (s->data) munmap(s->data, PG_SLAB_SIZE);
}

static void *allocate(pg_slab *s, size_t size) {
	void *block = pg_slab_reuse(s, size);
	if (block) return block;
	size_t whole = pg_slab_units(size) * PG_SLAB_UNIT;
	if (size > PG_SLAB_LARGEST || (size_t)(s->end - s->cut) < whole) return malloc(size);
	block = s->cut;
	s->cut += whole;
	return block;
}

void *pg_slab_resize(pg_slab *s, void *block, size_t old, size_t size) {
	int owned = pg_slab_owns(s, block);
	if (block && !owned) return realloc(block, size);
	if (owned && pg_slab_units(old) == pg_slab_units(size)) return block;
	void *fresh = allocate(s, size);
	if (!fresh || !block) return fresh;
	memcpy(fresh, block, old < size ? old : size);
	pg_slab_free(s, block, old);
	return fresh;
}
