// An index of the keys of a large document, which finds a field in constant time.
//
// Searching all hashes is faster in small documents, and for a few keys of a large one. So the
// index is built once the searches in a document have cost more than building it.

#ifndef PERIGEE_KEYS_H
#define PERIGEE_KEYS_H

#include "document.h"

enum {
	KEYS_NODES_MIN = 256 // a smaller document gets no index
};
enum {
	KEYS_SEARCHED_MAX = 32 // nodes visited, per node of the document, before the index is built
};

// doc_keys_make builds the index of all current objects of the document.
void doc_keys_make(doc *d);

// keys_cover reports whether the index covers an object.
static inline int keys_cover(const doc *d, uint32_t object) { return object < d->keys.objects; }

// doc_keys_find returns the last field of an object with the key, or 0. The index must cover the
// object.
uint32_t doc_keys_find(doc *d, uint32_t object, const char *key, size_t len);

// doc_keys_add adds a new field. If memory is exhausted, it drops the index.
void doc_keys_add(doc *d, uint32_t field);

// keys_searched counts the nodes visited by a search.
static inline void keys_searched(doc *d, uint32_t nodes) {
	if (__builtin_expect(d->count < KEYS_NODES_MIN, 1)) return;
	d->keys.searched += nodes;
	if (__builtin_expect(d->keys.searched / KEYS_SEARCHED_MAX > d->count, 0)) doc_keys_make(d);
}

#endif
