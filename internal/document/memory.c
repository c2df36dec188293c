#include "memory.h"

#include <stdlib.h>
#include <string.h>

enum {
	CHUNK = 1 << 14 // bytes
};
enum {
	HELD_KEPT = 1 << 20 // bytes of memory kept for the next document
};
enum {
	HELD_PER_BYTE = 128 // no text needs more memory per byte
};

int doc_memory_take(doc *d, size_t size) {
	if (d->used && (*d->used > d->used_max || size > d->used_max - *d->used)) return DOC_NO_MEMORY;
	if (d->used) *d->used += size;
	d->held += size;
	return DOC_OK;
}

static void give_back(doc *d, size_t size) {
	if (d->used) *d->used -= size;
	d->held -= size;
}

void *doc_memory_resize(doc *d, void *block, size_t old, size_t size) {
	if (doc_memory_take(d, size - old)) return NULL;
	void *resized = realloc(block, size);
	if (!resized) give_back(d, size - old);
	return resized;
}

doc *doc_new(size_t max_written, size_t *used, size_t used_max) {
	doc *d = calloc(1, sizeof *d);
	if (!d) return NULL;
	d->max = max_written;
	d->used = used;
	d->used_max = used_max;
	d->indexed_shape = UINT64_MAX; // matches no shape
	if (doc_memory_take(d, sizeof *d) == DOC_OK) return d;
	free(d);
	return NULL;
}

char *doc_plain_get(doc *d, size_t size) {
	if (size <= d->plain_cap) return d->plain;
	char *plain = doc_memory_resize(d, d->plain, d->plain_cap, size);
	if (!plain) return NULL;
	d->plain = plain;
	d->plain_cap = size;
	return plain;
}

static void free_chunks(doc *d) {
	for (doc_chunk *c = d->chunks, *next; c; c = next) {
		next = c->next;
		free(c);
	}
}

// free_index frees the parts that grow with the document.
static void free_index(doc *d) {
	free_chunks(d);
	free(d->nodes);
	free(d->hashes);
	free(d->last_hashes);
	free(d->quotes);
	free(d->blocks);
	free(d->plain);
	free(d->keys.entries);
}

void doc_free(doc *d) {
	if (!d) return;
	give_back(d, d->held);
	free_index(d);
	free(d->key_slots);
	free(d->template.text);
	free(d->template.scalars);
	free(d->template.containers);
	free(d);
}

// release frees the document's index. Shapes and templates are unique to a document.
static __attribute__((noinline)) void release(doc *d) {
	size_t chunks = 0;
	for (const doc_chunk *c = d->chunks; c; c = c->next) chunks += sizeof *c + c->cap;
	give_back(d, chunks + d->plain_cap + nodes_size(d->cap) + blocks_size(d->block_cap) +
	                 d->keys.cap * sizeof *d->keys.entries);
	free_index(d);
	d->plain = NULL;
	d->plain_cap = 0;
	d->keys = (doc_keys){0};
	d->chunks = d->chunk = NULL;
	d->nodes = NULL;
	d->hashes = d->last_hashes = NULL;
	d->quotes = NULL;
	d->blocks = NULL;
	d->count = d->cap = d->last_count = d->block_cap = 0;
	d->chunk_used = 0;
	d->template.matches = 0;
	d->template.streak = 0;
	d->same_shape = 0;
	d->shape++;
}

void doc_trim(doc *d) {
	if (d->held > HELD_KEPT) release(d);
}

void doc_memory_begin(doc *d, size_t len) {
	if (__builtin_expect(d->held > HELD_KEPT, 0) && d->held / HELD_PER_BYTE > len) release(d);
	doc_arena_reset(d);
}

void doc_arena_reset(doc *d) {
	d->chunk = d->chunks;
	d->chunk_used = d->written = 0;
}

static doc_chunk *next_chunk(doc *d, size_t size) {
	doc_chunk *c = d->chunk ? d->chunk->next : NULL;
	if (c && c->cap >= size) return c;
	size_t cap = size > CHUNK ? size : CHUNK;
	doc_chunk *fresh = doc_memory_resize(d, NULL, 0, sizeof *fresh + cap);
	if (!fresh) return NULL;
	fresh->cap = cap;
	fresh->next = c;
	if (d->chunk) d->chunk->next = fresh;
	else d->chunks = fresh;
	return fresh;
}

void *doc_arena_more(doc *d, size_t size) {
	doc_chunk *c = d->written + size > d->max ? NULL : next_chunk(d, size);
	if (!c) return NULL;
	d->chunk = c;
	d->chunk_used = size;
	d->written += size;
	return c->data;
}

static int hashes_grow(uint8_t **hashes, uint32_t old, uint32_t cap) {
	uint8_t *grown = realloc(*hashes, (size_t)cap + HASHES_SLACK);
	if (!grown) return DOC_NO_MEMORY;
	memset(grown + old, 0, (size_t)cap - old + HASHES_SLACK);
	*hashes = grown;
	return DOC_OK;
}

int doc_nodes_grow(doc *d) {
	uint32_t cap = d->cap ? d->cap * 2 : 64;
	size_t more = nodes_size(cap) - nodes_size(d->cap);
	if (doc_memory_take(d, more)) return DOC_NO_MEMORY;
	doc_node *nodes = realloc(d->nodes, (size_t)cap * sizeof *nodes);
	if (nodes) d->nodes = nodes;
	if (!nodes || hashes_grow(&d->hashes, d->cap, cap) ||
	    hashes_grow(&d->last_hashes, d->cap, cap)) {
		give_back(d, more);
		return DOC_NO_MEMORY;
	}
	d->cap = cap;
	return DOC_OK;
}

int doc_buf_need(doc_buf *b, size_t more) {
	if (b->len + more <= b->cap) return b->len + more > b->max ? DOC_TOO_BIG : DOC_OK;
	if (b->len + more > b->max) return DOC_TOO_BIG;
	size_t cap = b->cap ? b->cap * 2 : 1 << 12;
	while (cap < b->len + more) cap *= 2;
	char *data = realloc(b->data, cap);
	if (!data) return DOC_NO_MEMORY;
	b->data = data;
	b->cap = cap;
	return DOC_OK;
}

int doc_buf_add(doc_buf *b, const char *data, size_t len) {
	int error = doc_buf_need(b, len);
	if (error) return error;
	memcpy(b->data + b->len, data, len);
	b->len += len;
	return DOC_OK;
}
