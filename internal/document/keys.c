#include "keys.h"

#include <string.h>

#include "fields.h"
#include "hash.h"
#include "memory.h"

// hash_of returns the hash of an object's key. It differs between objects.
static uint32_t hash_of(uint32_t object, const char *key, size_t len) {
	return (uint32_t)doc_hash_seeded(key, len) ^ object * 0x9E3779B1u;
}

// hash_node is hash_of for a field. It returns 0 if there is no memory to read an escaped key.
static int hash_node(doc *d, const doc_node *n, uint32_t *hash) {
	const char *key = n->key;
	size_t len = n->key_len;
	if (n->flags & DOC_KEY_ESCAPED) {
		char *plain = doc_plain_get(d, len);
		if (!plain) return 0;
		len = doc_unescape(key, len, plain);
		key = plain;
	}
	*hash = hash_of(n->parent, key, len);
	return 1;
}

// same_key reports whether two fields belong to the same object and have the same key.
static int same_key(doc *d, const doc_node *a, const doc_node *b) {
	if (a->parent != b->parent) return 0;
	if (!(a->flags & DOC_KEY_ESCAPED)) return key_is(d, b, a->key, a->key_len);
	if (!(b->flags & DOC_KEY_ESCAPED)) return key_is(d, a, b->key, b->key_len);
	char *plain = doc_plain_get(d, a->key_len);
	return plain && key_is(d, b, plain, doc_unescape(a->key, a->key_len, plain));
}

// place_of returns the entry of a field with that hash and key, or the free entry for it.
static doc_key_entry *place_of(doc *d, uint32_t hash, const doc_node *field) {
	uint32_t mask = d->keys.cap - 1, i = hash & mask;
	for (; d->keys.entries[i].node; i = (i + 1) & mask)
		if (d->keys.entries[i].hash == hash &&
		    same_key(d, field, &d->nodes[d->keys.entries[i].node]))
			break;
	return &d->keys.entries[i];
}

// put enters a field. It replaces an earlier one with the same key, which it records in `other`:
// fields other than the last are never written to, and the last one has not been yet.
static int put(doc *d, uint32_t field) {
	uint32_t hash;
	doc_node *n = &d->nodes[field];
	if (!hash_node(d, n, &hash)) return DOC_NO_MEMORY;
	doc_key_entry *entry = place_of(d, hash, n);
	if (entry->node && !(n->flags & DOC_REPLACED)) {
		n->flags |= DOC_REPEATS;
		n->other = entry->node;
	}
	d->keys.used += !entry->node;
	*entry = (doc_key_entry){hash, field};
	return DOC_OK;
}

// make_room makes space for n entries, with half of the table free.
static int make_room(doc *d, uint32_t n) {
	uint32_t cap = 1024;
	while (cap / 2 < n) cap *= 2;
	if (cap > d->keys.cap) {
		size_t size = sizeof *d->keys.entries;
		doc_key_entry *entries =
		    doc_memory_resize(d, d->keys.entries, d->keys.cap * size, cap * size);
		if (!entries) return DOC_NO_MEMORY;
		d->keys.entries = entries;
		d->keys.cap = cap;
	}
	memset(d->keys.entries, 0, d->keys.cap * sizeof *d->keys.entries);
	d->keys.used = 0;
	return DOC_OK;
}

// drop drops the index. Fields may then use `other` for written values.
static void drop(doc *d) {
	for (uint32_t i = 0; i < d->count; i++) d->nodes[i].flags &= (uint16_t)~DOC_REPEATS;
	d->keys.objects = 0;
}

void doc_keys_make(doc *d) {
	uint32_t fields = 0;
	d->keys.objects = 0;
	d->keys.searched = 0;
	for (uint32_t i = 0; i < d->count; i++) fields += d->nodes[i].key != NULL;
	if (make_room(d, fields + fields / 2)) return drop(d);
	for (uint32_t i = 0; i < d->count; i++)
		if (d->nodes[i].key && put(d, i)) return drop(d);
	d->keys.objects = d->count;
}

uint32_t doc_keys_find(doc *d, uint32_t object, const char *key, size_t len) {
	doc_node field = {.key = key, .key_len = (uint32_t)len, .parent = object};
	return place_of(d, hash_of(object, key, len), &field)->node;
}

void doc_keys_add(doc *d, uint32_t field) {
	if (!keys_cover(d, d->nodes[field].parent)) return;
	if (d->keys.used >= d->keys.cap / 2) doc_keys_make(d); // includes the field
	else if (put(d, field)) drop(d);
}
