/* Small blocks for a VM. Most live for one event; malloc is slow for them. */
#ifndef PERIGEE_SLAB_H
#define PERIGEE_SLAB_H

#include <stddef.h>
#include <string.h>

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

static inline size_t slab_units(size_t size) { return (size + SLAB_UNIT - 1) / SLAB_UNIT; }

/* pg_slab_again returns a block that was free, or NULL: then pg_slab_resize has one. */
static inline void *pg_slab_again(pg_slab *s, size_t size) {
	if (size > SLAB_LARGEST) return NULL;
	void **list = &s->free[slab_units(size)], *block = *list;
	if (!block) return NULL;
	memcpy(list, block, sizeof block);
	__builtin_prefetch(*list, 1); /* the next one to be taken says what comes after it */
	return block;
}

/* pg_slab_has tells whether a block is of the slab; else it is malloc's. */
static inline int pg_slab_has(const pg_slab *s, const void *block) {
	return (const char *)block >= s->data && (const char *)block < s->end;
}

/* pg_slab_free takes back a block that the slab has. */
static inline void pg_slab_free(pg_slab *s, void *block, size_t size) {
	void **list = &s->free[slab_units(size)];
	memcpy(block, list, sizeof block);
	*list = block;
}

#endif
