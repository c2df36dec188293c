// Finds the field with a key: by one-byte hashes, compared 16 at a time, and by field slots, which
// cache its position in the preceding document.

#ifndef PERIGEE_FIELDS_H
#define PERIGEE_FIELDS_H

#include "document.h"
#include "keys.h"
#include "scan.h"

// for a node whose key has escapes: true if its key is `key`
int doc_key_is_escaped(doc *d, const doc_node *n, const char *key, size_t len);
void doc_cache_field(doc *d, const char *key, uint32_t field); // for cached_field

static inline int key_is(doc *d, const doc_node *n, const char *key, size_t len) {
	if (__builtin_expect(n->flags & DOC_KEY_ESCAPED, 0)) return doc_key_is_escaped(d, n, key, len);
	return n->key_len == len && n->key && scan_same(n->key, key, len);
}

// find_between returns the last field of object with that key among the nodes [from, end), or 0.
static inline uint32_t find_between(doc *d, uint32_t object, uint32_t from, uint32_t end,
    uint8_t hash, const char *key, size_t len) {
	while (end > from) {
		uint32_t base = end - from > 16 ? end - 16 : from;
		uint32_t bits = scan_find(d->hashes + base, hash);
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

// find_added is find_between for the fields added to an object.
static inline uint32_t find_added(
    doc *d, uint32_t object, uint8_t hash, const char *key, size_t len) {
	const doc_node *n = &d->nodes[object];
	if (__builtin_expect(!(d->added >> hash % 64 & 1) || !n->first, 1)) return 0;
	if (__builtin_expect(n->last - n->first >= KEYS_NODES_MIN, 0)) {
		if (keys_cover(d, object)) return doc_keys_find(d, object, key, len);
		keys_searched(d, n->last - n->first);
	}
	return find_between(d, object, n->first, n->last + 1, hash, key, len);
}

// Each key has two possible slots.
static inline doc_field_slot *field_slot(doc *d, const char *key) {
	return &d->field_slots[((uintptr_t)key >> 3 ^ (uintptr_t)key >> 10) % DOC_FIELD_SLOTS];
}

static inline doc_field_slot *field_slot_beside(doc *d, const doc_field_slot *m) {
	return &d->field_slots[(m - d->field_slots) ^ 1];
}

// cached_field returns the object's field that had the key in the preceding document, if it has the
// key again and no other field can have it; else 0.
static inline uint32_t cached_field(doc *d, uint32_t object, const char *key, size_t len) {
	const doc_field_slot *m = field_slot(d, key);
	if (m->key != key) m = field_slot_beside(d, m);
	if (m->key != key || m->shape != d->shape) return 0;
	const doc_node *n = &d->nodes[m->field];
	int same = n->key_len == len && n->parent == object && !(n->flags & DOC_KEY_ESCAPED) &&
	           scan_same(n->key, key, len);
	return same ? m->field : 0;
}

// is_hash_absent reports whether no field in the text of an object can have a hash.
static inline int is_hash_absent(const doc *d, uint32_t object, uint8_t hash) {
	return d->indexed_shape == d->shape && object < d->nodes[0].next &&
	       !(d->hashes_present[hash / 64] >> hash % 64 & 1);
}

#endif
