// The memory of a document, kept from one document to the next.

#ifndef PERIGEE_MEMORY_H
#define PERIGEE_MEMORY_H

#include "document.h"
#include "scan.h"

enum { HASHES_SLACK = 16 }; // hashes may be read 16 at a time past the last one

void arena_reset(doc *d);
void *arena_more(doc *d, size_t size);
int nodes_grow(doc *d);

// arena_get returns NULL beyond d->max.
static inline void *arena_get(doc *d, size_t size) {
	size = (size + 7) & ~(size_t)7;
	if (__builtin_expect(!d->chunk || d->used + size > d->chunk->cap || d->written + size > d->max, 0)) return arena_more(d, size);
	void *p = d->chunk->data + d->used;
	d->used += size;
	d->written += size;
	return p;
}

// node_add returns the index of a fresh node for a write, or 0 when memory is exhausted.
// It may move d->nodes.
static inline uint32_t node_add(doc *d) {
	d->written += sizeof(doc_node);
	if (d->written > d->max) return 0;
	if (d->count == d->cap && nodes_grow(d)) return 0;
	d->hashes[d->count] = 0;
	return d->count++;
}

// doc_buf_put is doc_buf_add, fast if there is room.
static inline int doc_buf_put(doc_buf *b, const char *data, size_t len) {
	if (__builtin_expect(b->len + len > b->cap || b->len + len > b->max, 0)) return doc_buf_add(b, data, len);
	scan_copy(b->data + b->len, data, len);
	b->len += len;
	return DOC_OK;
}

#endif
