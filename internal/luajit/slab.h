/* A slab allocator for a VM's small blocks. Most live for one event, and malloc is slow for
 * them. */
#ifndef PERIGEE_SLAB_H
#define PERIGEE_SLAB_H

#include <stddef.h>
#include <string.h>

enum {
	PLUA_SLAB_UNIT = 16,    /* bytes */
	PLUA_SLAB_LARGEST = 256 /* bytes of a block */
};

/* A slab is one mapping, cut into blocks of whole units. A free block is in the list of its
 * size, and keeps that size. */
typedef struct plua_slab {
	char *data, *cut, *end; /* memory from cut on is unused */
	void *free[PLUA_SLAB_LARGEST / PLUA_SLAB_UNIT + 1];
} plua_slab;

/* plua_slab_open maps memory. If that fails, the slab stays empty, and all blocks come from
 * malloc. */
void plua_slab_open(plua_slab *s);
void plua_slab_close(plua_slab *s);

/* plua_slab_resize is realloc for a block of known size; old may be 0, size must not. */
void *plua_slab_resize(plua_slab *s, void *block, size_t old, size_t size);

static inline size_t plua_slab_units(size_t size) {
	return (size + PLUA_SLAB_UNIT - 1) / PLUA_SLAB_UNIT;
}

/* plua_slab_reuse returns a free block, or NULL: call plua_slab_resize then. */
static inline void *plua_slab_reuse(plua_slab *s, size_t size) {
	if (size > PLUA_SLAB_LARGEST) return NULL;
	void **list = &s->free[plua_slab_units(size)], *block = *list;
	if (!block) return NULL;
	memcpy(list, block, sizeof block);
	__builtin_prefetch(*list, 1); /* the next call reads this block's link */
	return block;
}

/* plua_slab_owns reports whether a block belongs to the slab; others come from malloc. */
static inline int plua_slab_owns(const plua_slab *s, const void *block) {
	return (const char *)block >= s->data && (const char *)block < s->end;
}

/* plua_slab_free frees a block that the slab owns. */
static inline void plua_slab_free(plua_slab *s, void *block, size_t size) {
	void **list = &s->free[plua_slab_units(size)];
	memcpy(block, list, sizeof block);
	*list = block;
}

#endif
