// Finding the field of a key: by a fingerprint of the key, which is compared with 16
// at a time, and where the document before had it.

#ifndef PERIGEE_FIELDS_H
#define PERIGEE_FIELDS_H

#include "document.h"
#include "scan.h"

int key_is_escaped(doc *d, const doc_node *n, const char *key, size_t len); // key_is where the node's key has escapes
void remember(doc *d, const char *key, uint32_t field); // makes recall find the field

static inline int key_is(doc *d, const doc_node *n, const char *key, size_t len) {
	if (__builtin_expect(n->flags & DOC_KEY_ESCAPED, 0)) return key_is_escaped(d, n, key, len);
	return n->key_len == len && n->key && scan_same(n->key, key, len);
}

// find_between returns the last field of object that has that key among the
// nodes [from, end), or 0.
static inline uint32_t find_between(doc *d, uint32_t object, uint32_t from, uint32_t end, uint8_t mark, const char *key, size_t len) {
	while (end > from) {
		uint32_t base = end - from > 16 ? end - 16 : from;
		uint32_t bits = scan_marks(d->marks + base, mark);
		if (end - base < 16) bits &= (1u << (end - base)) - 1;
		while (bits) {
			uint32_t top = 31 - (uint32_t)__builtin_clz(bits), i = base + top;
			const doc_node *n = &d->nodes[i];
			if (n->parent == object && key_is(d, n, key, len)) return i;
			bits &= ~(1u << top);
		}
		end = base;
	}
	return 0;
}

// find_added is find_between for the fields that were added to an object.
static inline uint32_t find_added(doc *d, uint32_t object, uint8_t mark, const char *key, size_t len) {
	const doc_node *n = &d->nodes[object];
	if (__builtin_expect(!(d->added >> mark % 64 & 1) || !n->first, 1)) return 0;
	return find_between(d, object, n->first, n->last + 1, mark, key, len);
}

// A key has one of two places.
static inline doc_memo *memo_at(doc *d, const char *key) {
	return &d->memos[((uintptr_t)key >> 3 ^ (uintptr_t)key >> 10) % DOC_MEMOS];
}

static inline doc_memo *memo_beside(doc *d, const doc_memo *m) { return &d->memos[(m - d->memos) ^ 1]; }

// recall returns the field of the object that had the key in the document before,
// if it has it again, and no other field can have it; else 0.
static inline uint32_t recall(doc *d, uint32_t object, const char *key, size_t len) {
	const doc_memo *m = memo_at(d, key);
	if (m->key != key) m = memo_beside(d, m);
	if (m->key != key || m->shape != d->shape) return 0;
	const doc_node *n = &d->nodes[m->field];
	int same = n->key_len == len && n->parent == object && !(n->flags & DOC_KEY_ESCAPED) && scan_same(n->key, key, len);
	return same ? m->field : 0;
}

// is_absent tells whether no field in the text of an object can have a mark.
static inline int is_absent(const doc *d, uint32_t object, uint8_t mark) {
	return d->known == d->shape && object < d->nodes[0].next && !(d->present[mark / 64] >> mark % 64 & 1);
}

#endif
