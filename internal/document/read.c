// Finds fields and reads values.

#include <string.h>

#include "fields.h"
#include "memory.h"
#include "text.h"
#include "tree.h"

// find_uncached is doc_find for a key that is not cached.
static __attribute__((noinline)) uint32_t find_uncached(
    doc *d, uint32_t object, const char *key, size_t len) {
	const doc_node *n = &d->nodes[object];
	if (n->kind != DOC_OBJECT) return 0;
	if (keys_cover(d, object)) return doc_keys_find(d, object, key, len);
	uint8_t hash = scan_hash(key, len);
	keys_searched(d, n->next - object);
	uint32_t field = is_hash_absent(d, object, hash)
	                     ? 0
	                     : find_between(d, object, object + 1, n->next, hash, key, len);
	if (field && d->same_shape) doc_cache_field(d, key, field);
	return field ? field : find_added(d, object, hash, key, len);
}

uint32_t doc_find(doc *d, uint32_t object, const char *key, size_t len) {
	uint32_t known = cached_field(d, object, key, len);
	return __builtin_expect(known, 1) ? known : find_uncached(d, object, key, len);
}

// string_value sets str to the text of a string that was written or has escapes.
static int string_value(doc *d, const doc_node *n) {
	if (n->flags & DOC_UNQUOTED) {
		d->str = n->text;
		d->str_len = n->len;
		return DOC_STRING;
	}
	char *out = doc_plain_get(d, n->len);
	if (!out) return DOC_MISSING;
	d->str_len = (uint32_t)doc_unescape(n->text + 1, n->len - 2, out);
	d->str = out;
	return DOC_STRING;
}

static int number_value(doc *d, const doc_node *n) {
	if (n->flags & DOC_DOUBLE) {
		d->num = n->u.num;
		return DOC_NUMBER;
	}
	if (doc_exact(n->text, n->len, &d->num)) return DOC_NUMBER;
	d->str = n->text;
	d->str_len = n->len;
	return DOC_BIGNUM;
}

static __attribute__((noinline)) int other_value(doc *d, const doc_node *n) {
	switch (n->kind) {
	case DOC_STRING: return string_value(d, n);
	case DOC_NUMBER: return number_value(d, n);
	case DOC_EXTERNAL: d->num = n->count; return DOC_EXTERNAL;
	default: return n->kind;
	}
}

int doc_value(doc *d, uint32_t node) {
	const doc_node *n = &d->nodes[node];
	d->got = node;
	if (!is_plain_string(n)) return other_value(d, n);
	d->str = n->text + 1;
	d->str_len = n->len - 2;
	return DOC_STRING;
}

int doc_read(doc *d, uint32_t object, const char *key, size_t len) {
	uint32_t field = doc_find(d, object, key, len);
	if (!field || d->nodes[field].flags & DOC_REMOVED) return DOC_MISSING;
	return doc_value(d, value_of(d, field));
}

uint32_t doc_length(const doc *d, uint32_t array) {
	const doc_node *n = &d->nodes[array];
	return n->flags & DOC_LISTED ? n->u.list->len : n->count;
}

// sibling_before returns the element before another one, which must not be the first.
static uint32_t sibling_before(const doc *d, uint32_t array, uint32_t at) {
	for (at--; d->nodes[at].parent != array; at = d->nodes[at].parent) {
	}
	return at;
}

// element returns the node of the element at index, counted from 0. It starts at the element read
// last, so that a loop over an array takes linear time in either direction.
static uint32_t element(doc *d, uint32_t array, uint32_t index) {
	doc_node *n = &d->nodes[array];
	if (n->flags & DOC_LISTED) return n->u.list->at[index];
	if (n->next - array - 1 == n->count) return array + 1 + index; // only scalars
	uint32_t i = 0, at = array + 1;
	uint32_t last = n->u.last_read.index;
	if (last && last / 2 <= index) i = last, at = n->u.last_read.node;
	for (; i < index; i++) at = d->nodes[at].next;
	for (; i > index; i--) at = sibling_before(d, array, at);
	n->u.last_read.index = index;
	n->u.last_read.node = at;
	return at;
}

int doc_at(doc *d, uint32_t array, double index) {
	if (!(index >= 1 && index <= doc_length(d, array)) || index != (uint32_t)index)
		return DOC_MISSING;
	return doc_value(d, value_of(d, element(d, array, (uint32_t)index - 1)));
}

// is_shadowed reports whether a later field of the text has the same key.
static int is_shadowed(doc *d, uint32_t object, uint32_t field) {
	doc_node n = d->nodes[field];
	if (!keys_cover(d, object)) keys_searched(d, d->nodes[object].next - field);
	if (n.flags & DOC_KEY_ESCAPED) {
		char *plain = doc_plain_get(d, n.key_len);
		if (!plain) return 0;
		n.key_len = (uint32_t)doc_unescape(n.key, n.key_len, plain);
		n.key = plain;
	}
	if (keys_cover(d, object)) return doc_keys_find(d, object, n.key, n.key_len) != field;
	return find_between(d, object, field + 1, d->nodes[object].next, d->hashes[field], n.key,
	           n.key_len) != 0;
}

static uint32_t next_field(const doc *d, uint32_t object, uint32_t field) {
	uint32_t end = d->nodes[object].next;
	if (field >= end) return d->nodes[field].next; // an added field
	uint32_t i = field ? d->nodes[field].next : object + 1;
	return i < end ? i : d->nodes[object].first;
}

static int set_key(doc *d, const doc_node *n) {
	d->str = n->key;
	d->str_len = n->key_len;
	if (!(n->flags & DOC_KEY_ESCAPED)) return 1;
	char *plain = doc_plain_get(d, n->key_len);
	if (!plain) return 0;
	d->str_len = (uint32_t)doc_unescape(n->key, n->key_len, plain);
	d->str = plain;
	return 1;
}

uint32_t doc_step(doc *d, uint32_t object, uint32_t field) {
	if (d->nodes[object].kind != DOC_OBJECT) return 0;
	while ((field = next_field(d, object, field))) {
		const doc_node *n = &d->nodes[field];
		if (n->flags & DOC_REMOVED) continue;
		if (field < d->nodes[object].next && is_shadowed(d, object, field)) continue;
		d->got = value_of(d, field);
		return set_key(d, n) ? field : 0;
	}
	return 0;
}
