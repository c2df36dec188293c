#include "memory.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 14 };

doc *doc_new(size_t max_written) {
	doc *d = calloc(1, sizeof *d);
	if (!d) return NULL;
	d->max = max_written;
	d->indexed_shape = UINT64_MAX; // no shape
	return d;
}

void doc_free(doc *d) {
	if (!d) return;
	for (doc_chunk *c = d->chunks, *next; c; c = next) {
		next = c->next;
		free(c);
	}
	free(d->nodes);
	free(d->hashes);
	free(d->last_hashes);
	free(d->quotes);
	free(d->blocks);
	free(d->key_slots);
	free(d->template.text);
	free(d->template.scalars);
	free(d->template.containers);
	free(d);
}

void arena_reset(doc *d) {
	d->chunk = d->chunks;
	d->used = d->written = 0;
}

static doc_chunk *next_chunk(doc *d, size_t size) {
	doc_chunk *c = d->chunk ? d->chunk->next : NULL;
	if (c && c->cap >= size) return c;
	size_t cap = size > CHUNK ? size : CHUNK;
	doc_chunk *fresh = malloc(sizeof *fresh + cap);
	if (!fresh) return NULL;
	fresh->cap = cap;
	fresh->next = c;
	if (d->chunk) d->chunk->next = fresh;
	else d->chunks = fresh;
	return fresh;
}

void *arena_more(doc *d, size_t size) {
	doc_chunk *c = d->written + size > d->max ? NULL : next_chunk(d, size);
	if (!c) return NULL;
	d->chunk = c;
	d->used = size;
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

int nodes_grow(doc *d) {
	uint32_t cap = d->cap ? d->cap * 2 : 64;
	doc_node *nodes = realloc(d->nodes, (size_t)cap * sizeof *nodes);
	if (!nodes) return DOC_NO_MEMORY;
	d->nodes = nodes;
	if (hashes_grow(&d->hashes, d->cap, cap) || hashes_grow(&d->last_hashes, d->cap, cap)) return DOC_NO_MEMORY;
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
