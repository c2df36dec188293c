// The memory of a document, kept from one document to the next.

#ifndef PERIGEE_MEMORY_H
#define PERIGEE_MEMORY_H

#include "document.h"

enum { MARKS_SLACK = 16 }; // marks may be read 16 at a time past the last one

void arena_reset(doc *d);
void *arena_get(doc *d, size_t size); // NULL beyond d->max
int nodes_grow(doc *d);

// node_add returns the index of a fresh node for a write, or 0 when memory ends.
// It may move d->nodes.
static inline uint32_t node_add(doc *d) {
	d->held += sizeof(doc_node);
	if (d->held > d->max) return 0;
	if (d->count == d->cap && nodes_grow(d)) return 0;
	d->marks[d->count] = 0;
	return d->count++;
}

#endif
