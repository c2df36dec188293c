/* A slab allocator for the small blocks of a VM. Most live for one event, and malloc is slow for them. */
#ifndef PERIGEE_SLAB_H
#define PERIGEE_SLAB_H

#include <stddef.h>
#include <string.h>

enum {
	PLUA_SLAB_UNIT = 16,    /* bytes */
	PLUA_SLAB_LARGEST = 256 /* bytes of a block */
};

/* A slab is one piece of memory, cut into blocks of whole units. A free block is on the
 * list of its size and keeps that size. */
typedef struct plua_slab {
	char *data, *cut, *end; /* from cut on nothing was ever used */
	void *free[PLUA_SLAB_LARGEST / PLUA_SLAB_UNIT + 1];
} plua_slab;

/* plua_slab_open maps memory. It leaves the slab empty if there is none: then all blocks come
 * from malloc. */
void plua_slab_open(plua_slab *s);
void plua_slab_close(plua_slab *s);

/* plua_slab_resize is realloc for a block of a known size; old may be 0, size may not. */
void *plua_slab_resize(plua_slab *s, void *block, size_t old, size_t size);

static inline size_t plua_slab_units(size_t size) {
	return (size + PLUA_SLAB_UNIT - 1) / PLUA_SLAB_UNIT;
}

/* plua_slab_reuse returns a free block, or NULL if there is none: call plua_slab_resize then. */
static inline void *plua_slab_reuse(plua_slab *s, size_t size) {
	if (size > PLUA_SLAB_LARGEST) return NULL;
	void **list = &s->free[plua_slab_units(size)], *block = *list;
	if (!block) return NULL;
	memcpy(list, block, sizeof block);
	__builtin_prefetch(*list, 1); /* the next call reads its link */
	return block;
}

/* plua_slab_owns tells whether a block belongs to the slab; others come from malloc. */
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
