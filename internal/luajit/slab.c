#include "slab.h"

#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
enum { PG_SLAB_SIZE = 0 }; /* AddressSanitizer must see every block */
#else
enum { PG_SLAB_SIZE = 1 << 20 }; /* the system provides only the pages that are touched */
#endif

void pg_slab_open(pg_slab *s) {
	*s = (pg_slab){0};
	s->data = s->cut = s->end = PG_SLAB_SIZE ? malloc(PG_SLAB_SIZE) : NULL;
	if (s->data) s->end += PG_SLAB_SIZE;
}

void pg_slab_close(pg_slab *s) { free(s->data); }

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
