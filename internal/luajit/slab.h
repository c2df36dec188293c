/* A slab allocator for the small blocks of a VM. Most live for one event, and malloc is slow for them. */
#ifndef PERIGEE_SLAB_H
#define PERIGEE_SLAB_H

#include <stddef.h>
#include <string.h>

enum { PG_SLAB_UNIT = 16, PG_SLAB_LARGEST = 256 };

/* A slab is one piece of memory, cut into blocks of whole units. A free block is on the
 * list of its size and keeps that size. */
typedef struct pg_slab {
	char *data, *cut, *end; /* from cut on nothing was ever used */
	void *free[PG_SLAB_LARGEST / PG_SLAB_UNIT + 1];
} pg_slab;

/* pg_slab_open maps memory. It leaves the slab empty if there is none: then all blocks come
 * from malloc. */
void pg_slab_open(pg_slab *s);
void pg_slab_close(pg_slab *s);

/* pg_slab_resize is realloc for a block of a known size; old may be 0, size may not. */
void *pg_slab_resize(pg_slab *s, void *block, size_t old, size_t size);

static inline size_t pg_slab_units(size_t size) { return (size + PG_SLAB_UNIT - 1) / PG_SLAB_UNIT; }

/* pg_slab_reuse returns a free block, or NULL if there is none: call pg_slab_resize then. */
static inline void *pg_slab_reuse(pg_slab *s, size_t size) {
	if (size > PG_SLAB_LARGEST) return NULL;
	void **list = &s->free[pg_slab_units(size)], *block = *list;
	if (!block) return NULL;
	memcpy(list, block, sizeof block);
	__builtin_prefetch(*list, 1); /* the next call reads its link */
	return block;
}

/* pg_slab_owns tells whether a block belongs to the slab; others come from malloc. */
static inline int pg_slab_owns(const pg_slab *s, const void *block) {
	return (const char *)block >= s->data && (const char *)block < s->end;
}

/* pg_slab_free frees a block that the slab owns. */
static inline void pg_slab_free(pg_slab *s, void *block, size_t size) {
	void **list = &s->free[pg_slab_units(size)];
	memcpy(block, list, sizeof block);
	*list = block;
}

#endif
