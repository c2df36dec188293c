// What reading, writing and encoding share.

#ifndef PERIGEE_TREE_H
#define PERIGEE_TREE_H

#include "document.h"

uint32_t index_more(doc *d, const char *text, size_t len, int *fault);

// is_plain tells whether a value is a string whose text stands between its quotes.
static inline int is_plain(const doc_node *n) {
	return n->kind == DOC_STRING && !(n->flags & (DOC_BARE | DOC_ESCAPED));
}

// value_of returns the value node of a field or element.
static inline uint32_t value_of(const doc *d, uint32_t field) {
	const doc_node *n = &d->nodes[field];
	return n->flags & DOC_REPLACED ? n->other : field;
}

#endif
