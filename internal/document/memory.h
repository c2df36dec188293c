// The memory of a document, which is reused for the next document.

#ifndef PERIGEE_MEMORY_H
#define PERIGEE_MEMORY_H

#include "document.h"
#include "scan.h"

enum {
	HASHES_SLACK = 16 // up to 16 hashes are read past the last one
};

// doc_memory_take counts memory of the document. It returns DOC_NO_MEMORY beyond the limit.
int doc_memory_take(doc *d, size_t size);
// doc_memory_resize is realloc for memory of the document. It returns NULL beyond the limit.
void *doc_memory_resize(doc *d, void *block, size_t old, size_t size);

// doc_plain_get returns a buffer for a string without escapes, valid until the next call, or NULL.
char *doc_plain_get(doc *d, size_t size);

void doc_arena_reset(doc *d);
// doc_memory_begin prepares for a document of len bytes.
void doc_memory_begin(doc *d, size_t len);
void *doc_arena_more(doc *d, size_t size);
int doc_nodes_grow(doc *d);

static inline size_t nodes_size(uint32_t cap) { return (size_t)cap * (sizeof(doc_node) + 2); }
static inline size_t blocks_size(uint32_t cap) {
	return (size_t)cap * (sizeof(doc_block) + sizeof(uint64_t));
}

// arena_get returns NULL beyond d->max.
static inline void *arena_get(doc *d, size_t size) {
	size = (size + 7) & ~(size_t)7;
	if (__builtin_expect(
	        !d->chunk || d->chunk_used + size > d->chunk->cap || d->written + size > d->max, 0))
		return doc_arena_more(d, size);
	void *p = d->chunk->data + d->chunk_used;
	d->chunk_used += size;
	d->written += size;
	return p;
}

// node_add returns the index of a new node for a write, or 0 if memory is exhausted. It may move
// d->nodes.
static inline uint32_t node_add(doc *d) {
	d->written += sizeof(doc_node);
	if (d->written > d->max) return 0;
	if (d->count == d->cap && doc_nodes_grow(d)) return 0;
	d->hashes[d->count] = 0;
	return d->count++;
}

// doc_buf_put is doc_buf_add, with a fast path if there is space.
static inline int doc_buf_put(doc_buf *b, const char *data, size_t len) {
	if (__builtin_expect(b->len + len > b->cap || b->len + len > b->max, 0))
		return doc_buf_add(b, data, len);
	scan_copy(b->data + b->len, data, len);
	b->len += len;
	return DOC_OK;
}

#endif
