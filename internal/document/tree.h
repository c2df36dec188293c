// What reading, writing and encoding share.

#ifndef PERIGEE_TREE_H
#define PERIGEE_TREE_H

#include "document.h"

uint32_t index_more(doc *d, const char *text, size_t len, int *fault);

// value_of returns the value node of a field or element.
static inline uint32_t value_of(const doc *d, uint32_t field) {
	const doc_node *n = &d->nodes[field];
	return n->flags & DOC_REPLACED ? n->other : field;
}

#endif
