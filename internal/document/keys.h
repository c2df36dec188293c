// An index of the keys of a large document: with it a field is found in constant time.
//
// Searching the hashes of all nodes is quicker in small documents, and for a few keys
// of a large one. So the index is made when the searches in a document have taken longer
// than making it does.

#ifndef PERIGEE_KEYS_H
#define PERIGEE_KEYS_H

#include "document.h"

enum {
	KEYS_NODES_MIN = 256 // a smaller document has no index
};
enum {
	KEYS_SEARCHED_MAX = 32 // nodes searched, for each node of the document, before it gets one
};

// doc_keys_make makes the index of all objects that the document has now.
void doc_keys_make(doc *d);

// keys_cover tells whether the index has the fields of an object.
static inline int keys_cover(const doc *d, uint32_t object) { return object < d->keys.objects; }

// doc_keys_find returns the last field of an object that has the key, or 0. The index covers it.
uint32_t doc_keys_find(doc *d, uint32_t object, const char *key, size_t len);

// doc_keys_add adds a new field. Without memory for it there is no index any more.
void doc_keys_add(doc *d, uint32_t field);

// keys_searched counts nodes that a search looks at.
static inline void keys_searched(doc *d, uint32_t nodes) {
	if (__builtin_expect(d->count < KEYS_NODES_MIN, 1)) return;
	d->keys.searched += nodes;
	if (__builtin_expect(d->keys.searched / KEYS_SEARCHED_MAX > d->count, 0)) doc_keys_make(d);
}

#endif
