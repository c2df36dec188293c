#include "slab.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
enum {
	PLUA_SLAB_SIZE = 0 /* no slab: AddressSanitizer must see every block */
};
#else
enum {
	PLUA_SLAB_SIZE = 1 << 20 /* untouched pages take no memory */
};
#endif

void plua_slab_open(plua_slab *s) {
	*s = (plua_slab){0};
	if (!PLUA_SLAB_SIZE) return;
	/* Not from malloc: freeing a block of this size raises malloc's threshold for mmap, and later
	 * slabs then fragment its arenas. */
	char *data =
	    mmap(NULL, PLUA_SLAB_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (data == MAP_FAILED) return;
	s->data = s->cut = data;
	s->end = data + PLUA_SLAB_SIZE;
}

void plua_slab_close(plua_slab *s) {
	if (s->data) munmap(s->data, PLUA_SLAB_SIZE);
}

static void *allocate(plua_slab *s, size_t size) {
	void *block = plua_slab_reuse(s, size);
	if (block) return block;
	size_t whole = plua_slab_units(size) * PLUA_SLAB_UNIT;
	if (size > PLUA_SLAB_LARGEST || (size_t)(s->end - s->cut) < whole) return malloc(size);
	block = s->cut;
	s->cut += whole;
	return block;
}

void *plua_slab_resize(plua_slab *s, void *block, size_t old, size_t size) {
	int owned = plua_slab_owns(s, block);
	if (block && !owned) return realloc(block, size);
	if (owned && plua_slab_units(old) == plua_slab_units(size)) return block;
	void *fresh = allocate(s, size);
	if (!fresh || !block) return fresh;
	memcpy(fresh, block, old < size ? old : size);
	plua_slab_free(s, block, old);
	return fresh;
}
