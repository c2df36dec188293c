// Shared by reading, writing and encoding.

#ifndef PERIGEE_TREE_H
#define PERIGEE_TREE_H

#include "document.h"

uint32_t doc_index_value(doc *d, const char *text, size_t len, int *error);

// is_plain_string reports whether a value is a string whose text is just the bytes between its
// quotes.
static inline int is_plain_string(const doc_node *n) {
	return n->kind == DOC_STRING && !(n->flags & (DOC_UNQUOTED | DOC_ESCAPED));
}

// doc_tree_height returns the nesting depth of objects and arrays in a value's text.
uint32_t doc_tree_height(const doc *d, uint32_t node);

// value_of returns the value node of a field or element.
static inline uint32_t value_of(const doc *d, uint32_t field) {
	const doc_node *n = &d->nodes[field];
	return n->flags & DOC_REPLACED ? n->other : field;
}

#endif
