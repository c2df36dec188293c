/* Small blocks for a VM. Most live for one event; malloc is slow for them. */
#ifndef PERIGEE_SLAB_H
#define PERIGEE_SLAB_H

#include <stddef.h>

enum { SLAB_UNIT = 16, SLAB_LARGEST = 256 };

/* One piece of memory, cut into blocks of whole units. A free block is on the list
 * of its size, and is never of another one again. */
typedef struct pg_slab {
	char *data, *cut, *end; /* cut: what is beyond it was never used */
	void *free[SLAB_LARGEST / SLAB_UNIT + 1];
} pg_slab;

/* Without memory for it the slab is empty, and every block is malloc's. */
void pg_slab_open(pg_slab *s);
void pg_slab_close(pg_slab *s);

/* pg_slab_resize is realloc for a block of known size; old may be 0, size may not. */
void *pg_slab_resize(pg_slab *s, void *block, size_t old, size_t size);
void pg_slab_free(pg_slab *s, void *block, size_t size);

#endif
