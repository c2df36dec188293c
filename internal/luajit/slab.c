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

static void *take(pg_slab *s, size_t size) {
	void *block = pg_slab_again(s, size);
	if (block) return block;
	size_t whole = slab_units(size) * SLAB_UNIT;
	if (size > SLAB_LARGEST || (size_t)(s->end - s->cut) < whole) return malloc(size);
	block = s->cut;
	s->cut += whole;
	return block;
}

void *pg_slab_resize(pg_slab *s, void *block, size_t old, size_t size) {
	int ours = pg_slab_has(s, block);
	if (block && !ours) return realloc(block, size);
	if (ours && slab_units(old) == slab_units(size)) return block;
	void *fresh = take(s, size);
	if (!fresh || !block) return fresh;
	memcpy(fresh, block, old < size ? old : size);
	pg_slab_free(s, block, old);
	return fresh;
}
